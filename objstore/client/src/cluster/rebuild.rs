//! Making lost shards of a stripe anew.
//!
//! What always holds: a shard is only made from shards of the record's writing whose checksums agreed; it counts as made when it is stable
//! on its home and was read back from there. It goes to its own home where that takes new shards, else to an OSD that no shard of
//! the stripe is on, so that homes stay distinct.

use super::plan::{RECORD_OVERHEAD, weight};
use super::read::Faults;
use super::slot::Slot;
use super::{Cluster, decode::Have};
use crate::upkeep::Rebuild;
use crate::{Error, Result};
use bytes::Bytes;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_ec::layout::Piece;
use holdfast_objstore_ec::placement::{Candidate, place};
use holdfast_objstore_proto::shard::{self, Hint, ShardHead, ShardKey, ShardPut, TASK_SESSION};
use holdfast_objstore_proto::{Code, OsdId, SessionEpoch, StripeMeta};
use smallvec::SmallVec;
use std::sync::Arc;

/// Homes tried for one shard.
const HOMES_MAX: usize = 3;

impl Cluster {
    pub(crate) async fn rebuild_shards(&self, r: Rebuild) -> Result<Arc<StripeMeta>> {
        let stripe = &r.stripe;
        let wanted: SmallVec<[usize; 4]> = (0..stripe.code.n()).filter(|i| r.shards >> i & 1 == 1).collect();
        assert!(!wanted.is_empty(), "a rebuild names shards");
        let mut record = (**stripe).clone();
        let mut homeless = wanted.clone();
        homeless.retain(|shard| self.homes_for(&record, *shard).is_empty());
        if homeless.len() == wanted.len() {
            return Err(Error::Unavailable {
                up: self.slots().list.iter().filter(|s| s.failure().is_none()).count(),
                need: stripe.code.n(),
            });
        }
        let (bytes, hint) = (self.shards_of(&r, &wanted).await?, self.hint_of(stripe).await);
        let mut made = 0;
        for (shard, data) in wanted.into_iter().zip(bytes) {
            let crcs: Arc<[u32]> = data.chunks(BLOCK).map(crc32c).collect();
            let head = ShardHead {
                key: ShardKey { stripe: stripe.id, shard: shard as u8 },
                codec: stripe.codec,
                code: stripe.code,
                stripe_len: stripe.len,
                digest: stripe.digest,
                session: TASK_SESSION,
                epoch: SessionEpoch(r.task),
                hint,
            };
            let put = ShardPut { head, data, crcs, background: false };
            for home in self.homes_for(&record, shard).into_iter().take(HOMES_MAX) {
                match place_shard(&home, &put).await {
                    Ok(()) => {
                        self.metrics.rebuilt_shards.inc();
                        self.metrics.rebuilt_bytes.inc_by(put.data.len() as u64);
                        record.osds[shard] = home.osd;
                        record.missing &= !(1 << shard);
                        made += 1;
                        break;
                    }
                    Err(shard::Error::Fenced { .. }) => return Err(Error::Fenced { stripe: stripe.id }),
                    Err(e) => {
                        tracing::warn!(stripe = %stripe.id, shard, osd = %home.osd, "a rebuilt shard could not be placed: {e}")
                    }
                }
            }
        }
        match made {
            0 => Err(Error::Unavailable { up: 0, need: 1 }),
            _ => Ok(Arc::new(record)),
        }
    }

    /// All bytes of each wanted shard: as they stand where they can be read, else decoded.
    async fn shards_of(&self, r: &Rebuild, wanted: &[usize]) -> Result<Vec<Bytes>> {
        let (stripe, len) = (&r.stripe, r.stripe.shard_bytes());
        let mut bytes: Vec<Option<Bytes>> = vec![None; wanted.len()];
        let mut faults = Faults::new();
        for (at, shard) in wanted.iter().enumerate().filter(|(_, s)| r.readable >> **s & 1 == 1) {
            bytes[at] = self.get(stripe, *shard as u8, 0, len).await.ok();
        }
        let absent: SmallVec<[usize; 4]> = (0..wanted.len()).filter(|at| bytes[*at].is_none()).collect();
        if !absent.is_empty() {
            let have: SmallVec<[Have; 4]> = wanted
                .iter()
                .zip(&bytes)
                .filter_map(|(shard, b)| Some(Have { piece: Piece { shard: *shard, offset: 0, len }, bytes: b.clone()? }))
                .collect();
            let shards: SmallVec<[usize; 4]> = absent.iter().map(|at| wanted[*at]).collect();
            let avoid = shards.iter().fold(0, |bits, s| bits | 1 << s);
            let decoded = self.decode_blocks(stripe, &shards, 0..len, &have, avoid, &mut faults).await.ok_or_else(|| Error::Lost {
                stripe: stripe.id,
                why: format!("too few shards of {} are left to make others from", stripe.code),
            })?;
            for (nth, at) in absent.into_iter().enumerate() {
                bytes[at] = Some(decoded.slice(nth * len as usize..(nth + 1) * len as usize));
            }
        }
        Ok(bytes.into_iter().flatten().collect())
    }

    /// Whom the stripe belonged to when it was written, from the first head that can be read.
    pub(crate) async fn hint_of(&self, stripe: &StripeMeta) -> Hint {
        for (shard, osd) in stripe.osds.iter().enumerate() {
            let Some(slot) = self.slot(*osd).filter(|s| s.failure().is_none()) else { continue };
            if let Ok(head) = slot.service.head(ShardKey { stripe: stripe.id, shard: shard as u8 }).await
                && head.digest == stripe.digest
            {
                return head.hint;
            }
        }
        Hint::default()
    }

    /// OSDs that may become the home of a shard, best first: its own, then those without a shard of the stripe.
    fn homes_for(&self, stripe: &StripeMeta, shard: usize) -> SmallVec<[Arc<Slot>; 8]> {
        let slots = self.slots();
        let room = stripe.shard_bytes() as u64 + RECORD_OVERHEAD;
        let takes = |s: &Slot| s.failure().is_none() && !s.leaving() && s.owed() < self.config.owed_max && s.service.space().free >= room;
        let mut homes: SmallVec<[Arc<Slot>; 8]> = slots.get(stripe.osds[shard]).filter(|s| takes(s)).cloned().into_iter().collect();
        let others: SmallVec<[Candidate; 16]> = slots
            .list
            .iter()
            .filter(|s| takes(s) && !stripe.osds.contains(&s.osd))
            .map(|s| Candidate { osd: s.osd, weight: weight(s.service.space().free) })
            .collect();
        let ranked = place(stripe.id, Code::new(others.len() as u8, 0), &others);
        homes.extend(ranked.iter().filter_map(|osd: &OsdId| slots.get(*osd).cloned()));
        homes
    }
}

/// Puts a shard on its home, makes it stable, and reads it back from the device.
pub(crate) async fn place_shard(home: &Slot, put: &ShardPut) -> shard::Result<()> {
    let key = put.head.key;
    let mut again = true;
    loop {
        let placed = match home.service.put(put.clone()).await {
            Ok(()) => match home.service.flush().await {
                Ok(()) => home.service.verify(key).await,
                Err(e) => Err(e),
            },
            Err(e) => Err(e),
        };
        match placed {
            Ok(head) if head.digest == put.head.digest => {
                home.acknowledged(key.stripe, put.head.digest);
                return Ok(());
            }
            // Another writing of the stripe that no record names, or bytes that did not reach the device: it makes room.
            Ok(_) | Err(shard::Error::Corrupt { .. }) if again => {
                failpoint::reached("client.rebuild_made_room");
                again = false;
                home.service.drop_shards(vec![key]).await?;
            }
            Ok(_) => return Err(shard::Error::Corrupt { osd: home.osd, key, why: "another writing of it is held".into() }),
            Err(e) => return Err(e),
        }
    }
}
