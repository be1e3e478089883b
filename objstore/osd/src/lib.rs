//! One OSD: a log of shards on one device. It talks to no other OSD and knows no files and no erasure code.
//!
//! What it is: [`log`], a generic log of records (also the metadata write-ahead log), and [`service`], the shard protocol
//! over one: index, space, deletes, checkpoints, cleaning.
//! What always holds: see the two modules.
//! What it leaves out: scrub, and the lock of a folder against a second process.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod log;
pub mod service;

pub use service::{Config, FormatOptions, Inspect, Metrics, OpenError, Osd, Start, dump, inspect};
