//! What an operator may choose of the metadata service, with the bounds everything has.

use crate::service::Snapshots;
use crate::state::StateConfig;
use crate::superblock::ClusterId;
use holdfast_meta_core::lease::Limits;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Config {
    pub state: StateConfig,
    /// Bounds of the grant table, and the hold-down.
    pub leases: Limits,
    /// A holder that neither answered a recall nor got on with its flush for this long is evicted.
    pub recall_timeout: Duration,
    /// A holder that has not answered a recall after this long is evicted though it gets on.
    pub recall_total: Duration,
    /// Sessions at once.
    pub sessions_max: usize,
    /// Retired stripes are deleted this long after they were retired, many at a time; sooner where space is short.
    pub stripe_grace: Duration,
    /// An inode that lost its last name can still be opened this long by who had found the name before.
    pub orphan_grace: Duration,
    /// Chunks one step of freeing an orphan takes.
    pub reap_chunks: u32,
    /// Stripes in one call to the stripe reaper.
    pub stripe_batch: usize,
    /// Staged bytes are packed when nothing was staged for this long …
    pub pack_idle: Duration,
    /// … and after this long at the latest.
    pub pack_delay: Duration,
    /// Small stripes older than this are gathered into packs, looked for this often too.
    pub pack_cold: Duration,
    /// How often it is looked whether worn stripes are to be rewritten, when nobody asks.
    pub worn_look: Duration,
    /// Bytes kept back for the state's file on a device that fills up. 0: none.
    pub ballast_bytes: u64,
    /// How long a start waits for the log to lead.
    pub lead_timeout: Duration,
    /// Snapshots are made in the pool. `None`: one device keeps everything.
    pub snapshots: Option<Snapshots>,
    /// The cluster that they are of.
    pub cluster: ClusterId,
}

impl Config {
    /// The defaults, with the tables of the service kept within about `bytes` of memory.
    pub fn within(bytes: u64) -> Self {
        let part = |n: u64| usize::try_from(bytes / n).unwrap_or(usize::MAX);
        let default = Self::default();
        let state = StateConfig {
            overlay_bytes: part(12).clamp(1 << 20, default.state.overlay_bytes),
            overlay_bytes_max: part(3).clamp(4 << 20, default.state.overlay_bytes_max),
            cache_bytes: part(4).clamp(4 << 20, default.state.cache_bytes),
            staged_bytes_max: part(8).clamp(1 << 20, default.state.staged_bytes_max),
            held_bytes_max: default.state.held_bytes_max,
        };
        let grants_max = (part(4) / Limits::GRANT_BYTES).clamp(1024, default.leases.grants_max);
        Self { state, leases: Limits { grants_max, ..default.leases }, ..default }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state: StateConfig::default(),
            leases: Limits::default(),
            recall_timeout: Duration::from_secs(10),
            recall_total: Duration::from_secs(120),
            sessions_max: 4096,
            stripe_grace: Duration::from_secs(2),
            orphan_grace: Duration::from_secs(2),
            reap_chunks: 256,
            stripe_batch: 1024,
            pack_idle: Duration::from_millis(300),
            pack_delay: Duration::from_secs(5),
            pack_cold: Duration::from_secs(600),
            worn_look: Duration::from_secs(1),
            ballast_bytes: 0,
            lead_timeout: Duration::from_secs(60),
            snapshots: None,
            cluster: ClusterId::default(),
        }
    }
}
