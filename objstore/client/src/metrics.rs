//! What the cluster counts: every metric of this crate, with its unit, in one place.
//!
//! What always holds: counters only grow; clones share their values. One set per [`crate::Cluster`], never per process.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $name:ident,)*) => {
        /// Counts of one cluster client since it was made.
        #[derive(Clone, Default, Debug)]
        pub struct Metrics {
            $(pub(crate) $name: Counter,)*
        }

        impl Metrics {
            /// Makes the counters visible as `objects_*_total`.
            pub fn register(&self, registry: &mut Registry) {
                let sub = registry.sub_registry_with_prefix("objects");
                $(sub.register(stringify!($name), concat!($($help),+).trim(), self.$name.clone());)*
            }
            $(
                $(#[doc = $help])+
                pub fn $name(&self) -> u64 {
                    self.$name.get()
                }
            )*
        }
    };
}

metrics! {
    /// Stripes written to their quorum
    writes,
    /// Data bytes of those stripes
    write_bytes,
    /// Shards sent to OSDs
    puts,
    /// Bytes of parity computed
    parity_bytes,
    /// Data bytes copied to make them contiguous, aligned or padded
    copied_bytes,
    /// Shards sent to a spare OSD because their first home refused them
    replaced_puts,
    /// Writes begun anew, narrower or elsewhere, because a round stayed below its quorum
    write_rounds,
    /// Writes answered before all shards were there
    write_hedges,
    /// Shards not acknowledged when their write or flush was answered
    missing_shards,
    /// Missing shards that arrived before the flush of their stripe after all
    late_shards,
    /// Flushes asked for
    flushes,
    /// Flush domains flushed for them
    domain_flushes,
    /// Flush calls to OSDs for them
    osd_flushes,
    /// Flushes answered before every domain was done
    flush_hedges,
    /// Reads answered from OSDs or the cache
    reads,
    /// Data bytes of those reads
    read_bytes,
    /// Shard reads sent to OSDs
    gets,
    /// Bytes of those shard reads
    get_bytes,
    /// Reads that had to go round a shard
    degraded_reads,
    /// Bytes reconstructed from other shards
    decoded_bytes,
    /// Reads that asked other shards because one was slow
    read_hedges,
    /// Shard reads answered: no such shard
    shards_not_found,
    /// Shard reads answered: corrupt
    shards_corrupt,
    /// Shard reads answered with a shard of another writing of the stripe
    shards_other_digest,
    /// Shard reads that found their OSD out of service
    shards_down,
    /// Bytes answered from the cache, or from a fetch into it that was under way
    cache_hit_bytes,
    /// Bytes read from OSDs while the cache held something
    cache_miss_bytes,
    /// Fetches into the cache begun
    prefetches,
    /// Fetches into the cache not begun for want of room
    prefetches_refused,
    /// Shards made anew from others
    rebuilt_shards,
    /// Bytes of shards made anew or written in another code
    rebuilt_bytes,
    /// Stripes written again in another code
    reencoded_stripes,
    /// Stripes deleted
    deletes,
    /// Writes that went to OSDs whose cleaning is behind, and may have waited for it
    paced_writes,
    /// Waits of writes for space that was about to come back
    full_waits,
    /// Waits of writes for rewriting to give back what is dead in stripes partly alive
    worn_waits,
    /// OSDs skipped by a delete because they are out of service; reconciling deletes there later
    deletes_skipped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_register_under_their_names() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.copied_bytes.inc_by(7);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("objects_copied_bytes_total 7"), "{text}");
        assert_eq!(metrics.clone().copied_bytes(), 7);
    }
}
