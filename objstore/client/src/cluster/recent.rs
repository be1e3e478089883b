//! How long an operation took lately, for deciding when to stop waiting.
//!
//! What always holds: constant memory; the percentile is over the last [`SAMPLES`] and at most [`STEP`] samples old.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SAMPLES: usize = 128;
/// Samples between two computations of the percentile.
const STEP: usize = 16;

pub(crate) struct Recent {
    ring: Mutex<(usize, [u64; SAMPLES])>,
    /// Nanoseconds; 0: fewer than [`STEP`] samples so far.
    p99_ns: AtomicU64,
}

impl Recent {
    pub fn new() -> Self {
        Self { ring: Mutex::new((0, [0; SAMPLES])), p99_ns: AtomicU64::new(0) }
    }

    pub fn record(&self, took: Duration) {
        let mut ring = self.ring.lock();
        let (count, samples) = &mut *ring;
        samples[*count % SAMPLES] = (took.as_nanos() as u64).max(1);
        *count += 1;
        if count.is_multiple_of(STEP) {
            let mut sorted = *samples;
            let known = (*count).min(SAMPLES);
            let nth = (known * 99).div_ceil(100) - 1;
            let (_, p99, _) = sorted[..known].select_nth_unstable(nth);
            self.p99_ns.store(*p99, Ordering::Relaxed);
        }
    }

    /// The 99th percentile of the recent past, `None` while too little is known.
    pub fn p99(&self) -> Option<Duration> {
        match self.p99_ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_follows_the_recent_past() {
        let r = Recent::new();
        (0..15).for_each(|_| r.record(Duration::from_millis(1)));
        assert_eq!(r.p99(), None);
        (0..200).for_each(|n| r.record(Duration::from_millis(if n % 50 == 0 { 9 } else { 1 })));
        assert_eq!(r.p99(), Some(Duration::from_millis(9)));
        (0..200).for_each(|_| r.record(Duration::from_millis(2)));
        assert_eq!(r.p99(), Some(Duration::from_millis(2)));
    }
}
