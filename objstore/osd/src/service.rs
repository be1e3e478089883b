//! `Osd`: the shard protocol over one log.
//!
//! What always holds. A shard that was answered and flushed is there after any crash until it is deleted; one whose
//! deletion was flushed never comes back. Nothing is answered whose checksums, key and digest were not verified. The index
//! is in memory, about 45 bytes a shard, rebuilt from the newest checkpoint and the records behind it.
//! Segments that are partly dead are cleaned ([`clean`]), in the background while there is room and before a put is refused.
//! What it leaves out: scrub, and the folder's lock.

mod clean;
mod config;
mod delete;
mod drop;
mod dump;
mod fence;
mod get;
mod housekeeping;
mod index;
mod inspect;
mod metrics;
mod open;
mod osd;
mod pressure;
mod put;
pub mod record;
mod replay;
pub(crate) mod snapshot;
pub mod superblock;

#[cfg(test)]
mod tests;

pub use config::{Config, FormatOptions};
pub use dump::dump;
pub use inspect::{Inspect, inspect};
pub use metrics::Metrics;
pub use open::{OpenError, Start};
pub use osd::Osd;
