//! Limits and times of the cluster client.

use std::time::Duration;

/// See the fields; the defaults suit one machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes that prefetched data may take, out of the shared budget.
    pub cache_bytes: u64,
    /// Fetches into the cache at once.
    pub prefetches_max: usize,
    /// Bytes of one such fetch at most: one device read each, so large; and a reader who needs its first byte waits for all
    /// of it, so not larger. A power of two of at least 64 KiB.
    pub fetch_bytes_max: u32,
    /// A write or flush waits for its slowest shards as long as 99 of 100 take in all, within these bounds, and then is content
    /// with its quorum.
    pub hedge_min: Duration,
    pub hedge_max: Duration,
    /// A read of a shard that takes four times its 99th percentile, and this at least, is also decoded from other shards.
    pub read_hedge_min: Duration,
    /// How long a write waits for enough OSDs to be in service before it fails with `Unavailable`.
    pub unavailable_wait: Duration,
    /// How long a write waits for space that is about to come back (retired stripes that are not deleted yet) before it fails with `Full`.
    pub full_wait: Duration,
    /// Puts and flushes that one OSD may owe us beyond their quorum before it counts as out of service for new stripes.
    pub owed_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            prefetches_max: 16,
            fetch_bytes_max: 1 << 20,
            hedge_min: Duration::from_millis(1),
            hedge_max: Duration::from_secs(1),
            read_hedge_min: Duration::from_millis(50),
            unavailable_wait: Duration::ZERO,
            full_wait: Duration::from_secs(30),
            owed_max: 8,
        }
    }
}
