//! What the benchmark parses, for fuzzing.

use crate::job::{Job, embedded};
use crate::results::Results;
use crate::{draw, fio};

/// One of fio's reports, read for built-in jobs that it may be of.
pub fn report(text: &str) {
    for job in embedded() {
        let _ = fio::parse(text, &job);
    }
}

/// The built-in job files.
pub fn jobs() -> Vec<Vec<u8>> {
    embedded().iter().map(|j| j.sized(1 << 30, 5).into_bytes()).collect()
}

pub fn job(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for name in ["seq-write", "randwrite-qd32-fdatasync"] {
        if let Ok(job) = Job::parse(name, text) {
            let _ = job.sized(1 << 20, 1);
        }
    }
}

pub fn results() -> Vec<Vec<u8>> {
    let results = Results { environment: Default::default(), rows: Vec::new() };
    vec![serde_json::to_vec(&results).expect("results have a JSON form")]
}

/// Results that decode can be drawn.
pub fn result(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = draw::render(text);
    }
}
