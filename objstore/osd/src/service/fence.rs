//! Refusing what a retired range of stripe ids still sends.
//!
//! What it leaves out: stamps that order fences against each other, and the leave that repair writes have.

use super::index::Key;
use super::osd::{Inner, Osd};
use super::record::{KIND_FENCE, encode_fence};
use crate::log::Append;
use holdfast_objstore_proto::shard::{Error, Result, ShardKey};
use holdfast_objstore_proto::{StripeId, StripeRange};
use std::collections::HashSet;

/// Fences at most; ranges that touch are one.
const FENCES_MAX: usize = 1 << 16;

impl Osd {
    /// Refuses every later put of a stripe in `range`, then drops the stripes of it that are held and not in `live`.
    /// Both are stable when this returns. May be repeated.
    pub async fn raise_fence(&self, range: StripeRange, live: &[StripeId]) -> Result<()> {
        let inner = &self.0;
        inner.alive()?;
        if inner.state.lock().index.fences.len() >= FENCES_MAX {
            return Err(Error::Full { osd: inner.id() });
        }
        let this = inner.clone();
        let append = Append::new(KIND_FENCE, encode_fence(range)).urgent();
        let raised = inner.log.append_then(append, move |appended| {
            let mut st = this.state.lock();
            st.keeping.appended(&appended.location);
            st.index.fence(range, appended.location.position);
        });
        raised.await.map_err(|e| inner.refused(e))?;
        inner.delete(inner.garbage(range, live)).await?;
        inner.log.flush().await.map(|_| ()).map_err(|e| inner.refused(e))
    }
}

impl Inner {
    fn garbage(&self, range: StripeRange, live: &[StripeId]) -> Vec<StripeId> {
        let live: HashSet<StripeId> = live.iter().copied().collect();
        let st = self.state.lock();
        let from = Key::from(ShardKey { stripe: range.first, shard: 0 });
        let mut held: Vec<StripeId> = st.index.shards.range(from..).map(|(k, _)| k.stripe()).take_while(|s| range.contains(*s)).collect();
        held.dedup();
        held.retain(|s| !live.contains(s));
        held
    }
}
