//! Deleting stripes that no map refers to.
//!
//! What always holds: when it is answered, the deletion is durable on every OSD in service that a stripe's record names. OSDs out of
//! service are skipped and counted: reconciling deletes there, as it does for shards of abandoned rounds on other OSDs.

use super::Cluster;
use super::slot::Slot;
use crate::Result;
use futures::future::join_all;
use holdfast_objstore_proto::{StripeId, StripeMeta};
use std::sync::Arc;

impl Cluster {
    pub(crate) async fn delete_stripes(&self, stripes: Vec<Arc<StripeMeta>>) -> Result<()> {
        let mut of: Vec<(&Arc<Slot>, Vec<StripeId>)> = Vec::new();
        for stripe in &stripes {
            self.cache.forget(stripe.id);
            for osd in &stripe.osds {
                let Some(slot) = self.slot(*osd).filter(|s| s.service.failure().is_none()) else {
                    self.metrics.deletes_skipped.inc();
                    continue;
                };
                match of.iter_mut().find(|(s, _)| s.osd == *osd) {
                    Some((_, ids)) => ids.push(stripe.id),
                    None => of.push((slot, vec![stripe.id])),
                }
            }
        }
        let slots: Vec<&Arc<Slot>> = of.iter().map(|(slot, _)| *slot).collect();
        let deleted = join_all(of.into_iter().map(|(slot, ids)| slot.service.delete(ids))).await;
        // Every delete was answered before the first flush begins: one flush of a domain serves all its OSDs.
        let there: Vec<&Arc<Slot>> = slots.into_iter().zip(&deleted).filter(|(_, r)| r.is_ok()).map(|(s, _)| s).collect();
        let flushes: Vec<_> = there.iter().map(|slot| slot.service.flush()).collect();
        let flushed = join_all(flushes).await;
        // An OSD that fails here has left service, and is as one that was out of it before.
        let failed = deleted.iter().filter(|r| r.is_err()).count() + flushed.iter().filter(|r| r.is_err()).count();
        self.metrics.deletes_skipped.inc_by(failed as u64);
        self.metrics.deletes.inc_by(stripes.len() as u64);
        Ok(())
    }
}
