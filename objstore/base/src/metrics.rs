//! The counters of the disk doors, with their names, units and meaning in one place.
//!
//! What always holds: clones share their counts. One set per disk object, never per process.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counts of one disk, from its making.
#[derive(Clone, Default, Debug)]
pub struct Metrics {
    pub(crate) writes: Counter,
    pub(crate) write_bytes: Counter,
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_waiters: Counter,
    pub(crate) ring_ops: Counter,
    pub(crate) blocking_ops: Counter,
    pub(crate) errors: Counter,
}

impl Metrics {
    /// Makes the counters visible as `disk_*_total`.
    pub fn register(&self, registry: &mut Registry) {
        let sub = registry.sub_registry_with_prefix("disk");
        sub.register("writes", "Write calls asked for", self.writes.clone());
        sub.register("write_bytes", "Bytes of the write calls asked for", self.write_bytes.clone());
        sub.register("reads", "Read calls asked for", self.reads.clone());
        sub.register("read_bytes", "Bytes of the read calls asked for", self.read_bytes.clone());
        sub.register("flushes", "Flushes sent to a device (fdatasync and fsync)", self.flushes.clone());
        sub.register("flush_waiters", "Callers whose flush was served, by their own or a shared flush", self.flush_waiters.clone());
        sub.register("ring_ops", "System calls made through io_uring", self.ring_ops.clone());
        sub.register("blocking_ops", "System calls made in place", self.blocking_ops.clone());
        sub.register("errors", "Reads, writes and flushes that failed", self.errors.clone());
    }

    /// Write calls asked for.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }
    /// Bytes of the write calls asked for.
    pub fn write_bytes(&self) -> u64 {
        self.write_bytes.get()
    }
    /// Read calls asked for.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }
    /// Bytes of the read calls asked for.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }
    /// Flushes sent to a device.
    pub fn flushes(&self) -> u64 {
        self.flushes.get()
    }
    /// Callers served by a flush.
    pub fn flush_waiters(&self) -> u64 {
        self.flush_waiters.get()
    }
    /// Calls made through a ring.
    pub fn ring_ops(&self) -> u64 {
        self.ring_ops.get()
    }
    /// Calls made in place.
    pub fn blocking_ops(&self) -> u64 {
        self.blocking_ops.get()
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.get()
    }
}
