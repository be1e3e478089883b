//! What repair counts: every metric of this crate with its unit.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts since the start; clones share their values.
#[derive(Default, Clone, Debug)]
pub struct Metrics {
    pub stripes: Counter,
    pub bytes: Counter,
    pub reencoded: Counter,
    pub failures: Counter,
    pub swaps_lost: Counter,
    pub dropped_shards: Counter,
    pub garbage_shards: Counter,
    pub scrubbed_shards: Counter,
    pub scrubbed_bytes: Counter,
    pub scrub_faults: Counter,
    pub queued: Gauge,
    pub waiting: Gauge,
    pub lost: Gauge,
}

impl Metrics {
    /// Makes them visible as `repair_*`.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry.sub_registry_with_prefix("repair");
        r.register("stripes", "Stripes put right", self.stripes.clone());
        r.register("bytes", "Data bytes of the stripes put right", self.bytes.clone());
        r.register("reencoded_stripes", "Stripes written again in a wider code", self.reencoded.clone());
        r.register("failures", "Attempts that did not put a stripe right", self.failures.clone());
        r.register("swaps_lost", "Repairs whose stripe changed meanwhile", self.swaps_lost.clone());
        r.register("dropped_shards", "Shards dropped because no record names them where they were", self.dropped_shards.clone());
        r.register("garbage_shards", "Shards met whose stripe nothing refers to", self.garbage_shards.clone());
        r.register("scrubbed_shards", "Shards a scrub looked at", self.scrubbed_shards.clone());
        r.register("scrubbed_bytes", "Bytes a deep scrub verified", self.scrubbed_bytes.clone());
        r.register("scrub_faults", "Shards a scrub found missing or corrupt", self.scrub_faults.clone());
        r.register("queued_stripes", "Stripes that wait for repair", self.queued.clone());
        r.register("waiting_stripes", "Stripes for whose shards there is no OSD now", self.waiting.clone());
        r.register("lost_stripes", "Stripes of which more is gone than their code can replace", self.lost.clone());
    }
}
