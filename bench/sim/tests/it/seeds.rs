//! Many seeds, every promise. `HOLDFAST_SEED=n` runs one, `HOLDFAST_SEEDS=n` another number of them, `HOLDFAST_SIM_SEEDS=n` too
//! (and of nothing else).

use holdfast_bench_sim::coverage::Coverage;
use holdfast_bench_sim::{Plan, run};
use holdfast_objstore_base::failpoint::must_reach;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_promise_holds_on_500_seeds() {
    let (from, count) = match number("HOLDFAST_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("HOLDFAST_SIM_SEEDS").or(number("HOLDFAST_SEEDS")).unwrap_or(500)),
    };
    // Which error paths so many runs take; see docs/FAILPOINTS.md.
    let _reached = (count >= 500).then(|| must_reach(&["repair.failed", "wal.set_refused", "wal.fill_failed", "vfs.writeback_dropped"]));
    let (next, failures, coverage) = (AtomicU64::new(from), Mutex::new(Vec::new()), Mutex::new(Coverage::default()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count || failures.lock().len() >= 5 {
                        return;
                    }
                    match run(&Plan::draw(seed), None, false) {
                        Ok(report) => coverage.lock().join(&report.coverage),
                        Err(failure) => failures.lock().push(failure.to_string()),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let coverage = coverage.into_inner();
    println!("{}", coverage.table());
    let (answered, unheard) = (coverage.of("calls answered"), coverage.of("calls cut off"));
    assert!(count < 100 || (answered > 30 * count && unheard > count / 4), "{answered} calls answered, {unheard} cut off: too few to tell");
    let lacking = coverage.lacking();
    assert!(count < 500 || lacking.is_empty(), "never happened in {count} seeds: {lacking:?}");
}
