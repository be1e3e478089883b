//! What background work asks of the cluster: looking at stripes and OSDs, and dropping what no record names.

use super::Cluster;
use crate::upkeep::{Examined, Rebuild, Standing, Upkeep};
use crate::{Error, Result};
use futures::future::join_all;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::{self, ShardKey};
use holdfast_objstore_proto::stripe::{COPIES_BYTES_MAX, shard_bytes};
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use std::sync::Arc;

impl Upkeep for Cluster {
    fn examine<'a>(&'a self, stripe: &'a Arc<StripeMeta>, whole: u32) -> BoxFuture<'a, Examined> {
        Box::pin(self.examine_shards(stripe, whole))
    }

    fn rebuild(&self, rebuild: Rebuild) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(self.rebuild_shards(rebuild))
    }

    fn reencode(&self, stripe: Arc<StripeMeta>, code: Code, task: u64) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(self.reencode_stripe(stripe, code, task))
    }

    fn fitting(&self, code: Code, len: u32) -> Option<Code> {
        let wanted = if len <= COPIES_BYTES_MAX { code.copies() } else { code };
        let slots = self.slots();
        let mut fits = wanted;
        loop {
            let room = shard_bytes(fits, len) as u64 + super::plan::RECORD_OVERHEAD;
            let takes = |s: &&Arc<super::Slot>| s.failure().is_none() && !s.leaving() && s.service.space().free >= room;
            match wanted.narrowed(slots.list.iter().filter(takes).count())? {
                same if same == fits => return Some(fits),
                narrower => fits = narrower,
            }
        }
    }

    fn holdings(&self, osd: OsdId, after: Option<ShardKey>, max: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        Box::pin(async move {
            let Some(slot) = self.slot(osd).filter(|s| s.failure().is_none()) else { return Ok(Vec::new()) };
            slot.service.list(after, max).await.map_err(|_| Error::Unavailable { up: 0, need: 1 })
        })
    }

    fn discard(&self, shards: Vec<(OsdId, ShardKey)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.discard_shards(shards))
    }

    fn standing(&self) -> Vec<Standing> {
        let slots = self.slots();
        slots.list.iter().map(|s| Standing { osd: s.osd, up: s.failure().is_none(), leaving: s.leaving() }).collect()
    }

    fn activity(&self) -> u64 {
        let m = &self.metrics;
        m.writes.get() + m.write_rounds.get() + m.reads.get() + m.flushes.get()
    }
}

impl Cluster {
    async fn examine_shards(&self, stripe: &Arc<StripeMeta>, whole: u32) -> Examined {
        let looks = (0..stripe.code.n() as u8).map(|shard| async move {
            let slot = stripe.osds.get(shard as usize).and_then(|osd| self.slot(*osd));
            let Some(slot) = slot.filter(|s| s.failure().is_none()) else { return (shard, None) };
            let key = ShardKey { stripe: stripe.id, shard };
            let answer = if whole >> shard & 1 == 1 { slot.service.verify(key).await } else { slot.service.look(key).await };
            (shard, Some(answer))
        });
        let mut seen = Examined::default();
        for (shard, answer) in join_all(looks).await {
            let bit = 1 << shard;
            match answer {
                Some(Ok(head)) if head.digest == stripe.digest => {
                    seen.good |= bit;
                    seen.bucket = head.hint.bucket;
                }
                Some(Ok(_) | Err(shard::Error::NotFound { .. })) => seen.absent |= bit,
                Some(Err(shard::Error::Corrupt { .. })) => seen.corrupt |= bit,
                None | Some(Err(_)) => seen.down |= bit,
            }
        }
        seen
    }

    pub(crate) async fn discard_shards(&self, shards: Vec<(OsdId, ShardKey)>) -> Result<()> {
        let mut of: Vec<(OsdId, Vec<ShardKey>)> = Vec::new();
        for (osd, key) in shards {
            match of.iter_mut().find(|(o, _)| *o == osd) {
                Some((_, keys)) => keys.push(key),
                None => of.push((osd, vec![key])),
            }
        }
        let (mut full, mut refused) = (false, 0);
        let asked = of.len();
        for (osd, keys) in of {
            let Some(slot) = self.slot(osd).filter(|s| s.failure().is_none()) else { continue };
            let dropped = match slot.service.drop_shards(keys).await {
                Ok(()) => slot.service.flush().await,
                Err(e) => Err(e),
            };
            match dropped {
                Ok(()) | Err(shard::Error::Down { .. }) => {}
                Err(e) => {
                    full |= matches!(e, shard::Error::Full { .. });
                    refused += 1;
                }
            }
        }
        match refused {
            0 => Ok(()),
            _ if full => Err(Error::Full),
            _ => Err(Error::Unavailable { up: asked - refused, need: asked }),
        }
    }
}
