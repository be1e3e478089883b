//! The counters of the metadata log, with their names, units and meaning in one place.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts of one log since its opening. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Metrics {
    pub(crate) proposals: Counter,
    pub(crate) applied: Counter,
    pub(crate) apply_batches: Counter,
    pub(crate) wal_records: Counter,
    pub(crate) wal_entries: Counter,
    pub(crate) wal_bytes: Counter,
    pub(crate) wal_flush_waits: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) segments_retired: Counter,
    pub(crate) mirror_set_changes: Counter,
    pub(crate) mirrors: Gauge,
    pub(crate) mirrors_rotten: Counter,
    pub(crate) mirror_lag_records: Gauge,
    pub(crate) mirror_lag_bytes: Gauge,
}

impl Metrics {
    /// Makes the counters visible as `meta_log_*_total`.
    pub fn register(&self, registry: &mut Registry) {
        let sub = registry.sub_registry_with_prefix("meta_log");
        sub.register("proposals", "Commands proposed here", self.proposals.clone());
        sub.register("applied", "Commands applied here", self.applied.clone());
        sub.register("apply_batches", "Calls of the state machine to apply commands", self.apply_batches.clone());
        sub.register("wal_records", "Records written to the write-ahead log", self.wal_records.clone());
        sub.register("wal_entries", "Raft entries in those records", self.wal_entries.clone());
        sub.register("wal_bytes", "Bytes those records take, heads and padding included", self.wal_bytes.clone());
        sub.register("wal_flush_waits", "Waits for a flush of the write-ahead log; many may share one flush", self.wal_flush_waits.clone());
        sub.register("checkpoints", "Durable checkpoints of the state", self.checkpoints.clone());
        sub.register("segments_retired", "Segments of the write-ahead log given back", self.segments_retired.clone());
        sub.register("mirror_set_changes", "Sets of copies of the write-ahead log proposed in this run", self.mirror_set_changes.clone());
        sub.register("mirrors", "Copies of the write-ahead log that count, where there are several devices", self.mirrors.clone());
        sub.register("mirrors_rotten", "Copies of the write-ahead log that the start found not whole", self.mirrors_rotten.clone());
        sub.register("mirror_lag_records", "Records that the copy furthest behind lacks", self.mirror_lag_records.clone());
        sub.register("mirror_lag_bytes", "Bytes on their way to the copy furthest behind", self.mirror_lag_bytes.clone());
    }

    /// Commands proposed here.
    pub fn proposals(&self) -> u64 {
        self.proposals.get()
    }
    /// Commands applied here.
    pub fn applied(&self) -> u64 {
        self.applied.get()
    }
    /// Calls of the state machine to apply commands.
    pub fn apply_batches(&self) -> u64 {
        self.apply_batches.get()
    }
    /// Copies that the start found not whole.
    pub fn mirrors_rotten(&self) -> u64 {
        self.mirrors_rotten.get()
    }
    /// Records written to the write-ahead log.
    pub fn wal_records(&self) -> u64 {
        self.wal_records.get()
    }
    /// Raft entries in those records.
    pub fn wal_entries(&self) -> u64 {
        self.wal_entries.get()
    }
    /// Bytes those records take.
    pub fn wal_bytes(&self) -> u64 {
        self.wal_bytes.get()
    }
    /// Waits for a flush; the disk's own counters tell how many flushes served them.
    pub fn wal_flush_waits(&self) -> u64 {
        self.wal_flush_waits.get()
    }
    /// Durable checkpoints of the state.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints.get()
    }
    /// Sets of copies proposed in this run.
    pub fn mirror_set_changes(&self) -> u64 {
        self.mirror_set_changes.get()
    }
    /// Segments given back.
    pub fn segments_retired(&self) -> u64 {
        self.segments_retired.get()
    }
}
