//! The tests of the tests: each planted bug is found, and this is how many seeds it took.

use holdfast_bench_sim::{Bug, Plan, run};

/// The first of `seeds_max` seeds that finds the bug breaks one of these promises.
fn found(bug: Bug, seeds_max: u64, promises: &[&str]) {
    for seed in 0..seeds_max {
        if let Err(failure) = run(&Plan::draw(seed), Some(bug), false) {
            assert!(promises.contains(&failure.promise), "{bug:?} was found as something else: {failure}");
            println!("{bug:?} took {} seeds: {} ({})", seed + 1, failure.promise, failure.why);
            return;
        }
    }
    panic!("{bug:?} was not found by {seeds_max} seeds");
}

#[test]
fn an_ack_before_the_flush_is_found() {
    found(Bug::AckBeforeFlush, 40, &["namespace", "durability"]);
}
