//! Walks: what OSDs hold is held against what records name, in order of stripe ids, a page at a time.
//!
//! What always holds: a walk sees every stripe that was published before it began and is still there when it gets to it. What a record
//! names and its OSD lacks is queued; what an OSD holds and nothing names is dropped, after the record was read while the stripe was in hand.
//! It reads indexes alone, unless a scrub asks for more.
//! What it leaves out: repairing.

use crate::mend::{code_of, improves};
use crate::queue::Job;
use crate::repair::Shared;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client::Standing;
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::{OsdId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Keys of one OSD looked at in one step.
const KEYS: usize = 1024;
/// After a step that metadata did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// A moment, told by how many walks had begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Begun(pub u64);

impl Begun {
    /// A moment that no walk comes after.
    pub const NEVER: Begun = Begun(u64::MAX);
}

#[derive(Default)]
pub(crate) struct Walks {
    state: Mutex<WalkState>,
    asked: Notify,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WalkState {
    /// One runs or was asked for.
    pub under_way: bool,
    /// Another was asked for since it began.
    again: bool,
    /// Walks begun, and the last of them that ended.
    pub begun: u64,
    pub ended: u64,
    /// What the queue had passed over when that one began.
    pub passed_over: u64,
    pub seen: u64,
    pub total: u64,
    /// Data bytes of the stripes it queued.
    pub found_bytes: u64,
}

impl Walks {
    /// The one asked for begins; false: none was.
    fn begin(&self) -> bool {
        let mut s = self.state.lock();
        s.under_way = std::mem::take(&mut s.again);
        s.begun += s.under_way as u64;
        s.under_way
    }

    fn end(&self, passed_over: u64) {
        let mut s = self.state.lock();
        (s.ended, s.passed_over) = (s.begun, passed_over);
    }

    /// Begins a walk, or another one after the one that runs.
    pub fn ask(&self) {
        let mut s = self.state.lock();
        s.under_way = true;
        s.again = true;
        drop(s);
        self.asked.notify_one();
    }

    pub fn state(&self) -> WalkState {
        *self.state.lock()
    }
}

/// What one page of a walk found.
#[derive(Default)]
pub(crate) struct Page {
    /// The last stripe of it; `None`: there are no more.
    pub last: Option<StripeId>,
    pub stripes: Vec<Arc<StripeMeta>>,
    /// Stripes to look at, with the shards that lack.
    pub lacking: Vec<Job>,
}

impl Shared {
    pub(crate) async fn walk_on(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stopped() => return,
                () = self.walks.asked.notified() => {}
            }
            while self.walks.begin() {
                let passed_over = self.queue.passed_over();
                tokio::select! {
                    biased;
                    () = self.stopped() => return,
                    () = self.walk() => self.walks.end(passed_over),
                }
            }
        }
    }

    /// One walk over everything.
    async fn walk(&self) {
        {
            let mut s = self.walks.state.lock();
            (s.seen, s.total, s.found_bytes) = (0, self.records.count(), 0);
        }
        let mut after = None;
        loop {
            let begun = Instant::now();
            let page = match self.page(after).await {
                Ok(page) => page,
                Err(why) => {
                    tracing::debug!("a walk waits: {why}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            {
                let mut s = self.walks.state.lock();
                s.seen += page.stripes.len() as u64;
                s.found_bytes += page.lacking.iter().map(|j| j.bytes).sum::<u64>();
            }
            for job in page.lacking {
                self.queue.push_in_time(job).await;
            }
            if page.last.is_none() {
                return;
            }
            after = page.last;
            self.pace.after(begun.elapsed(), self.config.share).await;
        }
    }

    /// The next page after `after`: its stripes, and what lacks. Drops what nothing names.
    pub(crate) async fn page(&self, after: Option<StripeId>) -> Result<Page, String> {
        if after.is_none() {
            *self.codes.lock() = self.records.codes()?;
        }
        let stripes = self.records.stripes(after, self.config.page)?;
        let last = (stripes.len() == self.config.page).then(|| stripes.last().map(|s| s.id)).flatten();
        let standing = self.objects.standing();
        let mut lacking: BTreeMap<StripeId, u32> = BTreeMap::new();
        for osd in standing.iter().filter(|s| s.up) {
            let mut named: BTreeSet<ShardKey> = BTreeSet::new();
            for stripe in &stripes {
                let shard = stripe.osds.iter().position(|o| *o == osd.osd);
                named.extend(shard.map(|shard| ShardKey { stripe: stripe.id, shard: shard as u8 }));
            }
            let extra = self.against(osd.osd, after, last, &mut named).await?;
            for key in named {
                *lacking.entry(key.stripe).or_default() |= 1 << key.shard;
            }
            self.drop_unnamed(osd.osd, extra).await?;
        }
        let jobs = stripes.iter().filter_map(|stripe| {
            let lacks = lacking.get(&stripe.id).copied().unwrap_or(0);
            let look = lacks != 0 || stripe.missing != 0 || self.misplaced(stripe, &standing) || self.narrow(stripe);
            (look && !stripe.osds.is_empty()).then(|| Job::of(stripe, lacks))
        });
        Ok(Page { last, lacking: jobs.collect(), stripes })
    }

    /// Takes what the OSD holds between the two stripes off `named`; answers what it holds beside that.
    async fn against(
        &self,
        osd: OsdId,
        after: Option<StripeId>,
        last: Option<StripeId>,
        named: &mut BTreeSet<ShardKey>,
    ) -> Result<Vec<ShardKey>, String> {
        let mut extra = Vec::new();
        let mut from = after.map(|stripe| ShardKey { stripe, shard: u8::MAX });
        loop {
            let keys = self.objects.holdings(osd, from, KEYS).await.map_err(|e| format!("{osd}: {e}"))?;
            let more = keys.len() == KEYS;
            for key in keys {
                if last.is_some_and(|last| key.stripe > last) {
                    return Ok(extra);
                }
                from = Some(key);
                if !named.remove(&key) {
                    extra.push(key);
                }
            }
            if !more {
                return Ok(extra);
            }
            // One with much garbage must not fill memory: the rest of it is met by the next walk.
            if extra.len() >= KEYS * 16 {
                self.drop_unnamed(osd, std::mem::take(&mut extra)).await?;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Drops what an OSD holds and nothing names: what was written and never published, what a delete missed, what was repaired elsewhere.
    async fn drop_unnamed(&self, osd: OsdId, keys: Vec<ShardKey>) -> Result<(), String> {
        if self.records.may_be_old() {
            return Ok(());
        }
        for keys in keys.chunks(KEYS) {
            let mut ids: Vec<StripeId> = keys.iter().map(|k| k.stripe).collect();
            ids.dedup();
            let live: BTreeMap<StripeId, bool> = ids.iter().copied().zip(self.records.live(&ids)?).collect();
            let mut unnamed = Vec::new();
            for key in keys {
                match self.records.stripe(key.stripe)? {
                    // Published, and its record names another place, or this one by now.
                    Some(_) => unnamed.push((osd, *key)),
                    None if !live.get(&key.stripe).copied().unwrap_or(true) => {
                        failpoint::reached("repair.unnamed_shard");
                        self.metrics.garbage_shards.inc();
                        unnamed.push((osd, *key));
                    }
                    // A living session may still publish it.
                    None => {}
                }
            }
            self.bury_now(unnamed).await;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// A shard lies on an OSD that is to be left, or that was removed, and there is another that could take it.
    fn misplaced(&self, stripe: &StripeMeta, standing: &[Standing]) -> bool {
        let stays = |osd: &OsdId| standing.iter().any(|s| s.osd == *osd && !s.leaving);
        let other = |s: &Standing| s.up && !s.leaving && !stripe.osds.contains(&s.osd);
        !stripe.osds.iter().all(stays) && standing.iter().any(other)
    }

    /// It was perhaps written narrower than its bucket's code, and something wider fits now.
    fn narrow(&self, stripe: &StripeMeta) -> bool {
        let codes = self.codes.lock();
        let wider = |code| {
            code_of(code, stripe.len) != stripe.code
                && self.objects.fitting(code, stripe.len).is_some_and(|fits| improves(fits, stripe.code))
        };
        codes.iter().any(|(_, code)| wider(*code))
    }
}
