//! The same seed, the same bytes.

use holdfast_bench_sim::{Plan, run};

#[test]
fn the_same_seed_gives_the_same_trace_and_the_same_bytes() {
    for seed in 1000..1012 {
        let plan = Plan::draw(seed);
        let runs = [run(&plan, None, false), run(&plan, None, false)].map(|r| r.unwrap_or_else(|f| panic!("{f}")));
        assert_eq!(runs[0], runs[1]);
    }
}

#[test]
fn another_seed_gives_another_trace() {
    let digest = |seed| run(&Plan::draw(seed), None, false).unwrap_or_else(|f| panic!("{f}")).trace.0;
    assert_ne!(digest(1), digest(2));
}
