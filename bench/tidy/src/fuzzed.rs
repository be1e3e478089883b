//! Every decoder has a fuzz target: who writes one adds it here and to `bench/fuzz`.

use crate::tree::{files, read, root};

/// A file that decodes bytes or text from outside, and the targets that reach it.
const FUZZED: &[(&str, &[&str])] = &[
    ("objstore/base/src/units.rs", &["sizes"]),
    ("objstore/base/src/real/mounts.rs", &["mountinfo"]),
    ("objstore/base/src/real/probe.rs", &["device_marks"]),
    ("objstore/base/src/real/volume/header.rs", &["volume_header"]),
    ("objstore/base/src/real/volume/directory.rs", &["volume_directory"]),
    ("objstore/osd/src/log/format/root.rs", &["log_root"]),
    ("objstore/osd/src/log/format/segment.rs", &["log_segment_header"]),
    ("objstore/osd/src/log/format/head.rs", &["log_record_head"]),
    ("objstore/osd/src/log/format/checkpoint.rs", &["log_checkpoint_header"]),
    ("objstore/osd/src/service/record.rs", &["osd_record"]),
    ("objstore/osd/src/service/snapshot.rs", &["osd_snapshot"]),
    ("objstore/osd/src/service/superblock.rs", &["osd_superblock"]),
    ("meta/log/src/raft/record.rs", &["wal_record", "wal_tail"]),
    ("meta/log/src/raft/layout.rs", &["wal_record"]),
    ("meta/log/src/raft/mirror/set.rs", &["wal_mirrors"]),
    ("meta/server/src/image/format.rs", &["meta_image"]),
    ("meta/server/src/image/root.rs", &["meta_snapshot_root"]),
    ("meta/core/src/record.rs", &["state_record"]),
    ("meta/core/src/keys.rs", &["state_damaged"]),
    ("meta/core/src/dump.rs", &["state_row"]),
    ("meta/server/src/state/machine.rs", &["meta_request", "meta_reply", "meta_apply"]),
    ("meta/server/src/superblock.rs", &["meta_superblock"]),
    ("fs/fuse/src/decode/mod.rs", &["fuse_request"]),
    ("fs/fuse/src/decode/attrs.rs", &["fuse_request"]),
    ("fs/fuse/src/decode/files.rs", &["fuse_request"]),
    ("fs/fuse/src/decode/names.rs", &["fuse_request"]),
    ("fs/fuse/src/dev/init.rs", &["fuse_init"]),
    ("fs/fuse/src/dirbuf.rs", &["fuse_dirents"]),
    ("fs/fuse/src/options.rs", &["mount_options"]),
    ("objstore/proto/src/code.rs", &["codes"]),
    ("objstore/s3/src/guard.rs", &["s3_chunk_framing"]),
    ("fs/cli/src/layout.rs", &["cluster_file"]),
    ("fs/cli/src/credentials.rs", &["credentials"]),
    ("fs/cli/src/roles/upkeep.rs", &["scrub_state"]),
    ("bench/harness/src/fio.rs", &["fio_report"]),
    ("fs/cli/src/commands/dump.rs", &["scrub_state"]),
    ("bench/harness/src/job.rs", &["fio_job"]),
    ("bench/harness/src/results.rs", &["fio_job"]),
];

/// Names by which functions that decode begin, and what they call.
const DECODING: [&str; 6] = ["decode", "parse", "unpack", "peek", "follow", "from_str"];

/// Whether this line begins a function that decodes, by its name, or lets a library decode.
fn decodes(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    if ["serde_json::from_slice", "postcard::from_bytes", "postcard::take_from_bytes"].iter().any(|call| code.contains(call)) {
        return true;
    }
    let Some((_, name)) = code.split_once("fn ") else { return false };
    DECODING.iter().any(|d| name.starts_with(d))
}

#[test]
fn every_decoder_has_a_fuzz_target() {
    for folder in ["objstore", "meta", "fs", "bench/harness"] {
        for path in files(folder, ".rs") {
            let path = path.to_string_lossy().into_owned();
            let elsewhere = path.contains("/tests") || path.contains("fuzzing") || path.ends_with("generated.rs");
            // What decodes shards is erasure coding: it has an oracle instead.
            let codes = path.starts_with("objstore/ec/") || path.starts_with("objstore/client/");
            let text = read(&path);
            let shipped = text.find("#[cfg(test)]\nmod tests").map_or(&text[..], |at| &text[..at]);
            if !elsewhere && !codes && shipped.lines().any(decodes) {
                assert!(
                    FUZZED.iter().any(|f| f.0 == path),
                    "{path} decodes: give it a target in bench/fuzz and a line in bench/tidy/src/fuzzed.rs"
                );
            }
        }
    }
}

#[test]
fn every_target_that_is_named_is_there() {
    for (path, targets) in FUZZED {
        assert!(root().join(path).exists(), "{path} is not there");
        for target in *targets {
            assert!(root().join(format!("fuzz/fuzz_targets/{target}.rs")).exists(), "there is no target {target}");
        }
    }
}
