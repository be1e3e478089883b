//! The seam to metadata: the records of stripes, as repair reads and swaps them, and the ranges of ids that reconciling looks at.

use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::Stamp;
use holdfast_objstore_proto::{Code, StripeId, StripeMeta, StripeRange};
use std::sync::Arc;

/// Why metadata did not answer: one sentence. It is asked again later.
pub type Failure = String;

/// What repair asks of metadata. Reads answer from committed state and never wait.
pub trait Records: Send + Sync + 'static {
    /// The record of a stripe that something refers to.
    fn stripe(&self, id: StripeId) -> Result<Option<Arc<StripeMeta>>, Failure>;
    /// Records in order of their ids, after `after`, at most `max`. One without OSDs is passed over.
    fn stripes(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, Failure>;
    /// The same, of stripes that were published with shards missing.
    fn missing(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, Failure>;
    /// For each id: does something refer to it, does it wait for its deletion, or may a living session still publish it?
    fn live(&self, ids: &[StripeId]) -> Result<Vec<bool>, Failure>;
    /// Whether these records may be older than what the OSDs hold, as after a restore that no operator has confirmed: then nothing is dropped
    /// for not being named, for a newer record may name it there.
    fn may_be_old(&self) -> bool {
        false
    }
    /// The codes of all buckets.
    fn codes(&self) -> Result<Vec<(u32, Code)>, Failure>;
    /// About how many stripes there are.
    fn count(&self) -> u64;
    /// Compare-and-swap: `new` becomes the record if it is still `old`. Durable on return.
    fn swap(&self, old: Arc<StripeMeta>, new: Arc<StripeMeta>) -> BoxFuture<'_, Result<bool, Failure>>;
}

/// What reconciling asks of metadata. Reads answer from committed state and never wait.
pub trait Ranges: Send + Sync + 'static {
    /// Ranges of stripe ids that no session may publish any more, and the stamp of this answer.
    fn closed(&self) -> Result<(Stamp, Vec<StripeRange>), Failure>;
    /// The stripes of a range that metadata knows: referred to, or waiting for their deletion.
    fn held_in(&self, range: StripeRange) -> Result<Vec<StripeId>, Failure>;
    /// Completes when ranges were closed since the last call.
    fn more_closed(&self) -> BoxFuture<'_, ()>;
    /// Metadata answers nothing any more.
    fn is_over(&self) -> bool;
}
