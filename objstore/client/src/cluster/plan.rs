//! Where a stripe's shards go: the code that fits, and a home for each shard.
//!
//! What always holds: homes are distinct OSDs in service with room for their shard. A shard is never sent where this write knows that
//! its key is held under another digest, as long as any order of the homes avoids that.

use super::Cluster;
use super::put::Round;
use super::slot::{Slot, Slots};
use crate::{Error, Result};
use holdfast_objstore_ec::placement::{Candidate, place};
use holdfast_objstore_proto::stripe::shard_bytes;
use holdfast_objstore_proto::{Code, OsdId, StripeId, shard};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a record adds to its shard on a device, at most: header, trailer and their padding.
pub(crate) const RECORD_OVERHEAD: u64 = 12 << 10;

/// What earlier rounds of one write have found out.
#[derive(Default)]
pub(crate) struct Known {
    /// OSDs that refused a shard; `true`: for want of room.
    pub refused: SmallVec<[(OsdId, bool); 4]>,
    /// Keys (home, shard) that are held there, and the code that made the shard: in any other the digest differs.
    /// `None`: the OSD said that it holds another digest.
    pub held: SmallVec<[(OsdId, u8, Option<Code>); 8]>,
}

impl Known {
    /// Remembers a round in `code` that stayed below its quorum.
    pub fn learn(&mut self, code: Code, round: &Round) {
        for (slot, shard, error) in &round.refused {
            match error {
                shard::Error::Corrupt { .. } => self.held.push((slot.osd, *shard, None)),
                error => self.refused.push((slot.osd, matches!(error, shard::Error::Full { .. }))),
            }
        }
        for (shard, home) in round.homes.iter().enumerate().filter(|(i, _)| round.acked >> i & 1 == 1) {
            self.held.push((home.osd, shard as u8, Some(code)));
        }
    }
}

pub(crate) struct Plan {
    pub code: Code,
    /// Home of shard i.
    pub homes: SmallVec<[Arc<Slot>; 6]>,
    /// OSDs with room that no shard goes to, roomiest last.
    pub spares: SmallVec<[Arc<Slot>; 6]>,
}

impl Cluster {
    /// Plans a stripe of `len` bytes: in `wanted` or the widest narrower code that fits what is in service and not full.
    pub(crate) fn plan(&self, id: StripeId, wanted: Code, len: u32, known: &Known) -> Result<Plan> {
        let mut code = wanted;
        let known_slots = self.slots();
        let mut open: SmallVec<[(Arc<Slot>, u64); 16]> = SmallVec::new();
        loop {
            // A narrower code has larger shards, which fewer OSDs may have room for; so until it settles.
            let room = shard_bytes(code, len) as u64 + RECORD_OVERHEAD;
            let full = candidates(&known_slots, self.config.owed_max, room, known, &mut open);
            match wanted.narrowed(open.len()) {
                Some(fits) if fits == code => break,
                Some(fits) => code = fits,
                None if wanted.narrowed(open.len() + full).is_some() => return Err(Error::Full),
                None => return Err(Error::Unavailable { up: open.len(), need: wanted.n().min(2) }),
            }
        }
        let candidates: SmallVec<[Candidate; 16]> = open.iter().map(|(s, free)| Candidate { osd: s.osd, weight: weight(*free) }).collect();
        let mut homes = place(id, code, &candidates);
        let mut spares: SmallVec<[(Arc<Slot>, u64); 16]> = open.into_iter().filter(|(s, _)| !homes.contains(&s.osd)).collect();
        spares.sort_by_key(|(_, free)| *free);
        let mut spares: SmallVec<[OsdId; 16]> = spares.into_iter().map(|(s, _)| s.osd).collect();
        let held: SmallVec<[(OsdId, u8); 8]> =
            known.held.iter().filter(|(_, _, by)| *by != Some(code)).map(|(osd, shard, _)| (*osd, *shard)).collect();
        avoid(&mut homes, &mut spares, &held);
        let slot = |osd: &OsdId| known_slots.get(*osd).expect("placement answers candidates").clone();
        Ok(Plan { code, homes: homes.iter().map(slot).collect(), spares: spares.iter().map(slot).collect() })
    }
}

/// Collects the OSDs that can take a shard of `room` bytes with the bytes free there; answers how many more are only full.
fn candidates(slots: &Slots, owed_max: u32, room: u64, known: &Known, open: &mut SmallVec<[(Arc<Slot>, u64); 16]>) -> usize {
    open.clear();
    let mut full = 0;
    for slot in &slots.list {
        match known.refused.iter().find(|(osd, _)| *osd == slot.osd) {
            Some((_, true)) => full += 1,
            Some((_, false)) => {}
            None if slot.failure().is_some() || slot.leaving() || slot.owed() >= owed_max => {}
            None => match slot.service.space().free {
                free if free >= room => open.push((slot.clone(), free)),
                _ => full += 1,
            },
        }
    }
    full
}

/// Free space in MiB.
pub(crate) fn weight(free: u64) -> u32 {
    (free >> 20).clamp(1, u32::MAX as u64) as u32
}

/// Reorders `homes`, or takes from `spares`, so that no shard goes where its key is held already.
fn avoid(homes: &mut [OsdId], spares: &mut SmallVec<[OsdId; 16]>, held: &[(OsdId, u8)]) {
    if held.is_empty() {
        return;
    }
    let clash = |osd: OsdId, shard: usize| held.contains(&(osd, shard as u8));
    for i in 0..homes.len() {
        if !clash(homes[i], i) {
            continue;
        }
        if let Some(at) = spares.iter().rposition(|s| !clash(*s, i)) {
            std::mem::swap(&mut homes[i], &mut spares[at]);
        } else if let Some(j) = (0..homes.len()).find(|&j| j != i && !clash(homes[j], i) && !clash(homes[i], j)) {
            homes.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_avoid_homes_that_hold_their_key() {
        let osds = |n: u16| (0..n).map(OsdId).collect::<Vec<_>>();
        let mut homes = osds(4);
        let held: Vec<_> = (0..4u8).map(|i| (OsdId(i as u16), i)).collect();
        avoid(&mut homes, &mut SmallVec::new(), &held);
        assert!(homes.iter().enumerate().all(|(i, h)| h.0 != i as u16), "{homes:?}");
        let mut sorted = homes.clone();
        sorted.sort();
        assert_eq!(sorted, osds(4));

        let mut homes = osds(2);
        let mut spares = SmallVec::from_slice(&[OsdId(9)]);
        avoid(&mut homes, &mut spares, &[(OsdId(1), 1)]);
        assert_eq!((homes, spares[0]), (vec![OsdId(0), OsdId(9)], OsdId(1)));
    }
}
