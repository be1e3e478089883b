//! What a decoder under test is. Only with the feature `fuzzing`, which no product build has.
//!
//! What always holds: a body takes any bytes; it panics only when the decoder breaks its promise.
//! What it leaves out: where inputs come from (`bench/fuzz` in CI, cargo-fuzz in `fuzz/`).

use crate::real::{parse_mounts, probe, volume};
use crate::units::parse_size;

/// One decoder.
#[derive(Clone, Copy)]
pub struct Target {
    /// Also the name of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Real encodings, to begin from.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Decodes, and holds what comes out against the encoder where there is one.
    pub body: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    Target { name: "sizes", samples: sizes, body: size },
    Target { name: "mountinfo", samples: mountinfos, body: mountinfo },
    Target { name: "device_marks", samples: probe::samples, body: probe::fuzz },
    Target { name: "volume_header", samples: volume::header_samples, body: volume::fuzz_header },
    Target { name: "volume_directory", samples: volume::directory_samples, body: volume::fuzz_directory },
];

fn sizes() -> Vec<Vec<u8>> {
    ["4096", "64K", "1.5GiB", "0.5t", " 12 MiB "].map(|t| t.as_bytes().to_vec()).to_vec()
}

fn size(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(n) = parse_size(text) {
        assert_eq!(parse_size(&n.to_string()).map(|again| again as f64), Ok(n as f64), "a number of bytes is a size");
    }
    if let Some(raw) = crate::dump::unhex(text) {
        assert_eq!(crate::dump::hex(&raw), text.to_ascii_lowercase());
    }
}

fn mountinfos() -> Vec<Vec<u8>> {
    let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - fuse.holdfast holdfast rw,errors=continue\n";
    vec![line.as_bytes().to_vec(), line.repeat(2).into_bytes()]
}

fn mountinfo(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(parse_mounts(&text).len() <= text.lines().count());
}
