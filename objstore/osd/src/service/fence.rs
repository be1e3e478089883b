//! Refusing what a retired range of stripe ids still sends, and dropping what of it nothing refers to.
//!
//! What always holds: a fence is stable before anything of its range is dropped, so nothing of it can arrive after the look at what is
//! held; shards that are held already stay readable and may be copied by cleaning; the cluster's own tasks (repair) pass.
//! What it leaves out: keeping the stamp over a restart. Of a range that is closed the live ids only become fewer, so a list that is older
//! spares more than a newer one and never less.

use super::index::Key;
use super::osd::{Inner, Osd};
use super::record::{KIND_FENCE, encode_fence};
use crate::log::Append;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard::{Error, Result, ShardKey, Stamp, TASK_SESSION};
use holdfast_objstore_proto::{SessionId, StripeId, StripeRange};
use std::collections::HashSet;
use std::sync::Arc;

/// Fences at most; ranges that touch are one.
const FENCES_MAX: usize = 1 << 16;

impl Osd {
    /// Refuses every later put of a stripe in `range`, then drops the stripes of it that are held and not in `live`.
    /// Both are stable when this returns. May be repeated.
    pub async fn raise_fence(&self, range: StripeRange, live: &[StripeId]) -> Result<()> {
        self.0.fence(vec![range]).await?;
        self.0.drop_garbage(range, live).await.map(|_| ())
    }

    /// Ranges that are refused.
    pub fn fences(&self) -> usize {
        self.0.state.lock().index.fences.len()
    }
}

impl Inner {
    /// Whether a put of this stripe by this session comes too late.
    pub(super) fn refuses(&self, index: &super::index::Index, stripe: StripeId, session: SessionId) -> bool {
        session != TASK_SESSION && index.fenced(stripe)
    }

    pub(super) async fn fence(self: &Arc<Self>, ranges: Vec<StripeRange>) -> Result<()> {
        self.alive()?;
        for range in ranges {
            {
                let st = self.state.lock();
                if st.index.all_fenced(range) {
                    continue;
                }
                if st.index.fences.len() >= FENCES_MAX {
                    return Err(Error::Full { osd: self.id() });
                }
            }
            let this = self.clone();
            let append = Append::new(KIND_FENCE, encode_fence(range)).urgent();
            let raised = self.log.append_then(append, move |appended| {
                let mut st = this.state.lock();
                st.keeping.appended(&appended.location);
                st.index.fence(range, appended.location.position);
            });
            raised.await.map_err(|e| self.refused(e))?;
        }
        self.log.flush().await.map(|_| ()).map_err(|e| self.refused(e))
    }

    pub(super) async fn retire(self: &Arc<Self>, range: StripeRange, live: Vec<StripeId>, stamp: Stamp) -> Result<u64> {
        {
            let mut st = self.state.lock();
            if stamp < st.stamp {
                failpoint::reached("osd.retire_stale");
                return Err(Error::Stale { osd: self.id() });
            }
            st.stamp = stamp;
        }
        self.fence(vec![range]).await?;
        self.drop_garbage(range, &live).await
    }

    async fn drop_garbage(self: &Arc<Self>, range: StripeRange, live: &[StripeId]) -> Result<u64> {
        let garbage = self.garbage(range, live);
        let dropped = garbage.len() as u64;
        self.delete(garbage).await?;
        self.log.flush().await.map_err(|e| self.refused(e))?;
        Ok(dropped)
    }

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
