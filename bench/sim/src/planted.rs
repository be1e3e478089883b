//! Bugs put in on purpose, each at a seam: the checkers must find them, or they are not to be believed.
//!
//! What always holds: nothing of this is in the product; a bug is a wrapper round one of its doors.

mod disk;
mod mirror;
mod shards;

use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_proto::shard::ShardService;
use std::sync::Arc;

/// A bug to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The metadata log answers before its flush.
    AckBeforeFlush,
    /// OSDs answer before their flush.
    ShardAckBeforeFlush,
    /// The log is purged up to a checkpoint that is not stable yet.
    PurgeBeforeCheckpoint,
    /// A stripe is acknowledged with one shard fewer than the quorum.
    QuorumOffByOne,
    /// A former record passes for the one that should lie there.
    StaleRecord,
    /// Deletes are acknowledged and not done.
    LostDelete,
    /// A start takes the word of any one device for it that its copy of the log counts.
    StaleMirror,
    /// OSDs say that ranges of ended sessions are fenced, and still take what comes.
    MissingFence,
}

impl Bug {
    pub const ALL: [(&'static str, Bug); 8] = [
        ("ack-before-flush", Bug::AckBeforeFlush),
        ("shard-ack-before-flush", Bug::ShardAckBeforeFlush),
        ("purge-before-checkpoint", Bug::PurgeBeforeCheckpoint),
        ("quorum-off-by-one", Bug::QuorumOffByOne),
        ("stale-record", Bug::StaleRecord),
        ("lost-delete", Bug::LostDelete),
        ("stale-mirror", Bug::StaleMirror),
        ("missing-fence", Bug::MissingFence),
    ];
}

/// The door to devices, with a bug in it.
pub fn disk(disk: Arc<dyn Disk>, bug: Option<Bug>) -> Arc<dyn Disk> {
    match bug {
        Some(bug @ (Bug::AckBeforeFlush | Bug::PurgeBeforeCheckpoint)) => Arc::new(disk::Unflushed { inner: disk, bug }),
        Some(Bug::StaleMirror) => Arc::new(mirror::Believing { inner: disk }),
        _ => disk,
    }
}

/// An OSD, with a bug in it.
pub fn shards(service: Arc<dyn ShardService>, bug: Option<Bug>) -> Arc<dyn ShardService> {
    match bug {
        Some(bug @ (Bug::ShardAckBeforeFlush | Bug::QuorumOffByOne | Bug::StaleRecord | Bug::LostDelete | Bug::MissingFence)) => {
            Arc::new(shards::Shards::new(service, bug))
        }
        _ => service,
    }
}
