//! Stripes over many OSDs: fan-out, quorum, hedging, decoding, deletion, behind one trait.
//!
//! What always holds: a stripe is immutable once written; a read returns verified bytes or an error, never wrong bytes.
//! What it leaves out: names, inodes, when to publish. Metadata decides what is reachable.

mod cluster;
pub mod conformance;
mod down;
pub mod fake;
mod metrics;
pub mod objects;
mod repair;
mod returning;
mod upkeep;
mod watched;

pub use cluster::{Cluster, Config, write_quorum};
pub use down::DownOsd;
pub use fake::Fake;
pub use metrics::Metrics;
pub use objects::*;
pub use repair::{CountingSink, RepairSink, ShardFault};
pub use returning::Returning;
pub use upkeep::{Examined, Rebuild, Standing, Upkeep};
pub use watched::Watched;
