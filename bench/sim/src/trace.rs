//! What happened, line by line: kept to be read, or only its digest.

use crate::clock::SimClock;
use parking_lot::Mutex;
use std::fmt::{Arguments, Write};
use xxhash_rust::xxh3::Xxh3;

/// Lines kept for a reader at most; a longer trace loses its beginning.
const LINES_MAX: usize = 200_000;

pub struct Trace {
    clock: SimClock,
    keep: bool,
    state: Mutex<State>,
}

struct State {
    digest: Xxh3,
    lines: u64,
    line: String,
    kept: std::collections::VecDeque<String>,
}

impl Trace {
    pub fn new(clock: SimClock, keep: bool) -> Self {
        let state = State { digest: Xxh3::new(), lines: 0, line: String::new(), kept: Default::default() };
        Self { clock, keep, state: Mutex::new(state) }
    }

    /// Adds a line, stamped with virtual time.
    pub fn note(&self, what: Arguments<'_>) {
        let us = self.clock.now_ns() / 1000;
        let mut guard = self.state.lock();
        let s = &mut *guard;
        s.line.clear();
        let _ = write!(s.line, "{:>6}.{:06} {what}", us / 1_000_000, us % 1_000_000);
        s.digest.update(s.line.as_bytes());
        s.digest.update(b"\n");
        s.lines += 1;
        if self.keep {
            if s.kept.len() == LINES_MAX {
                s.kept.pop_front();
            }
            s.kept.push_back(s.line.clone());
        }
    }

    /// Digest of every line so far, and their number.
    pub fn digest(&self) -> (u64, u64) {
        let s = self.state.lock();
        (s.digest.digest(), s.lines)
    }

    /// The lines kept.
    pub fn lines(&self) -> Vec<String> {
        self.state.lock().kept.iter().cloned().collect()
    }
}
