//! Reports of fio 3.33, captured (latency tables cut out).

use holdfast_bench_harness::Durability;
use holdfast_bench_harness::for_tests::{Job, embedded, parse};

fn job(name: &str) -> Job {
    embedded().into_iter().find(|j| j.name == name).unwrap()
}

#[test]
fn a_read_at_depth_is_read_from_its_own_side() {
    let run = parse(include_str!("samples/randread-qd32.json"), &job("randread-qd32")).unwrap();
    assert_eq!((run.rate.round(), run.ops), (65900.0, 65966));
    // 6.4 % user and 36.1 % system of one second.
    assert_eq!(run.cpu_us.round(), 425_000.0);
    let c = run.conditions;
    assert_eq!((c.depth, c.engine.as_str(), c.durability), (32, "libaio", Durability::None));
}

#[test]
fn sequential_rates_are_mebibytes() {
    let run = parse(include_str!("samples/seq-write.json"), &job("seq-write")).unwrap();
    assert_eq!((run.rate * 1048576.0).round(), 2447026509.0);
    assert_eq!((run.conditions.depth, run.conditions.durability), (1, Durability::DeviceWritten));
}

#[test]
fn many_writers_are_one_group_and_the_prepare_step_is_not_among_them() {
    let report = include_str!("samples/randwrite-qd32-fdatasync.json");
    let run = parse(report, &job("randwrite-qd32-fdatasync")).unwrap();
    assert_eq!((run.rate.round(), run.ops), (62306.0, 62368));
    // Shares are of 32 seconds.
    assert_eq!(run.cpu_us.round(), 1_411_000.0);
    let c = run.conditions;
    assert_eq!((c.depth, c.engine.as_str(), c.durability), (32, "psync", Durability::Fdatasync));
}

#[test]
fn warnings_before_the_report_are_skipped() {
    let report = format!("note: both iodepth >= 1 and {{synchronous}}\n{}", include_str!("samples/seq-write.json"));
    assert!(parse(&report, &job("seq-write")).is_ok());
}

#[test]
fn a_failed_or_foreign_or_cut_report_is_an_error() {
    let report = include_str!("samples/seq-write.json");
    let failed = report.replace("\"error\": 0", "\"error\": 28");
    let error = format!("{:#}", parse(&failed, &job("seq-write")).unwrap_err());
    assert!(error.contains("No space left"), "{error}");
    assert!(parse(report, &job("seq-read")).is_err());
    assert!(parse(&report.replace("\"total_ios\": 2336", "\"total_ios\": 0"), &job("seq-write")).is_err());
    for cut in (0..report.len()).step_by(50).filter(|&i| report.is_char_boundary(i)) {
        assert!(parse(&report[..cut], &job("seq-write")).is_err());
    }
}
