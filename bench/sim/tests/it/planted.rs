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
fn an_ack_before_the_logs_flush_is_found() {
    found(Bug::AckBeforeFlush, 40, &["namespace", "durability", "log"]);
}

#[test]
fn an_ack_before_an_osds_flush_is_found() {
    found(Bug::ShardAckBeforeFlush, 60, &["durability", "right bytes"]);
}

#[test]
fn a_purge_before_the_checkpoint_is_stable_is_found() {
    found(Bug::PurgeBeforeCheckpoint, 60, &["namespace", "durability", "log"]);
}

#[test]
fn a_quorum_that_is_off_by_one_is_found() {
    // It answers for shards that nobody took, fenced ones too.
    found(Bug::QuorumOffByOne, 100, &["durability", "atomicity", "fences"]);
}

#[test]
fn a_stale_record_that_is_accepted_is_found() {
    found(Bug::StaleRecord, 20, &["right bytes"]);
}

#[test]
fn a_delete_that_is_not_done_is_found() {
    found(Bug::LostDelete, 10, &["space"]);
}

#[test]
fn a_stale_mirror_that_is_believed_is_found() {
    found(Bug::StaleMirror, 200, &["log", "durability", "namespace"]);
}

#[test]
fn a_fence_that_is_missing_is_found() {
    found(Bug::MissingFence, 100, &["fences", "space"]);
}
