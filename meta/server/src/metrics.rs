//! Every metric of the metadata service, with its unit.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Commands answered, with or without an error.
    pub commands: Counter,
    /// Reads answered from committed state.
    pub reads: Counter,
    /// Grants made.
    pub grants: Counter,
    /// Grants held now.
    pub grants_held: Gauge,
    /// Grants taken back from a holder for another session's sake.
    pub recalls: Counter,
    /// Sessions ended against their will.
    pub evictions: Counter,
    /// Folds of the overlay into the durable state.
    pub checkpoints: Counter,
    /// Bytes of overlays folded.
    pub checkpoint_bytes: Counter,
    /// Writes to the state's file that folds made, and their bytes.
    pub checkpoint_writes: Counter,
    pub checkpoint_written_bytes: Counter,
    /// Pauses of folds, and what they came to in µs.
    pub checkpoint_pauses: Counter,
    pub checkpoint_pause_us: Counter,
    /// µs that folds took, pauses among them.
    pub checkpoint_us: Counter,
    /// Bytes the overlays take.
    pub overlay_bytes: Gauge,
    /// Orphans freed.
    pub orphans_reaped: Counter,
    /// Retired stripes deleted and forgotten.
    pub stripes_deleted: Counter,
    /// Inline bytes that wait to be packed.
    pub staged_bytes: Gauge,
    /// Inline bytes that were packed.
    pub drained_bytes: Counter,
    /// Packs committed, of all kinds.
    pub packs_written: Counter,
    /// Those that took the place of packs less than half live.
    pub packs_rewritten: Counter,
    /// Cold small stripes gathered into packs.
    pub stripes_gathered: Counter,
    /// Bytes copied out of worn stripes.
    pub worn_bytes: Counter,
    /// Passes over all maps for worn stripes that came to their end.
    pub worn_passes: Counter,
    /// Attempts to pack that failed and will be made again.
    pub pack_failures: Counter,
    /// Packs of which something to be copied could not be read: it is left to repair.
    pub packs_unreadable: Counter,
    /// Inline bytes written to the log anew, because they could not be packed.
    pub restaged_bytes: Counter,
    /// Snapshots of the state made in the pool.
    pub snapshots: Counter,
    /// Bytes of their images, without what coding adds.
    pub snapshot_bytes: Counter,
    /// Attempts that failed and will be made again.
    pub snapshot_failures: Counter,
    /// Attempts to delete stripes that failed and will be made again.
    pub stripe_delete_failures: Counter,
}

impl Metrics {
    /// Names them all in `registry`; the caller gives it a prefix.
    pub fn register(&self, r: &mut Registry) {
        r.register("commands", "commands answered", self.commands.clone());
        r.register("reads", "reads answered", self.reads.clone());
        r.register("grants", "grants made", self.grants.clone());
        r.register("grants_held", "grants held now", self.grants_held.clone());
        r.register("recalls", "grants recalled", self.recalls.clone());
        r.register("evictions", "sessions evicted", self.evictions.clone());
        r.register("checkpoints", "folds of the overlay into the durable state", self.checkpoints.clone());
        r.register("checkpoint_bytes", "bytes of overlays folded", self.checkpoint_bytes.clone());
        r.register("checkpoint_writes", "writes that folds made", self.checkpoint_writes.clone());
        r.register("checkpoint_written_bytes", "bytes that folds wrote", self.checkpoint_written_bytes.clone());
        r.register("checkpoint_pauses", "pauses of folds", self.checkpoint_pauses.clone());
        r.register("checkpoint_pause_us", "microseconds that folds paused", self.checkpoint_pause_us.clone());
        r.register("checkpoint_us", "microseconds that folds took, pauses among them", self.checkpoint_us.clone());
        r.register("overlay_bytes", "bytes the overlays take", self.overlay_bytes.clone());
        r.register("orphans_reaped", "orphans freed", self.orphans_reaped.clone());
        r.register("stripes_deleted", "retired stripes deleted", self.stripes_deleted.clone());
        r.register("staged_bytes", "inline bytes that wait to be packed", self.staged_bytes.clone());
        r.register("drained_bytes", "inline bytes packed", self.drained_bytes.clone());
        r.register("packs_written", "packs committed", self.packs_written.clone());
        r.register("packs_rewritten", "packs that took the place of packs less than half live", self.packs_rewritten.clone());
        r.register("stripes_gathered", "cold small stripes gathered into packs", self.stripes_gathered.clone());
        r.register("worn_bytes", "bytes copied out of stripes that were mostly dead", self.worn_bytes.clone());
        r.register("worn_passes", "passes over all maps for such stripes", self.worn_passes.clone());
        r.register("pack_failures", "attempts to pack that failed", self.pack_failures.clone());
        r.register("packs_unreadable", "packs that lack what could not be read", self.packs_unreadable.clone());
        r.register("restaged_bytes", "inline bytes written to the log anew", self.restaged_bytes.clone());
        r.register("snapshots", "snapshots of the state made in the pool", self.snapshots.clone());
        r.register("snapshot_bytes", "bytes of those snapshots before coding", self.snapshot_bytes.clone());
        r.register("snapshot_failures", "attempts to make a snapshot that failed", self.snapshot_failures.clone());
        r.register("stripe_delete_failures", "attempts to delete stripes that failed", self.stripe_delete_failures.clone());
    }
}
