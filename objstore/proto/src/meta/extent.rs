//! Extent maps: runs of a file on runs of stripes.

use crate::{StripeId, StripeMeta};
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
    pub stripe: Arc<StripeMeta>,
    pub stripe_offset: u32,
}
