//! Flushing: one device flush per flush domain, whatever the number of stripes and OSDs.
//!
//! What always holds: a stripe is answered only when a write quorum of its shards is stable; shards whose flush failed, or came
//! after the hedge, are named missing; so are those that an OSD acknowledged which another has replaced since, unless the stripe needs them:
//! then they are made anew. A shard that was missing but arrived before the flush is flushed with the rest and no longer
//! missing.

use super::slot::{Owed, Slot, Slots};
use super::{Cluster, write_quorum};
use crate::{Error, Rebuild, Result};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::{OsdId, StripeMeta};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a flush that an OSD is needed for waits for another to come in its place.
const CHANGE_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// OSDs whose flush was answered Ok.
type Flushed = SmallVec<[OsdId; 6]>;
/// OSDs to flush, by their domain.
type Domains = SmallVec<[(u64, SmallVec<[Arc<Slot>; 6]>); 6]>;

async fn flush_domain(slots: SmallVec<[Arc<Slot>; 6]>) -> Flushed {
    if let [one] = &slots[..] {
        return if one.service.flush().await.is_ok() { smallvec![one.osd] } else { smallvec![] };
    }
    // All are asked before the first is polled, so that one flush of the device serves them all.
    let flushes: SmallVec<[_; 6]> = slots.iter().map(|s| s.service.flush()).collect();
    let results = join_all(flushes).await;
    slots.iter().zip(results).filter(|(_, r)| r.is_ok()).map(|(s, _)| s.osd).collect()
}

impl Cluster {
    pub(crate) async fn flush_stripes(&self, mut stripes: Vec<Arc<StripeMeta>>) -> Result<Vec<Arc<StripeMeta>>> {
        if stripes.is_empty() {
            return Ok(stripes);
        }
        self.metrics.flushes.inc();
        let mut until = None;
        loop {
            let slots = self.slots();
            let failed = match self.flush_with(&mut stripes, &slots).await {
                Ok(()) => return Ok(stripes),
                Err(e) => e,
            };
            let now = Instant::now();
            if now >= *until.get_or_insert(now + CHANGE_MAX) || !self.are_changing(&stripes, &slots) {
                return Err(failed);
            }
            failpoint::reached("client.flush_again");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// One try, with the OSDs there are now.
    async fn flush_with(&self, stripes: &mut [Arc<StripeMeta>], slots: &Slots) -> Result<()> {
        let mut missing: SmallVec<[u32; 8]> = SmallVec::new();
        for stripe in stripes.iter_mut() {
            self.take_late(stripe);
            let went = went(stripe, slots);
            let mut lacks = stripe.missing | went;
            if went != 0 {
                failpoint::reached("client.flush_of_another");
            }
            if went != 0 && stripe.code.n() - (lacks.count_ones() as usize) < write_quorum(stripe.code) {
                lacks = Box::pin(self.make_again(stripe, lacks, went)).await;
            }
            missing.push(lacks);
        }
        let domains = domains_of(stripes, &missing, slots);
        self.metrics.domain_flushes.inc_by(domains.len() as u64);
        self.metrics.osd_flushes.inc_by(domains.iter().map(|(_, slots)| slots.len() as u64).sum());
        let mut stable: SmallVec<[OsdId; 16]> = SmallVec::new();
        if domains.len() <= 1 {
            for (_, slots) in domains {
                stable.extend(flush_domain(slots).await);
            }
        } else {
            Box::pin(self.flush_domains(domains, stripes, &missing, &mut stable)).await;
        }
        for (stripe, missing) in stripes.iter_mut().zip(missing) {
            *stripe = self.flushed(stripe.clone(), missing, &stable)?;
        }
        Ok(())
    }

    /// An OSD of these stripes is being replaced, or was since the set was `slots`.
    fn are_changing(&self, stripes: &[Arc<StripeMeta>], slots: &Slots) -> bool {
        let now = self.slots();
        let same = |osd: &OsdId| match (now.get(*osd), slots.get(*osd)) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        stripes.iter().any(|s| went(s, &now) != 0 || !s.osds.iter().all(same))
    }

    /// What was missing when the stripe was written and has arrived since is missing no more.
    fn take_late(&self, stripe: &mut Arc<StripeMeta>) {
        if stripe.missing == 0 {
            return;
        }
        let late = self.late.take(stripe.id, stripe.digest) & stripe.missing;
        if late != 0 {
            self.metrics.late_shards.inc_by(late.count_ones() as u64);
            *stripe = Arc::new(StripeMeta { missing: stripe.missing & !late, ..(**stripe).clone() });
        }
    }

    /// Makes shards that went with their OSD anew from the others; answers what is missing then.
    async fn make_again(&self, stripe: &mut Arc<StripeMeta>, missing: u32, went: u32) -> u32 {
        let without = Arc::new(StripeMeta { missing, ..(**stripe).clone() });
        match self.rebuild_shards(Rebuild { stripe: without, shards: went, readable: 0, task: 0 }).await {
            Ok(made) => {
                *stripe = made;
                stripe.missing
            }
            Err(e) => {
                tracing::warn!(stripe = %stripe.id, "what went with its OSD could not be made anew: {e}");
                missing
            }
        }
    }

    /// Flushes several domains at once, and past the hedge is content when every stripe has its quorum.
    async fn flush_domains(&self, domains: Domains, stripes: &[Arc<StripeMeta>], missing: &[u32], stable: &mut SmallVec<[OsdId; 16]>) {
        let begun = Instant::now();
        let mut waiting: SmallVec<[u64; 6]> = domains.iter().map(|(d, _)| *d).collect();
        let slots: SmallVec<[Arc<Slot>; 16]> = domains.iter().flat_map(|(_, s)| s.iter().cloned()).collect();
        let mut flushes: FuturesUnordered<_> =
            domains.into_iter().map(|(domain, slots)| async move { (domain, flush_domain(slots).await) }).collect();
        let hedge = tokio::time::sleep(self.hedge(&self.flush_times));
        tokio::pin!(hedge);
        let mut late = false;
        loop {
            let enough = || stripes.iter().zip(missing).all(|(s, m)| holds(s, *m, stable) >= write_quorum(s.code));
            if late && enough() {
                break;
            }
            tokio::select! {
                biased;
                answer = flushes.next() => match answer {
                    None => return self.flush_times.record(begun.elapsed()),
                    Some((domain, flushed)) => {
                        waiting.retain(|d| *d != domain);
                        stable.extend(flushed);
                    }
                },
                () = &mut hedge, if !late => late = true,
            }
        }
        failpoint::reached("client.flush_hedged");
        self.metrics.flush_hedges.inc();
        let owed: Option<SmallVec<[Owed; 6]>> =
            slots.iter().filter(|s| waiting.contains(&s.domain)).map(|s| s.owe(self.config.owed_max)).collect();
        let Some(owed) = owed else { return };
        let times = self.flush_times.clone();
        tokio::spawn(async move {
            while flushes.next().await.is_some() {}
            times.record(begun.elapsed());
            drop(owed);
        });
    }

    /// The stripe's record after the flush.
    fn flushed(&self, stripe: Arc<StripeMeta>, missing: u32, stable: &[OsdId]) -> Result<Arc<StripeMeta>> {
        let failed: u32 = present(&stripe, missing).filter(|(_, osd)| !stable.contains(osd)).map(|(i, _)| 1 << i).sum();
        self.metrics.missing_shards.inc_by(failed.count_ones() as u64);
        let missing = missing | failed;
        let (up, need) = (stripe.code.n() - missing.count_ones() as usize, write_quorum(stripe.code));
        if up < need {
            failpoint::reached("client.flush_below_quorum");
            return Err(Error::Unavailable { up, need });
        }
        if missing == stripe.missing {
            return Ok(stripe);
        }
        Ok(Arc::new(StripeMeta { missing, ..(*stripe).clone() }))
    }
}

/// Shards that were acknowledged by an OSD which another has replaced since, as bits.
fn went(stripe: &StripeMeta, slots: &Slots) -> u32 {
    let went = |osd: OsdId| slots.get(osd).is_some_and(|s| !s.answers_for(stripe.id, stripe.digest));
    present(stripe, stripe.missing).filter(|(_, osd)| went(*osd)).map(|(i, _)| 1 << i).sum()
}

/// The OSDs to flush, by domain.
fn domains_of(stripes: &[Arc<StripeMeta>], missing: &[u32], slots: &Slots) -> Domains {
    let mut domains = Domains::new();
    for (stripe, missing) in stripes.iter().zip(missing) {
        for slot in present(stripe, *missing).filter_map(|(_, osd)| slots.get(osd)) {
            match domains.iter_mut().find(|(d, _)| *d == slot.domain) {
                None => domains.push((slot.domain, smallvec![slot.clone()])),
                Some((_, of)) if of.iter().any(|s| s.osd == slot.osd) => {}
                Some((_, of)) => of.push(slot.clone()),
            }
        }
    }
    domains
}

/// Shards that should be there, and their homes.
fn present(stripe: &StripeMeta, missing: u32) -> impl Iterator<Item = (usize, OsdId)> + '_ {
    stripe.osds.iter().copied().enumerate().filter(move |(i, _)| missing >> i & 1 == 0)
}

/// Shards that are stable.
fn holds(stripe: &StripeMeta, missing: u32, stable: &[OsdId]) -> usize {
    present(stripe, missing).filter(|(_, osd)| stable.contains(osd)).count()
}
