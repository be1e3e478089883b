//! Deleting stripes.
//!
//! What always holds: a delete takes its place in the log before or after a copy that cleaning makes of the same stripe, never
//! while one is on its way: else the copy could lie behind the delete, and a recovery would bring the shard back.

use super::index::Key;
use super::osd::{Inner, wait_for};
use super::record::{DELETE_STRIPES_MAX, KIND_DELETE, encode_delete};
use crate::log::Append;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::shard::{Error, Result};
use std::sync::Arc;

/// Stripes whose delete is on its way: cleaning leaves them alone until it is dropped.
pub(super) struct Deleting {
    inner: Arc<Inner>,
    stripes: Vec<StripeId>,
}

impl Drop for Deleting {
    fn drop(&mut self) {
        let mut st = self.inner.state.lock();
        for stripe in &self.stripes {
            if let Some(n) = st.deleting.get_mut(stripe) {
                *n -= 1;
                if *n == 0 {
                    st.deleting.remove(stripe);
                }
            }
        }
    }
}

impl Inner {
    /// Records that the stripes are gone; they are no longer found when this returns.
    pub(super) async fn delete(self: &Arc<Self>, mut stripes: Vec<StripeId>) -> Result<()> {
        self.alive()?;
        stripes.sort_unstable();
        stripes.dedup();
        {
            let st = self.state.lock();
            stripes.retain(|s| st.index.shards.range(Key::all_of(*s)).next().is_some());
        }
        for some in stripes.chunks(DELETE_STRIPES_MAX) {
            let mut recorded = self.record_delete(some).await;
            if matches!(recorded, Err(Error::Full { .. })) && self.make_room(0).await {
                recorded = self.record_delete(some).await;
            }
            recorded?;
            self.metrics.deletes.inc_by(some.len() as u64);
        }
        self.housekeep();
        Ok(())
    }

    async fn record_delete(self: &Arc<Self>, stripes: &[StripeId]) -> Result<()> {
        // A record that makes room may go where ordinary ones may not.
        let append = Append::new(KIND_DELETE, encode_delete(stripes)).urgent();
        let (this, deleting) = (self.clone(), self.claim_deletes(stripes.to_vec()).await);
        let appended = self.log.append_then(append, move |appended| {
            {
                let mut st = this.state.lock();
                st.keeping.appended(&appended.location);
                for stripe in &deleting.stripes {
                    st.index.delete(*stripe, appended.location.position);
                }
                st.keeping.something_died = true;
            }
            drop(deleting);
        });
        appended.await.map(|_| ()).map_err(|e| self.refused(e))
    }

    /// Waits until none of the stripes is being moved, and keeps it so.
    pub(super) async fn claim_deletes(self: &Arc<Self>, stripes: Vec<StripeId>) -> Deleting {
        loop {
            let moving = {
                let mut st = self.state.lock();
                let moving = stripes.iter().find_map(|s| st.moving.range(Key::all_of(*s)).next().map(|(k, w)| (*k, w.clone())));
                if moving.is_none() {
                    stripes.iter().for_each(|s| *st.deleting.entry(*s).or_default() += 1);
                }
                moving
            };
            match moving {
                None => return Deleting { inner: self.clone(), stripes },
                Some((key, moved)) => wait_for(&moved, || self.state.lock().moving.contains_key(&key)).await,
            }
        }
    }
}
