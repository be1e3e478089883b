//! Every decoder of the product as a fuzz target.
//!
//! What always holds: the same bodies run here, briefly and by seed (`tests/it`), and at length under cargo-fuzz (`fuzz/`).
//! A target stands once in the table; a test compares it with the files of `fuzz/fuzz_targets`.
//! What it leaves out: parsers that are not ours (HTTP, XML and signatures are s3s's, protobuf is prost's).

mod cli;
mod harness;
pub mod mutate;

use holdfast_objstore_base::fuzzing::Target;

/// All targets, in the order of the crates.
pub fn targets() -> Vec<Target> {
    let crates: [&[Target]; 10] = [
        holdfast_objstore_base::fuzzing::TARGETS,
        holdfast_objstore_proto::fuzzing::TARGETS,
        holdfast_objstore_osd::fuzzing::TARGETS,
        holdfast_meta_log::raft::fuzzing::TARGETS,
        holdfast_meta_core::fuzzing::TARGETS,
        holdfast_meta_server::fuzzing::TARGETS,
        holdfast_fs_fuse::fuzzing::TARGETS,
        holdfast_objstore_s3::fuzzing::TARGETS,
        harness::TARGETS,
        cli::TARGETS,
    ];
    crates.concat()
}

/// Runs the body of a target; for cargo-fuzz.
pub fn run(name: &str, bytes: &[u8]) {
    let target = targets().into_iter().find(|t| t.name == name).expect("the table has the targets of fuzz/");
    (target.body)(bytes);
}
