//! A stripe's record: what metadata knows about up to 4 MiB of immutable data spread over OSDs.

use crate::{Code, Codec, OsdId, StripeId};
use holdfast_objstore_base::units::{BLOCK, block_up};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Data bytes of a stripe, at most.
pub const STRIPE_BYTES_MAX: u32 = 4 << 20;
/// Extents up to this many bytes are written as whole copies instead of coded shards.
pub const COPIES_BYTES_MAX: u32 = 64 << 10;
/// Bytes that a writer sends inside its command instead of in a stripe of its own, at most.
pub const INLINE_BYTES_MAX: usize = 16 << 10;

/// Shape and home of one stripe. Immutable once published, except by repair's compare-and-swap.
///
/// The data, zero-padded, is cut into `k` runs of [`StripeMeta::shard_bytes`] each: shard `i < k` holds the bytes
/// `[i * s, (i + 1) * s)`. Shards `k..n` are parity over the same positions. A replica stripe has k = 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StripeMeta {
    pub id: StripeId,
    pub codec: Codec,
    pub code: Code,
    /// Data bytes, 1 to [`STRIPE_BYTES_MAX`].
    pub len: u32,
    /// Digest over all shards' checksums, as every shard's header has it.
    pub digest: u64,
    /// Home of shard `i`, for `i` in `0..code.n()`.
    pub osds: SmallVec<[OsdId; 6]>,
    /// Bit `i` set: shard `i` was not acknowledged when the stripe was published, and waits for repair.
    pub missing: u32,
}

impl StripeMeta {
    /// A stripe without shards: its bytes are with the metadata, or inside a pack.
    pub fn bare(id: StripeId, len: u32) -> Self {
        Self { id, codec: Codec::Replica, code: Code::new(1, 0), len, digest: 0, osds: SmallVec::new(), missing: 0 }
    }
    /// Whether it has no shards, so that no OSD can be asked for it.
    pub fn is_bare(&self) -> bool {
        self.osds.is_empty()
    }
    /// Bytes of each shard: a whole number of blocks.
    pub fn shard_bytes(&self) -> u32 {
        shard_bytes(self.code, self.len)
    }
    /// Bytes the shards take on devices, without record headers.
    pub fn stored_bytes(&self) -> u64 {
        self.shard_bytes() as u64 * self.code.n() as u64
    }
}

/// Bytes of each shard of a stripe of `len` data bytes.
pub fn shard_bytes(code: Code, len: u32) -> u32 {
    block_up((len as u64).div_ceil(code.k as u64)).max(BLOCK as u64) as u32
}
