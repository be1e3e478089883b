//! Finding sequential readers and choosing what to read ahead. Pure: no I/O.
//!
//! What always holds: at most a window beyond what was read is asked for, each byte once; a random reader asks for nothing.

use std::ops::Range;

const WINDOW_MIN: u64 = 512 << 10;
/// Reads of a stream may be this far out of order: the kernel sends several at once.
const SLACK: u64 = 2 << 20;

#[derive(Debug, Default)]
pub struct Readahead {
    /// Where the last read that went on ended.
    next: u64,
    /// Reads in a row that went on.
    streak: u32,
    window: u64,
    /// Asked for up to here.
    ahead: u64,
}

/// What follows from a read.
#[derive(Debug, PartialEq, Eq)]
pub struct Advice {
    /// The read was within what had been asked for.
    pub hit: bool,
    pub prefetch: Range<u64>,
}

impl Readahead {
    pub fn read(&mut self, offset: u64, len: u64, window_max: u64) -> Advice {
        let end = offset + len;
        let near = offset <= self.next + SLACK && end + SLACK >= self.next;
        if !near || (offset == 0 && self.next > SLACK) {
            *self = Self { next: end, ..Self::default() };
            return Advice { hit: false, prefetch: end..end };
        }
        let hit = end <= self.ahead;
        self.streak += 1;
        self.next = self.next.max(end);
        if self.streak < 2 {
            return Advice { hit, prefetch: end..end };
        }
        self.ahead = self.ahead.max(self.next);
        // Half a window left is the sign to go on, so that requests stay large.
        if self.ahead - self.next > self.window / 2 {
            return Advice { hit, prefetch: end..end };
        }
        self.window = (self.window * 2).clamp(WINDOW_MIN.min(window_max), window_max);
        let from = self.ahead;
        self.ahead = self.next + self.window;
        Advice { hit, prefetch: from..self.ahead.max(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_asks_for_every_byte_once_with_a_growing_window_and_a_random_reader_for_none() {
        let mut r = Readahead::default();
        let mut asked = 0;
        let mut covered = 0u64;
        for i in 0..64u64 {
            let a = r.read(i << 17, 1 << 17, 8 << 20);
            if !a.prefetch.is_empty() {
                assert!(a.prefetch.start >= asked);
                asked = a.prefetch.end;
                covered = covered.max(a.prefetch.end - ((i + 1) << 17));
            }
            assert!(i < 8 || a.hit, "read {i}");
        }
        assert_eq!(covered, 8 << 20);
        let mut r = Readahead::default();
        for i in 0..64u64 {
            let a = r.read((i * 7919 % 64) << 24, 4096, 8 << 20);
            assert!(a.prefetch.is_empty());
        }
    }
}
