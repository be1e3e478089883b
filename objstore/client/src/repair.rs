//! The seam to repair: where reads report the shards they had to go round.
//!
//! What always holds: a report never waits and never fails; whoever takes it bounds its own queue.
//! What it leaves out: repairing. A sink that only counts is the default.

use holdfast_objstore_proto::StripeMeta;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a shard could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShardFault {
    /// Its OSD does not hold it.
    NotFound,
    /// Its bytes are not what was written.
    Corrupt,
    /// Its OSD holds another writing of the stripe.
    OtherDigest,
    /// Its OSD is out of service or not known here.
    Down,
}

impl std::fmt::Display for ShardFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ShardFault::NotFound => "not found",
            ShardFault::Corrupt => "corrupt",
            ShardFault::OtherDigest => "of another writing",
            ShardFault::Down => "out of service",
        })
    }
}

/// Takes reports of shards that need repair. Called on data paths: it must return at once, and drop what its queue cannot take
/// (the next read or scrub reports it again).
pub trait RepairSink: Send + Sync + 'static {
    fn report(&self, stripe: Arc<StripeMeta>, shard: u8, why: ShardFault);
}

/// Counts reports and forgets them.
#[derive(Default, Debug)]
pub struct CountingSink(AtomicU64);

impl CountingSink {
    pub fn reports(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RepairSink for CountingSink {
    fn report(&self, _stripe: Arc<StripeMeta>, _shard: u8, _why: ShardFault) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
