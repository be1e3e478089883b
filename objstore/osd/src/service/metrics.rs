//! The counters of an OSD, with their names, units and meaning in one place.

use crate::log;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts of one OSD since its start; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Shards appended.
    pub puts: Counter,
    /// Bytes of their payloads.
    pub put_bytes: Counter,
    /// Reads answered.
    pub gets: Counter,
    /// Bytes they answered.
    pub get_bytes: Counter,
    /// Stripes deleted.
    pub deletes: Counter,
    /// Flush calls.
    pub flushes: Counter,
    /// Checkpoints of the index stored.
    pub checkpoints: Counter,
    /// Pauses in them, in which others had the device.
    pub checkpoint_pauses: Counter,
    /// Segments emptied by cleaning.
    pub segments_cleaned: Counter,
    /// Bytes it copied, with their headers.
    pub cleaned_bytes: Counter,
    /// Bytes it has to move before enough room is free.
    pub debt: Gauge,
    /// Waits of writers for cleaning.
    pub paced: Counter,
    /// Records read at the start.
    pub records_recovered: Counter,
    /// Starts that cut a torn tail off (0 or 1).
    pub torn_tails: Counter,
    /// Faults found at the start.
    pub faults: Counter,
    /// The log's own.
    pub log: log::Counters,
}

impl Metrics {
    /// Makes the counters visible as `osd_*_total`.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry.sub_registry_with_prefix("osd");
        r.register("puts", "Shards appended", self.puts.clone());
        r.register("put_bytes", "Payload bytes of the shards appended", self.put_bytes.clone());
        r.register("gets", "Reads answered", self.gets.clone());
        r.register("get_bytes", "Bytes answered to reads", self.get_bytes.clone());
        r.register("deletes", "Stripes deleted", self.deletes.clone());
        r.register("flush_calls", "Flush calls", self.flushes.clone());
        r.register("checkpoints", "Index checkpoints stored", self.checkpoints.clone());
        r.register("checkpoint_pauses", "Pauses of index checkpoints", self.checkpoint_pauses.clone());
        r.register("segments_cleaned", "Segments emptied by cleaning", self.segments_cleaned.clone());
        r.register("cleaned_bytes", "Bytes copied by cleaning", self.cleaned_bytes.clone());
        r.register("debt_bytes", "Bytes that cleaning has to move before enough room is free", self.debt.clone());
        r.register("paced", "Waits of writers for cleaning", self.paced.clone());
        r.register("records_recovered", "Records read at the start", self.records_recovered.clone());
        r.register("torn_tails", "Starts that cut off a torn tail", self.torn_tails.clone());
        r.register("faults", "Faults found in the log at the start", self.faults.clone());
        r.register("records", "Records appended", self.log.appends.clone());
        r.register("log_flushes", "Flushes of the log that had something to flush", self.log.flushes.clone());
        r.register("segments_recycled", "Segments put into service again", self.log.segments_recycled.clone());
        r.register("segments_created", "Segment files made", self.log.segments_created.clone());
        r.register("crc_failures", "Blocks and heads that were not what was written", self.log.crc_failures.clone());
        r.register("io_errors", "Reads the device failed", self.log.read_errors.clone());
    }
}
