//! Who may depend on whom. A new arrow is a design change: it goes into docs/ARCHITECTURE.md and here in one commit.

use crate::tree::read;

/// Crate folder, and the crates of ours it may name under `[dependencies]`.
const ARROWS: &[(&str, &[&str])] = &[
    ("objstore/base", &[]),
    ("objstore/proto", &["objstore-base"]),
    ("objstore/ec", &["objstore-base", "objstore-proto"]),
    ("objstore/osd", &["objstore-base", "objstore-proto"]),
    ("objstore/client", &["objstore-base", "objstore-proto", "objstore-ec"]),
    ("objstore/repair", &["objstore-base", "objstore-proto", "objstore-client"]),
    ("objstore/s3", &["objstore-base", "objstore-proto", "objstore-client", "meta-client"]),
    ("meta/core", &["objstore-base", "objstore-proto", "objstore-ec"]),
    ("meta/log", &["objstore-base", "objstore-osd"]),
    ("meta/client", &["objstore-base", "objstore-proto", "meta-core"]),
    ("meta/server", &["objstore-base", "objstore-proto", "meta-core", "meta-log", "meta-client"]),
    ("fs/vfs", &["objstore-base", "objstore-proto", "objstore-client", "meta-client"]),
    ("fs/fuse", &["objstore-base", "objstore-proto", "fs-vfs"]),
    ("bench/harness", &["objstore-base", "fs-fuse"]),
    (
        "bench/sim",
        &[
            "objstore-base",
            "objstore-proto",
            "objstore-osd",
            "objstore-client",
            "objstore-repair",
            "meta-log",
            "meta-client",
            "meta-server",
            "fs-vfs",
        ],
    ),
    (
        "bench/fuzz",
        &[
            "objstore-base",
            "objstore-proto",
            "objstore-osd",
            "objstore-repair",
            "objstore-s3",
            "meta-core",
            "meta-log",
            "meta-server",
            "fs-fuse",
            "bench-harness",
        ],
    ),
    ("bench/tidy", &[]),
];

/// What only some crates may name: runtimes, bindings, HTTP, the control protocol.
const ONLY: [(&str, &[&str]); 10] = [
    ("fuser", &["fs/fuse"]),
    ("hyper", &["objstore/s3"]),
    ("s3s", &["objstore/s3"]),
    ("tonic", &["fs/cli"]),
    ("clap", &["fs/cli"]),
    ("openraft", &["meta/log"]),
    ("redb", &["meta/server"]),
    ("io-uring", &["objstore/base"]),
    ("reed-solomon-simd", &["objstore/ec"]),
    ("anyhow", &["fs/cli", "bench/harness", "bench/fuzz"]),
];

/// Names under `[dependencies]` of a manifest (not the dev-dependencies).
fn dependencies(folder: &str) -> Vec<String> {
    let text = read(format!("{folder}/Cargo.toml"));
    let mut inside = false;
    let mut out = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            out.push(name.trim().to_string());
        }
    }
    out
}

#[test]
fn arrows_only_point_down() {
    for (folder, allowed) in ARROWS.iter().copied() {
        for d in dependencies(folder) {
            if let Some(ours) = d.strip_prefix("holdfast-") {
                assert!(
                    allowed.contains(&ours),
                    "{folder} depends on {d}: a new arrow needs a change of docs/ARCHITECTURE.md and of bench/tidy"
                );
            }
        }
    }
}

#[test]
fn pure_crates_have_no_runtime() {
    for folder in ["objstore/ec", "meta/core"] {
        for d in dependencies(folder) {
            assert!(!["tokio", "futures", "io-uring", "libc"].contains(&d.as_str()), "{folder} is pure and names {d}");
        }
    }
}

#[test]
fn each_library_has_its_home() {
    let all = ARROWS.iter().map(|a| a.0).chain(["fs/cli"]);
    for folder in all {
        for d in dependencies(folder) {
            if let Some((_, homes)) = ONLY.iter().find(|o| o.0 == d) {
                assert!(homes.contains(&folder), "{folder} names {d}, whose home is {homes:?}");
            }
        }
    }
}
