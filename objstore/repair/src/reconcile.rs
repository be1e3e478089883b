//! Reconciling: what an OSD holds against what metadata knows, range by range. The backstop for whatever was written and never published,
//! missed deletes, and OSDs that were out of contact.
//!
//! What always holds. Only ranges that no session may publish any more are looked at; each is fenced at the OSD before its live ids are
//! asked for, so nothing can arrive behind the look. An OSD is given all fences before it serves. Ids of an earlier incarnation of the
//! metadata (there was a restore) are never deleted: those that nothing refers to are counted for the operator.
//! A pass goes on where it stopped when an OSD failed or the process was busy; one follows each end of a session, and one an hour.
//! What it leaves out: reading shards (scrub does, and calls [`range`] for what it walks over).

use crate::records::{Failure, Ranges};
use holdfast_objstore_proto::shard::{Error, ShardKey, ShardService};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Shards looked at in one step; between steps other work runs.
const PAGE: usize = 512;
/// Between two passes when no session ends.
const EVERY: Duration = Duration::from_secs(3600);
/// After a pass that an OSD or metadata cut short.
const AGAIN: Duration = Duration::from_secs(30);
/// Lists made anew when an OSD has seen a newer one.
const TRIES_MAX: u32 = 3;

/// Raises at one OSD the fence of every range that is closed. To be called before it serves, also when it comes back or is new.
pub async fn fence(osd: &dyn ShardService, ranges: &dyn Ranges) -> Result<(), Failure> {
    let (_, closed) = ranges.closed()?;
    osd.fence(closed).await.map_err(said)
}

fn said(e: Error) -> Failure {
    e.to_string()
}

/// Reconciles one range of stripe ids at one OSD: fences it, and drops every stripe of it that the OSD holds and metadata does not know.
/// Answers how many were dropped, durably. `range` must be closed (part of one of [`Ranges::closed`]) and should hold no more
/// ids than fit in memory as a list; it may be repeated at any time. For scrub, which walks over a device's shards anyway.
pub async fn range(osd: &dyn ShardService, ranges: &dyn Ranges, range: StripeRange) -> Result<u64, Failure> {
    for _ in 1..TRIES_MAX {
        match range_once(osd, ranges, range).await? {
            Err(Error::Stale { .. }) => {}
            done => return done.map_err(said),
        }
    }
    range_once(osd, ranges, range).await?.map_err(said)
}

async fn range_once(osd: &dyn ShardService, ranges: &dyn Ranges, range: StripeRange) -> Result<Result<u64, Error>, Failure> {
    osd.fence(vec![range]).await.map_err(said)?;
    let (stamp, _) = ranges.closed()?;
    let live = ranges.held_in(range)?;
    Ok(osd.retire(range, live, stamp).await)
}

/// How far reconciling is, for `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Whole passes over all OSDs since the start.
    pub passes: u64,
    /// Stripes deleted that nothing referred to.
    pub deleted: u64,
    /// Shards of an earlier incarnation that nothing refers to, in the last pass. They are kept.
    pub unconfirmed: u64,
    pub running: bool,
}

/// The background pass.
pub struct Reconciler {
    ranges: Arc<dyn Ranges>,
    progress: Mutex<Progress>,
    /// Where a pass that was cut short goes on, by OSD: behind this key.
    cursors: Mutex<BTreeMap<OsdId, ShardKey>>,
}

impl Reconciler {
    pub fn new(ranges: Arc<dyn Ranges>) -> Arc<Self> {
        Arc::new(Self { ranges, progress: Mutex::default(), cursors: Mutex::default() })
    }

    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Passes over the OSDs that `osds` answers, again and again; ends when metadata does.
    pub async fn run(self: Arc<Self>, osds: impl Fn() -> Vec<Arc<dyn ShardService>>) {
        loop {
            self.progress.lock().running = true;
            let mut whole = true;
            for osd in osds().into_iter().filter(|o| o.failure().is_none()) {
                if let Err(e) = self.pass(&*osd).await {
                    whole = false;
                    if self.ranges.is_over() {
                        tracing::debug!("reconcile was cut short");
                        return;
                    }
                    tracing::warn!(osd = %osd.osd(), "reconcile was cut short and will go on: {e}");
                }
            }
            {
                let mut p = self.progress.lock();
                p.running = false;
                p.passes += whole as u64;
            }
            let pause = if whole { EVERY } else { AGAIN };
            tokio::select! {
                biased;
                () = self.ranges.more_closed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One pass over one OSD, from where the last one stopped.
    pub async fn pass(&self, osd: &dyn ShardService) -> Result<u64, Failure> {
        fence(osd, &*self.ranges).await?;
        let (stamp, closed) = self.ranges.closed()?;
        let mut after = self.cursors.lock().get(&osd.osd()).copied();
        let (mut deleted, mut unconfirmed) = (0, 0);
        loop {
            let page = osd.list(after, PAGE).await.map_err(said)?;
            let (Some(first), Some(last)) = (page.first().map(|k| k.stripe), page.last()) else { break };
            let all = between(first, last.stripe);
            if (first.incarnation, first.group) != (last.stripe.incarnation, last.stripe.group) || first.incarnation != stamp.incarnation {
                unconfirmed += self.unreferenced(&page, stamp.incarnation)?;
            }
            for r in closed.iter().filter_map(|r| overlap(*r, all)) {
                deleted += range(osd, &*self.ranges, r).await?;
            }
            after = Some(*last);
            self.cursors.lock().insert(osd.osd(), *last);
            tokio::task::yield_now().await;
        }
        self.cursors.lock().remove(&osd.osd());
        let mut p = self.progress.lock();
        p.deleted += deleted;
        p.unconfirmed = unconfirmed;
        drop(p);
        if deleted > 0 {
            tracing::info!(osd = %osd.osd(), stripes = deleted, "reconcile deleted what nothing refers to");
        }
        Ok(deleted)
    }

    /// Shards of other incarnations that metadata does not know.
    fn unreferenced(&self, page: &[ShardKey], incarnation: u32) -> Result<u64, Failure> {
        let mut n = 0;
        for key in page.iter().filter(|k| k.stripe.incarnation != incarnation) {
            n += self.ranges.held_in(StripeRange { first: key.stripe, count: 1 })?.is_empty() as u64;
        }
        Ok(n)
    }
}

/// The ids from `first` to `last`, of the last one's incarnation.
fn between(first: StripeId, last: StripeId) -> StripeRange {
    let first = if (first.incarnation, first.group) == (last.incarnation, last.group) { first } else { StripeId { counter: 0, ..last } };
    StripeRange { first, count: last.counter - first.counter + 1 }
}

fn overlap(a: StripeRange, b: StripeRange) -> Option<StripeRange> {
    if (a.first.incarnation, a.first.group) != (b.first.incarnation, b.first.group) {
        return None;
    }
    let from = a.first.counter.max(b.first.counter);
    let to = a.first.counter.saturating_add(a.count).min(b.first.counter.saturating_add(b.count));
    (from < to).then(|| StripeRange { first: StripeId { counter: from, ..a.first }, count: to - from })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_only_within_one_incarnation() {
        let id = |incarnation, counter| StripeId { incarnation, group: 0, counter };
        let r = |i, first, count| StripeRange { first: id(i, first), count };
        assert_eq!(overlap(r(1, 10, 10), r(1, 15, 100)), Some(r(1, 15, 5)));
        assert_eq!(overlap(r(1, 10, 10), r(1, 20, 5)), None);
        assert_eq!(overlap(r(1, 10, 10), r(2, 10, 10)), None);
        assert_eq!(between(id(1, 9), id(2, 4)), r(2, 0, 5));
        assert_eq!(between(id(2, 3), id(2, 4)), r(2, 3, 2));
    }
}
