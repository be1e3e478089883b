//! One OSD: a log of shards on one device. It talks to no other OSD and knows no files and no erasure code.
//!
//! What it is: [`log`], a generic log of records (also the metadata write-ahead log).
//! What it leaves out: compaction, and the lock of a folder against a second process.

pub mod log;
