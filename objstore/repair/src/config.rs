//! Limits and times of repair.

use std::time::Duration;

/// See the fields; the defaults suit one machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Stripes that wait for repair at most; further ones are found again by a walk.
    pub queue_max: usize,
    /// Bytes of stripes being repaired at once, while no client asks for anything. While one does: one stripe at a time.
    pub in_flight_bytes: u64,
    /// The share of the devices' time that repair takes while clients ask for something, 0 to 1.
    pub share: f64,
    /// The same for scrubs.
    pub scrub_share: f64,
    /// After so long without a call of a client nobody needs the devices.
    pub idle_after: Duration,
    /// How long what a record no longer names is left to readers of the record before.
    pub grace: Duration,
    /// What could not be repaired is tried again after this long, and at once when OSDs change.
    pub retry: Duration,
    /// Between two looks at what was published with shards missing.
    pub missing_every: Duration,
    /// Stripes looked up in one step of a walk.
    pub page: usize,
    /// A light scrub begins this long after the one before; likewise a deep one.
    pub light_every: Duration,
    pub deep_every: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_max: 65_536,
            in_flight_bytes: 32 << 20,
            share: 0.3,
            scrub_share: 0.1,
            idle_after: Duration::from_millis(200),
            grace: Duration::from_secs(2),
            retry: Duration::from_secs(30),
            missing_every: Duration::from_secs(2),
            page: 256,
            light_every: Duration::from_secs(24 * 3600),
            deep_every: Duration::from_secs(7 * 24 * 3600),
        }
    }
}
