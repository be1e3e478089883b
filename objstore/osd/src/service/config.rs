//! What an OSD is told at its format and at its start.

use crate::log::Blocking;
use holdfast_objstore_base::clock::WallNs;
use holdfast_objstore_base::units::MIB;
use holdfast_objstore_proto::OsdId;

/// Who a new OSD is.
#[derive(Debug, Clone, Copy)]
pub struct FormatOptions {
    pub cluster: u128,
    pub osd: OsdId,
    /// 128 random bits: they seed every checksum of the log.
    pub log_id: u128,
    /// Identifies the device, or zero.
    pub device: u128,
    pub created_ns: WallNs,
    /// Bytes of a segment, kept for good.
    pub segment_bytes: u64,
}

impl FormatOptions {
    pub fn new(cluster: u128, osd: OsdId, log_id: u128, created_ns: WallNs) -> Self {
        Self { cluster, osd, log_id, device: 0, created_ns, segment_bytes: 64 * MIB }
    }
}

/// Limits of a running OSD.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of segment files at most. `None`: what there is and what the filesystem has free at the start (shared
    /// by all OSDs on it: give each its part where there are several).
    pub capacity_bytes: Option<u64>,
    /// A checkpoint of the index is made each time this many bytes were appended: a restart reads at most about as many.
    pub checkpoint_bytes: u64,
    /// Bytes of checksum tables kept in memory: 0.1 % of the data they cover.
    pub cache_bytes: u64,
    /// Failed reads in a row after which the device counts as lost.
    pub read_errors_max: u32,
    pub blocking: Blocking,
}

impl Default for Config {
    fn default() -> Self {
        Self { capacity_bytes: None, checkpoint_bytes: 256 * MIB, cache_bytes: 32 * MIB, read_errors_max: 16, blocking: Blocking::Pool }
    }
}
