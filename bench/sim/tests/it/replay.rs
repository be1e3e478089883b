//! The same seed, the same bytes.

use holdfast_bench_sim::{Plan, run};

#[test]
fn the_same_seed_gives_the_same_trace_and_the_same_bytes() {
    for seed in 1000..1012 {
        let plan = Plan::draw(seed);
        let [a, b] = [run(&plan, None, true), run(&plan, None, true)].map(|r| r.unwrap_or_else(|f| panic!("{f}")));
        let differ = a.lines.iter().zip(&b.lines).find(|(a, b)| a != b);
        assert!(differ.is_none(), "seed {seed} goes two ways: {differ:?}");
        assert_eq!((a.trace, a.image, a.ms), (b.trace, b.image, b.ms), "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_trace() {
    let digest = |seed| run(&Plan::draw(seed), None, false).unwrap_or_else(|f| panic!("{f}")).trace.0;
    assert_ne!(digest(1), digest(2));
}
