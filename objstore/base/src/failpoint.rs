//! Counts which error paths were taken, so that a fault that a test means to inject is known to have arrived.
//!
//! What always holds: every name stands once in the code and once in docs/FAILPOINTS.md, beside the test that fails when it is not reached
//! (`bench/tidy` compares the three); a release build counts nothing.
//! What it leaves out: causing faults. Simulated disks and fakes do that.

use parking_lot::Mutex;
use std::collections::BTreeMap;

static COUNTS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// An error path was taken.
#[inline]
pub fn reached(name: &'static str) {
    if cfg!(debug_assertions) {
        *COUNTS.lock().entry(name).or_default() += 1;
    }
}

/// How often it was, in this process.
pub fn count(name: &str) -> u64 {
    COUNTS.lock().get(name).copied().unwrap_or(0)
}

/// For a test that injects faults: each of `names` must have been reached between now and the end of what this returns.
#[must_use = "it is its end that looks"]
pub fn must_reach(names: &[&'static str]) -> MustReach {
    MustReach(names.iter().map(|n| (*n, count(n))).collect())
}

/// See [`must_reach`].
pub struct MustReach(Vec<(&'static str, u64)>);

impl Drop for MustReach {
    fn drop(&mut self) {
        let missed: Vec<&str> = self.0.iter().filter(|(name, before)| count(name) == *before).map(|(name, _)| *name).collect();
        // A test that fails already need not fail twice.
        if cfg!(debug_assertions) && !std::thread::panicking() {
            assert!(missed.is_empty(), "no fault reached {missed:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reached_counts_and_what_was_not_is_told() {
        {
            let _reached = must_reach(&["base.test_a"]);
            reached("base.test_a");
        }
        assert_eq!((count("base.test_a"), count("base.test_b")), (1, 0));
        let missed = std::panic::catch_unwind(|| drop(must_reach(&["base.test_a", "base.test_b"])));
        let why = *missed.expect_err("nothing reached them").downcast::<String>().expect("a message");
        assert!(why.contains("base.test_a") && why.contains("base.test_b"), "{why}");
    }
}
