//! Deleting stripes.

use super::index::Key;
use super::osd::Inner;
use super::record::{DELETE_STRIPES_MAX, KIND_DELETE, encode_delete};
use crate::log::Append;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::shard::{Result, ShardKey};
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
            // A record that makes room may go where ordinary ones may not.
            let append = Append::new(KIND_DELETE, encode_delete(some)).urgent();
            let (this, some) = (self.clone(), some.to_vec());
            let count = some.len() as u64;
            let appended = self.log.append_then(append, move |appended| {
                let mut st = this.state.lock();
                st.keeping.appended(&appended.location);
                for stripe in some {
                    st.index.delete(stripe, appended.location.position);
                }
                st.keeping.something_died = true;
            });
            appended.await.map_err(|e| self.refused(e))?;
            self.metrics.deletes.inc_by(count);
        }
        self.housekeep();
        Ok(())
    }
}
