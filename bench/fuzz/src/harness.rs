//! What the benchmark reads: fio's reports and jobs, results.

use holdfast_bench_harness::fuzzing;
use holdfast_objstore_base::fuzzing::Target;

pub const TARGETS: &[Target] = &[
    Target { name: "fio_report", samples: reports, body: report },
    Target { name: "fio_job", samples: fuzzing::jobs, body: fuzzing::job },
    Target { name: "bench_results", samples: fuzzing::results, body: fuzzing::result },
];

fn reports() -> Vec<Vec<u8>> {
    let report = r#"warning
{"global options":{"direct":"1","ioengine":"libaio","iodepth":"4"},"jobs":[{"jobname":"randwrite-qd1","error":0,"job_runtime":1000,
"usr_cpu":1.5,"sys_cpu":2.5,"job options":{"rw":"randwrite","fdatasync":"1","numjobs":"2"},
"read":{"total_ios":0,"iops":0.0,"bw_bytes":0},"write":{"total_ios":500,"iops":500.25,"bw_bytes":2048000}}]}"#;
    vec![report.as_bytes().to_vec()]
}

fn report(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        fuzzing::report(text);
    }
}
