//! The seam: what `fs/vfs`, `objstore/s3` and background work ask of the object cluster.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::{Code, OsdId, SessionEpoch, SessionId, StripeId, StripeMeta};
use std::ops::Range;
use std::sync::Arc;

/// A stripe to write.
#[derive(Debug, Clone)]
pub struct StripeWrite {
    /// From a range granted to `session`.
    pub id: StripeId,
    /// The bucket's code. Small stripes become whole copies, and fewer live OSDs a narrower code; the answer names it.
    pub code: Code,
    /// The data in order, 1 byte to `STRIPE_BYTES_MAX` in all. One block-aligned piece is written without a copy.
    pub data: Vec<Bytes>,
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub hint: Hint,
    /// The cluster's own work, packing and rewriting: it is not slowed, and waits for no room that only it can make.
    pub background: bool,
}

/// Space over all OSDs for one code, bytes a user can write or has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsableSpace {
    pub total: u64,
    pub free: u64,
    /// What background writes may still take: with what is kept for them.
    pub free_own: u64,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Too few OSDs are in service for any code that keeps the promise: wait, then EIO.
    #[error("too few OSDs in service: {up} up, the code needs {need}")]
    Unavailable { up: usize, need: usize },
    /// No room before the reserve.
    #[error("no space on the OSDs")]
    Full,
    /// More shards are gone or corrupt than the code can replace.
    #[error("{stripe} cannot be read: {why}")]
    Lost { stripe: StripeId, why: String },
    /// No OSD holds the stripe: it was retired. Re-read the map once.
    #[error("{stripe} is gone")]
    Gone { stripe: StripeId },
    /// The session's stripe range is retired.
    #[error("{stripe} belongs to a retired range")]
    Fenced { stripe: StripeId },
}

pub type Result<T> = std::result::Result<T, Error>;

/// The object cluster. All calls may be made concurrently, from any thread's runtime. Cancel-safe: dropping a future leaves at
/// worst garbage shards. Every method may be retried with the same arguments.
pub trait Objects: Send + Sync + 'static {
    /// Encodes and appends a stripe; returns when the write quorum's devices have it (readable, not yet stable).
    /// Quorum: all n shards; past a short hedge k+1 (k when m = 0; of whole copies two, or the one there is), the
    /// missing ones named in the answer.
    fn write(&self, write: StripeWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>>>;

    /// Makes stripes that were written stable: one flush per flush domain. Answers them again, in order, with what a failed flush
    /// left missing; an error when one is below its quorum.
    fn flush(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<Vec<Arc<StripeMeta>>>>;

    /// Data bytes `range` of a stripe, verified, in one or more pieces. Reads only the shards and blocks that hold them;
    /// decodes round missing or corrupt ones, and reports those to the repair queue.
    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>>>;

    /// Begins to read `range` into the cache, if the budget has room; never waits, never fails.
    fn prefetch(&self, stripe: &Arc<StripeMeta>, range: Range<u32>);

    /// Deletes the shards of stripes no map refers to, durably, on every OSD in service.
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<()>>;

    /// Drops every cached byte (for tests of what is on the devices, and for `admin`).
    fn drop_caches(&self);

    /// What writes of `code` can use.
    fn space(&self, code: Code) -> UsableSpace;

    /// OSDs in service, and out of it with the reason.
    fn osds(&self) -> Vec<(OsdId, Option<String>)>;
}
