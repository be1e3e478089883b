//! Extent maps: runs of a file on runs of stripes.

use crate::{BucketId, StripeId, StripeMeta};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of a chunk: the piece of a file's address space one map record covers. No extent crosses a chunk's border.
pub const CHUNK_BYTES: u64 = 4 << 20;

/// A run of a file on a run of a stripe, as a Publish names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Byte offset in the file.
    pub offset: u64,
    pub len: u32,
    pub stripe: StripeId,
    /// Byte offset in the stripe's data.
    pub stripe_offset: u32,
}

/// The same, as a reader sees it. Ranges no extent covers read as zeroes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedExtent {
    pub offset: u64,
    pub len: u32,
    /// What to read: the stripe itself, or the pack that holds it.
    pub stripe: Arc<StripeMeta>,
    /// Byte offset in `stripe`'s data.
    pub stripe_offset: u32,
    /// All bytes of the stripe while the metadata service keeps them; then no OSD has them.
    pub inline: Option<Bytes>,
}

/// A small stripe that travels in the command that names it. Its bytes stay in the log and in the service's memory until they are packed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inline {
    /// From the session's ranges, like any new stripe.
    pub stripe: StripeId,
    /// All its bytes.
    pub data: Bytes,
}

/// Where the bytes of a stripe are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// In shards of its own.
    Shards,
    /// In the log entry of this index.
    Staged { index: u64 },
    /// From byte `at` of another stripe's data.
    Packed { pack: StripeId, at: u32 },
}

/// Stripes that were copied into a new one, a pack, and shall be found there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    /// Whose stripes these are.
    pub bucket: BucketId,
    /// The pack's record, durable on its write quorum; its id is from the session's ranges.
    pub stripe: Arc<StripeMeta>,
    /// In order of `at`, without overlap.
    pub members: Vec<PackMember>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackMember {
    pub stripe: StripeId,
    /// Data bytes.
    pub len: u32,
    /// Byte offset in the pack.
    pub at: u32,
    /// Where it was copied from. One that is elsewhere by now, or gone, is passed over.
    pub from: Home,
}
