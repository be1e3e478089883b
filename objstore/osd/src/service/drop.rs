//! Dropping single shards: what repair moved elsewhere, or wrote anew in another code, while other shards of the stripe stay.

use super::index::Key;
use super::osd::Inner;
use super::record::{DROP_SHARDS_MAX, KIND_DROP, encode_drop};
use crate::log::Append;
use holdfast_objstore_proto::shard::{Error, Result, ShardKey};
use std::sync::Arc;

impl Inner {
    /// Records that the shards are gone; they are no longer found when this returns.
    pub(super) async fn drop_shards(self: &Arc<Self>, mut keys: Vec<ShardKey>) -> Result<()> {
        self.alive()?;
        keys.sort_unstable();
        keys.dedup();
        {
            let st = self.state.lock();
            keys.retain(|k| st.index.shards.contains_key(&Key::from(*k)));
        }
        for some in keys.chunks(DROP_SHARDS_MAX) {
            let mut recorded = self.record_drop(some).await;
            if matches!(recorded, Err(Error::Full { .. })) && self.make_room(0).await {
                recorded = self.record_drop(some).await;
            }
            recorded?;
        }
        self.housekeep();
        Ok(())
    }

    async fn record_drop(self: &Arc<Self>, keys: &[ShardKey]) -> Result<()> {
        // A record that makes room may go where ordinary ones may not.
        let append = Append::new(KIND_DROP, encode_drop(keys)).urgent();
        let (this, keys) = (self.clone(), keys.to_vec());
        // As a delete: never while cleaning has a copy of one of them on its way.
        let dropping = self.claim_deletes(keys.iter().map(|k| k.stripe).collect()).await;
        let appended = self.log.append_then(append, move |appended| {
            {
                let mut st = this.state.lock();
                st.keeping.appended(&appended.location);
                for key in keys {
                    st.index.drop_shard(key.into(), appended.location.position);
                    st.corrupt.remove(&key.into());
                }
                st.keeping.something_died = true;
            }
            drop(dropping);
        });
        appended.await.map(|_| ()).map_err(|e| self.refused(e))
    }
}
