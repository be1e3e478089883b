//! What the service says of itself.

use super::work::is_system_name;
use super::{Service, SnapshotStatus};
use holdfast_meta_log::{Devices, Error as LogError, Mirror};
use holdfast_objstore_proto::meta::{Bucket, MetaResult};
use holdfast_objstore_proto::shard::Stamp;
use holdfast_objstore_proto::{SessionEpoch, SessionId, StripeId, StripeRange};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    pub id: SessionId,
    pub epoch: SessionEpoch,
    pub client: String,
    /// Whether it may be granted anything.
    pub caching: bool,
    /// Inodes and directories it holds.
    pub grants: usize,
    /// Inodes it has open.
    pub open: usize,
}

#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Why the service can no longer answer, if so.
    pub failed: Option<String>,
    /// Index of the last command applied.
    pub applied: u64,
    pub sessions: Vec<SessionStatus>,
    /// Totals of the state: inodes, stripes, bytes.
    pub stats: holdfast_meta_core::read::Stats,
    /// Stripes that wait for a shard that was missing when they were published, counted up to [`MISSING_SHOWN_MAX`].
    pub missing: usize,
    /// All buckets by name, and whether anything lies in them.
    pub buckets: Vec<(Bucket, bool)>,
    /// Grants held by all sessions.
    pub grants: usize,
    /// Orphans waiting to be looked at (those that are open wait for their last close and are not counted).
    pub orphans_queued: usize,
    /// Bytes of changes in memory that are not in the durable state yet (they are in the log).
    pub overlay_bytes: usize,
    /// Bytes of the log that are kept for small writes no pack has yet.
    pub held_bytes: u64,
    pub commands: u64,
    pub reads: u64,
    pub recalls: u64,
    pub evictions: u64,
    pub checkpoints: u64,
    /// What each device that may hold a copy of the log is doing.
    pub mirrors: Vec<Mirror>,
    /// Of snapshots in the pool; `None` where none are made.
    pub snapshot: Option<SnapshotStatus>,
    /// What the start could not make sure of.
    pub notes: Vec<String>,
}

/// Counting goes no further: `status` must not cost more as more is missing.
pub const MISSING_SHOWN_MAX: usize = 1000;

impl Service {
    pub fn status(&self) -> Status {
        let core = &self.core;
        let sessions = core.sessions.lock().values().cloned().collect::<Vec<_>>();
        let rows = core.grants.lock();
        let sessions = sessions
            .iter()
            .map(|s| SessionStatus {
                id: s.id,
                epoch: s.epoch,
                client: s.client.clone(),
                caching: s.caching,
                grants: rows.held_by(s.id),
                open: core.opens.open_by(s.id),
            })
            .collect();
        let grants = rows.held();
        drop(rows);
        let stats = core.state.view(|kv| holdfast_meta_core::read::stats(kv)).ok().and_then(Result::ok);
        let missing = core.state.view(|kv| holdfast_meta_core::read::missing(kv, None, MISSING_SHOWN_MAX)).ok().and_then(Result::ok);
        let buckets = core.state.view(|kv| {
            let mut buckets = Vec::new();
            for b in holdfast_meta_core::read::buckets(kv)?.unwrap_or_default().into_iter().filter(|b| !is_system_name(&b.name)) {
                let used = holdfast_meta_core::read::getattr(kv, b.root)?.is_ok_and(|root| root.size > 0);
                buckets.push((b, used));
            }
            Ok(buckets)
        });
        Status {
            buckets: buckets.unwrap_or_default(),
            failed: core.state.check().err().map(|e| e.0).or_else(|| match core.log.may_read() {
                Err(LogError::Failed(why)) => Some(why),
                _ => None,
            }),
            applied: core.log.applied(),
            sessions,
            grants,
            stats: stats.unwrap_or_default(),
            missing: missing.map_or(0, |m| m.len()),
            orphans_queued: core.work.orphans.queued(),
            overlay_bytes: core.state.overlay_bytes(),
            held_bytes: core.state.staged_now().held_bytes,
            commands: core.metrics.commands.get(),
            reads: core.metrics.reads.get(),
            recalls: core.metrics.recalls.get(),
            evictions: core.metrics.evictions.get(),
            checkpoints: core.metrics.checkpoints.get(),
            mirrors: core.log.mirrors(),
            snapshot: core.snapshot_status(),
            notes: core.log.notes().into_iter().chain(core.notes.lock().clone()).collect(),
        }
    }

    /// Stripes and inodes that nobody can reach any more and that are not deleted yet; what somebody has open does not count.
    pub fn returning(&self) -> u64 {
        let retired = self.core.state.view(|kv| holdfast_meta_core::read::stats(kv)).ok().and_then(Result::ok).map_or(0, |s| s.retired);
        retired + self.core.work.orphans.queued() as u64
    }

    /// Data bytes that are dead in stripes which are partly alive, and that rewriting is about to give back.
    pub fn worn_bytes(&self) -> u64 {
        self.core.worn_bytes()
    }

    /// Bytes that rewriting has copied since the start.
    pub fn rewritten_bytes(&self) -> u64 {
        self.core.metrics.worn_bytes.get()
    }

    /// Has the copies of the log follow the devices there are now; answers folders that it still relies on although they were not to be kept.
    pub async fn log_follows(&self, now: Devices) -> Vec<PathBuf> {
        self.core.log.devices(now).await
    }

    /// Ranges of stripe ids that no session may publish any more, and the stamp of this answer.
    pub fn closed_ranges(&self) -> MetaResult<(Stamp, Vec<StripeRange>)> {
        // Taken first, so that it claims no more than was looked at.
        let index = self.core.log.applied();
        let (incarnation, ranges) = self.core.view(|kv| holdfast_meta_core::read::closed_ranges(kv))?;
        Ok((Stamp { incarnation, index }, ranges))
    }

    /// The stripes of a range that metadata knows: referred to, or waiting for their deletion.
    pub fn held_in(&self, range: StripeRange) -> MetaResult<Vec<StripeId>> {
        self.core.view(|kv| holdfast_meta_core::read::held_in(kv, range))
    }

    /// Completes when ranges were closed since the last call.
    pub async fn ranges_closed(&self) {
        self.core.work.ranges.notified().await;
    }

    /// Whether the device of the metadata has no room left for it to grow.
    pub fn tight(&self) -> bool {
        self.core.tight()
    }

    /// Asks for them to be deleted now: space is short.
    pub fn hurry_returning(&self) {
        self.core.work.hurry();
    }

    /// Every metric, for a registry.
    pub fn metrics(&self) -> &crate::Metrics {
        &self.core.metrics
    }
}
