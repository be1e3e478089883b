//! Deleting stripes.

use super::index::Key;
use super::osd::Inner;
use super::record::{DELETE_STRIPES_MAX, KIND_DELETE, encode_delete};
use crate::log::Append;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::shard::{Error, Result, ShardKey};
use std::sync::Arc;

impl Inner {
    /// Records that the stripes are gone; they are no longer found when this returns.
    pub(super) async fn delete(self: &Arc<Self>, mut stripes: Vec<StripeId>) -> Result<()> {
        self.alive()?;
        stripes.sort_unstable();
        stripes.dedup();
        {
            let st = self.state.lock();
            stripes.retain(|s| {
                let keys = Key::from(ShardKey { stripe: *s, shard: 0 })..=Key::from(ShardKey { stripe: *s, shard: u8::MAX });
                st.index.shards.range(keys).next().is_some()
            });
        }
        for some in stripes.chunks(DELETE_STRIPES_MAX) {
            let mut recorded = self.record_delete(some).await;
            if matches!(recorded, Err(Error::Full { .. })) && self.make_room().await {
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
        let (this, stripes) = (self.clone(), stripes.to_vec());
        let appended = self.log.append_then(append, move |appended| {
            let mut st = this.state.lock();
            st.keeping.appended(&appended.location);
            for stripe in stripes {
                st.index.delete(stripe, appended.location.position);
            }
            st.keeping.something_died = true;
        });
        appended.await.map(|_| ()).map_err(|e| self.refused(e))
    }
}
