//! Scrubs: walks that also read what they meet. A *light* one reads every shard's head; a *deep* one every block.
//!
//! What always holds: how far a scrub is, is kept durably now and then and when work ends, so a restart goes on where it stopped. What it
//! finds wrong is queued for repair. It reads what there is when it begins (or goes on after a restart), so it ends however much is written
//! meanwhile. Scrubs take a smaller share of the devices than repair, and run one at a time.

use crate::queue::Job;
use crate::repair::Shared;
use futures::future::join_all;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_proto::{StripeId, StripeMeta};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How much of each shard is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Its head.
    Light,
    /// Every block.
    Deep,
}

/// What is kept over restarts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubState {
    /// The scrub under way.
    pub running: Option<Running>,
    /// The last that came to its end.
    pub light: Option<Ended>,
    pub deep: Option<Ended>,
    /// When this was first kept: scrubs fall due counted from here until one has ended. Nanoseconds since 1970.
    pub since_ns: u64,
}

/// A scrub under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub depth: Depth,
    pub started_ns: u64,
    /// The last stripe it has looked at: incarnation, group, counter.
    pub after: Option<(u32, u32, u64)>,
    /// Stripes looked at, bytes read, shards found missing or corrupt.
    pub stripes: u64,
    pub bytes: u64,
    pub faults: u64,
}

/// A scrub that came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub started_ns: u64,
    pub ended_ns: u64,
    pub stripes: u64,
    pub bytes: u64,
    pub faults: u64,
}

/// For `status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ScrubStatus {
    #[serde(flatten)]
    pub state: ScrubState,
    /// About how many stripes there are.
    pub total: u64,
    /// One was asked for and has not begun.
    pub asked: bool,
}

/// Where the state is kept. Called now and then from background work; may block shortly.
pub trait ScrubStore: Send + Sync + 'static {
    /// What was kept, or nothing.
    fn load(&self) -> Option<ScrubState>;
    /// Keeps it durably; a failure only costs that a restart begins earlier, and is the store's to report.
    fn keep(&self, state: &ScrubState);
}

/// Kept after so long.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// Between two looks whether one is due.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Stripes of a page looked at at once.
const AT_ONCE: usize = 4;

pub(crate) struct Scrub {
    clock: Arc<dyn Clock>,
    store: Arc<dyn ScrubStore>,
    state: Mutex<(ScrubState, Option<Depth>, u64)>,
    asked: Notify,
}

impl Scrub {
    pub fn new(clock: Arc<dyn Clock>, store: Arc<dyn ScrubStore>) -> Scrub {
        let state = store.load().unwrap_or_else(|| {
            let fresh = ScrubState { since_ns: clock.wall_ns(), ..ScrubState::default() };
            store.keep(&fresh);
            fresh
        });
        Scrub { clock, store, state: Mutex::new((state, None, 0)), asked: Notify::new() }
    }

    pub fn ask(&self, depth: Depth) {
        let mut s = self.state.lock();
        s.1 = s.1.max(Some(depth));
        drop(s);
        self.asked.notify_one();
    }

    pub fn status(&self) -> ScrubStatus {
        let s = self.state.lock();
        ScrubStatus { state: s.0.clone(), total: s.2, asked: s.1.is_some() }
    }

    fn keep(&self) {
        let state = self.state.lock().0.clone();
        self.store.keep(&state);
    }

    /// Begins what was asked for, or what is due.
    fn begin(&self, light_every: Duration, deep_every: Duration) -> bool {
        let now = self.clock.wall_ns();
        let mut s = self.state.lock();
        let since = s.0.since_ns;
        let due = |last: &Option<Ended>, every: Duration| {
            now.saturating_sub(last.as_ref().map_or(since, |e| e.started_ns)) as u128 >= every.as_nanos()
        };
        let running = s.0.running.as_ref().map(|r| r.depth);
        let wanted = s.1.take().or_else(|| match (running, due(&s.0.deep, deep_every), due(&s.0.light, light_every)) {
            (Some(_), ..) | (None, false, false) => None,
            (None, true, _) => Some(Depth::Deep),
            (None, false, true) => Some(Depth::Light),
        });
        match wanted {
            // A light one is part of the deep one that runs.
            Some(depth) if running.is_none_or(|r| r <= depth) => {
                s.0.running = Some(Running { depth, started_ns: now, after: None, stripes: 0, bytes: 0, faults: 0 });
                true
            }
            _ => running.is_some(),
        }
    }

    fn after(&self) -> Option<(Depth, Option<StripeId>)> {
        let s = self.state.lock();
        let r = s.0.running.as_ref()?;
        Some((r.depth, r.after.map(|(incarnation, group, counter)| StripeId { incarnation, group, counter })))
    }

    fn step(&self, last: Option<StripeId>, stripes: u64, bytes: u64, faults: u64) {
        let now = self.clock.wall_ns();
        let mut s = self.state.lock();
        let Some(mut r) = s.0.running.take() else { return };
        r.stripes += stripes;
        r.bytes += bytes;
        r.faults += faults;
        match last {
            Some(id) => {
                r.after = Some((id.incarnation, id.group, id.counter));
                s.0.running = Some(r);
            }
            None => {
                let ended = Ended { started_ns: r.started_ns, ended_ns: now, stripes: r.stripes, bytes: r.bytes, faults: r.faults };
                if r.depth == Depth::Deep {
                    s.0.deep = Some(ended.clone());
                }
                s.0.light = Some(ended);
            }
        }
    }
}

/// Which stripes there were at one moment: of each block of ids the last one. Ids of a block are published about in their order.
#[derive(Default)]
struct There(HashMap<(u32, u32, u64), u64>);

impl There {
    fn block(id: StripeId) -> (u32, u32, u64) {
        (id.incarnation, id.group, id.counter >> 9)
    }

    fn add(&mut self, id: StripeId) {
        let last = self.0.entry(Self::block(id)).or_default();
        *last = id.counter.max(*last);
    }

    fn has(&self, id: StripeId) -> bool {
        self.0.get(&Self::block(id)).is_some_and(|last| id.counter <= *last)
    }
}

impl Shared {
    /// What there is now, from the records alone: far faster than anybody writes.
    async fn there(&self) -> There {
        let (mut there, mut after) = (There::default(), None);
        loop {
            match self.records.stripes(after, self.config.page) {
                Ok(stripes) => {
                    stripes.iter().for_each(|s| there.add(s.id));
                    after = stripes.last().map(|s| s.id);
                    if stripes.len() < self.config.page {
                        return there;
                    }
                    tokio::task::yield_now().await;
                }
                Err(why) => {
                    tracing::debug!("a scrub waits: {why}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    pub(crate) async fn scrub_on(self: Arc<Self>) {
        loop {
            if self.scrub.begin(self.config.light_every, self.config.deep_every) {
                tokio::select! {
                    biased;
                    () = self.stopped() => {
                        self.scrub.keep();
                        return;
                    }
                    () = self.scrub_all() => {}
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.stopped() => return,
                () = self.scrub.asked.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Goes on with the scrub under way to its end, or until another was asked for.
    async fn scrub_all(&self) {
        let mut kept = Instant::now();
        self.scrub.state.lock().2 = self.records.count();
        let there = self.there().await;
        while let Some((depth, after)) = self.scrub.after() {
            let page = match self.page(after).await {
                Ok(mut page) => {
                    page.stripes.retain(|s| there.has(s.id));
                    page
                }
                Err(why) => {
                    tracing::debug!("a scrub waits: {why}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let mut faults = 0;
            // Those are counted where each stripe is looked at.
            for job in page.lacking {
                self.queue.push_in_time(job).await;
            }
            let mut bytes = 0;
            for some in page.stripes.chunks(AT_ONCE) {
                let begun = Instant::now();
                let looks: Vec<_> = some.iter().map(|stripe| self.scrub_stripe(stripe, depth)).collect();
                for (read, job) in join_all(looks).await {
                    bytes += read;
                    if let Some(job) = job {
                        // A stripe that was deleted or moved while it was looked at lacked nothing.
                        let now = self.records.stripe(job.id).unwrap_or_default();
                        let as_it_was = some.iter().any(|s| now.as_ref() == Some(s));
                        faults += if as_it_was { job.suspect.count_ones() as u64 } else { 0 };
                        self.queue.push_in_time(job).await;
                    }
                }
                self.pace.after(begun.elapsed(), self.config.scrub_share).await;
            }
            self.metrics.scrub_faults.inc_by(faults);
            self.metrics.scrubbed_bytes.inc_by(bytes);
            self.scrub.step(page.last, page.stripes.len() as u64, bytes, faults);
            if page.last.is_none() || kept.elapsed() >= KEEP_EVERY {
                self.scrub.keep();
                kept = Instant::now();
            }
            if self.scrub.state.lock().1.is_some() {
                return;
            }
        }
    }

    /// Looks at every shard; answers the bytes read, and what is to be repaired. What is absent the walk has found.
    async fn scrub_stripe(&self, stripe: &Arc<StripeMeta>, depth: Depth) -> (u64, Option<Job>) {
        if stripe.osds.is_empty() {
            return (0, None);
        }
        let whole = if depth == Depth::Deep { u32::MAX } else { 0 };
        let seen = self.objects.examine(stripe, whole).await;
        self.metrics.scrubbed_shards.inc_by((seen.good | seen.corrupt).count_ones() as u64);
        let bytes = if depth == Depth::Deep { seen.good.count_ones() as u64 * stripe.shard_bytes() as u64 } else { 0 };
        let wrong = seen.corrupt | seen.absent;
        (bytes, (wrong != 0).then(|| Job::of(stripe, wrong)))
    }
}
