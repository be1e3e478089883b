//! A log of records on the segment files of one folder: what OSDs keep shards in, and metadata its write-ahead log.
//!
//! What always holds. A record is all there or not there: its head and every block of its payload are checksummed, seeded
//! with where it lies and which life of which log it belongs to. Records are ordered by sequence number, which is the order
//! of their positions. What a crash may take is a suffix of that order, and only what no [`Log::flush`] had covered. A
//! block that holds an answered record is never written again in that life of its segment. A failed write or flush takes
//! the log out of service for good; what it holds stays readable.
//! What it leaves out: what records mean, which of them are alive, and the lock against a second process.
//!
//! The bytes are drawn in docs/formats/log.md.

mod checkpoint;
mod config;
mod detach;
mod dump;
mod error;
mod flush;
pub mod format;
mod open;
mod reader;
mod recover;
mod retire;
mod scan;
mod segment;
mod state;
mod supply;
mod writer;

#[cfg(test)]
mod tests;

pub use checkpoint::Mark;
pub use config::{Blocking, Config, OnCorruption};
pub use dump::{Describe, dump, identity};
pub use error::{Error, Fault, Recovery, Result, Torn};
pub use format::head::{Head, KIND_MAX, META_BYTES_MAX, META_BYTES_ONE_BLOCK, PAYLOAD_BYTES_MAX};
pub use format::{Location, Position};
pub use open::{Recovered, Visitor};
pub use state::{Counters, Log, SegmentInfo, Space};
pub use writer::{Append, Appended, Need};
