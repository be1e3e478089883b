//! What repair reads of stripes' records, and how it swaps them.
//!
//! What always holds: reads answer from committed state, whatever sessions hold; a swap is durable when it is answered.

use super::Service;
use holdfast_meta_core::read;
use holdfast_objstore_proto::meta::{Bucket, Command, MetaError, MetaResult, Reply};
use holdfast_objstore_proto::{StripeId, StripeMeta};
use std::sync::Arc;

impl Service {
    /// The record of a stripe that something refers to.
    pub fn stripe(&self, id: StripeId) -> MetaResult<Option<Arc<StripeMeta>>> {
        self.core.view(|kv| read::stripe(kv, id))
    }

    /// Records in order of ids, after `after`, at most `max`.
    pub fn stripes(&self, after: Option<StripeId>, max: usize) -> MetaResult<Vec<Arc<StripeMeta>>> {
        self.core.view(|kv| read::stripes(kv, after, max))
    }

    /// The same, of those that were published with shards missing.
    pub fn stripes_missing(&self, after: Option<StripeId>, max: usize) -> MetaResult<Vec<Arc<StripeMeta>>> {
        self.core.view(|kv| read::missing(kv, after, max))
    }

    /// For each id: does something refer to it, or may a living session still publish it?
    pub fn stripes_live(&self, ids: &[StripeId]) -> MetaResult<Vec<bool>> {
        self.core.view(|kv| read::stripes_live(kv, ids))
    }

    pub fn all_buckets(&self) -> MetaResult<Vec<Bucket>> {
        self.core.view(|kv| read::buckets(kv))
    }

    /// How many stripes something refers to.
    pub fn stripe_count(&self) -> u64 {
        self.core.view(|kv| read::stats(kv)).map_or(0, |s| s.stripes)
    }

    /// The stripe's record becomes `new` if it is still `old`: whether it did.
    pub async fn swap_stripe(&self, old: Arc<StripeMeta>, new: Arc<StripeMeta>) -> MetaResult<bool> {
        match self.core.propose_own(Command::SwapStripe { old, new }).await? {
            Reply::Swapped { swapped } => Ok(swapped),
            other => Err(MetaError::Failed(format!("a swap was answered with {other:?}"))),
        }
    }
}
