//! Deleting stripes that no map refers to.
//!
//! What always holds: reads that had begun before are over, or are a lease late; when it is answered, the deletion is durable on every OSD in service that a stripe's record names. OSDs out of
//! service are skipped and counted: reconciling deletes there, as it does for shards of abandoned rounds on other OSDs. One in service that
//! refuses (a full device has no room for the record either) fails the call: it must be repeated.

use super::Cluster;
use super::slot::Slot;
use crate::{Error, Result};
use futures::future::join_all;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard;
use holdfast_objstore_proto::{StripeId, StripeMeta};
use std::sync::Arc;

impl Cluster {
    pub(crate) async fn delete_stripes(&self, stripes: Vec<Arc<StripeMeta>>) -> Result<()> {
        self.readers.quiesce().await;
        let mut of: Vec<(Arc<Slot>, Vec<StripeId>)> = Vec::new();
        for stripe in &stripes {
            self.cache.forget(stripe.id);
            for osd in &stripe.osds {
                let Some(slot) = self.slot(*osd).filter(|s| s.service.failure().is_none()) else {
                    failpoint::reached("client.delete_skipped");
                    self.metrics.deletes_skipped.inc();
                    continue;
                };
                match of.iter_mut().find(|(s, _)| s.osd == *osd) {
                    Some((_, ids)) => ids.push(stripe.id),
                    None => of.push((slot, vec![stripe.id])),
                }
            }
        }
        let slots: Vec<Arc<Slot>> = of.iter().map(|(slot, _)| slot.clone()).collect();
        let deleted = join_all(of.iter_mut().map(|(slot, ids)| slot.service.delete(std::mem::take(ids)))).await;
        // Every delete was answered before the first flush begins: one flush of a domain serves all its OSDs.
        let there: Vec<Arc<Slot>> = slots.into_iter().zip(&deleted).filter(|(_, r)| r.is_ok()).map(|(s, _)| s).collect();
        let flushes: Vec<_> = there.iter().map(|slot| slot.service.flush()).collect();
        let flushed = join_all(flushes).await;
        let (mut skipped, mut refused, mut full) = (0, 0, false);
        for error in deleted.iter().chain(&flushed).filter_map(|r| r.as_ref().err()) {
            match error {
                // It has left service, and is as one that was out of it before.
                shard::Error::Down { .. } => skipped += 1,
                other => {
                    failpoint::reached("client.delete_refused");
                    refused += 1;
                    full |= matches!(other, shard::Error::Full { .. });
                    tracing::warn!("a delete was refused: {other}");
                }
            }
        }
        self.metrics.deletes_skipped.inc_by(skipped);
        match refused {
            0 => {
                self.metrics.deletes.inc_by(stripes.len() as u64);
                self.deleted.notify_waiters();
                Ok(())
            }
            _ if full => Err(Error::Full),
            _ => Err(Error::Unavailable { up: deleted.len() - refused, need: deleted.len() }),
        }
    }
}
