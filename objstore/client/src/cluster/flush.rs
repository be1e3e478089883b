//! Flushing: one device flush per flush domain, whatever the number of stripes and OSDs.
//!
//! What always holds: a stripe is answered only when a write quorum of its shards is stable; shards whose flush failed, or came
//! after the hedge, are named missing. A shard that was missing but arrived before the flush is flushed with the rest and no longer
//! missing.

use super::slot::{Owed, Slot};
use super::{Cluster, write_quorum};
use crate::{Error, Result};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::{OsdId, StripeMeta};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tokio::time::Instant;

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
    pub(crate) async fn flush_stripes(&self, stripes: Vec<Arc<StripeMeta>>) -> Result<Vec<Arc<StripeMeta>>> {
        if stripes.is_empty() {
            return Ok(stripes);
        }
        self.metrics.flushes.inc();
        let missing: SmallVec<[u32; 8]> = stripes.iter().map(|s| self.still_missing(s)).collect();
        let domains = self.domains_of(&stripes, &missing);
        self.metrics.domain_flushes.inc_by(domains.len() as u64);
        self.metrics.osd_flushes.inc_by(domains.iter().map(|(_, slots)| slots.len() as u64).sum());
        let mut stable: SmallVec<[OsdId; 16]> = SmallVec::new();
        if domains.len() <= 1 {
            for (_, slots) in domains {
                stable.extend(flush_domain(slots).await);
            }
        } else {
            Box::pin(self.flush_domains(domains, &stripes, &missing, &mut stable)).await;
        }
        stripes.into_iter().zip(missing).map(|(stripe, missing)| self.flushed(stripe, missing, &stable)).collect()
    }

    /// The shards that were missing when the stripe was written and have not arrived since.
    fn still_missing(&self, stripe: &StripeMeta) -> u32 {
        if stripe.missing == 0 {
            return 0;
        }
        let late = self.late.take(stripe.id, stripe.digest) & stripe.missing;
        self.metrics.late_shards.inc_by(late.count_ones() as u64);
        stripe.missing & !late
    }

    /// The OSDs to flush, by domain.
    fn domains_of(&self, stripes: &[Arc<StripeMeta>], missing: &[u32]) -> Domains {
        let mut domains = Domains::new();
        for (stripe, missing) in stripes.iter().zip(missing) {
            for slot in present(stripe, *missing).filter_map(|(_, osd)| self.slot(osd)) {
                match domains.iter_mut().find(|(d, _)| *d == slot.domain) {
                    None => domains.push((slot.domain, smallvec![slot.clone()])),
                    Some((_, slots)) if slots.iter().any(|s| s.osd == slot.osd) => {}
                    Some((_, slots)) => slots.push(slot.clone()),
                }
            }
        }
        domains
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

/// Shards that should be there, and their homes.
fn present(stripe: &StripeMeta, missing: u32) -> impl Iterator<Item = (usize, OsdId)> + '_ {
    stripe.osds.iter().copied().enumerate().filter(move |(i, _)| missing >> i & 1 == 0)
}

/// Shards that are stable.
fn holds(stripe: &StripeMeta, missing: u32, stable: &[OsdId]) -> usize {
    present(stripe, missing).filter(|(_, osd)| stable.contains(osd)).count()
}
