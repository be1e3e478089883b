//! The worker: takes what waits, fewest survivors first, and puts it right; gives back what records no longer name.
//!
//! What always holds: one task drives everything, on the runtime it was started in; it stops at the next step when told to. While clients
//! ask for something one stripe is in hand at a time, and pauses follow it.

use crate::config::Config;
use crate::mend::Outcome;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::progress::{Progress, Rate};
use crate::queue::{Held, Job, Queue};
use crate::records::Records;
use crate::scrub::{Depth, Scrub, ScrubStatus, ScrubStore};
use crate::walk::{Begun, Walks};
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::exec;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_client::{RepairSink, ShardFault, Upkeep};
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::{Code, OsdId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Shards no record names any more that wait out their grace, at most; the others are found by the next walk.
const GRAVES_MAX: usize = 65_536;

/// Pages of stripes with missing shards looked up at a time.
const MISSING_PAGES: usize = 16;

/// What all parts of repair share.
pub(crate) struct Shared {
    pub objects: Arc<dyn Upkeep>,
    pub records: Arc<dyn Records>,
    pub config: Config,
    pub metrics: Metrics,
    pub queue: Arc<Queue>,
    pub pace: Pace,
    pub rate: Rate,
    /// The codes of buckets, as a walk last read them.
    pub codes: Mutex<Vec<(u32, Code)>>,
    pub walks: Walks,
    pub scrub: Scrub,
    pub stop: Told<bool>,
    graves: Mutex<VecDeque<(Instant, Vec<(OsdId, ShardKey)>)>>,
    buried: Notify,
    tasks: AtomicU64,
}

/// Repair of one cluster, running from [`Repair::start`] to [`Repair::stop`].
pub struct Repair {
    shared: Arc<Shared>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Repair {
    /// `clock` dates scrubs and numbers tasks; `store` keeps how far a scrub is.
    pub fn new(
        objects: Arc<dyn Upkeep>,
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        store: Arc<dyn ScrubStore>,
        config: Config,
    ) -> Arc<Repair> {
        let shared = Shared {
            queue: Queue::new(config.queue_max),
            pace: Pace::new(objects.clone(), config.idle_after),
            scrub: Scrub::new(clock.clone(), store),
            // Grows from run to run, so that a task of a former one is never taken for one of this.
            tasks: AtomicU64::new(clock.wall_ns()),
            objects,
            records,
            config,
            metrics: Metrics::default(),
            rate: Rate::default(),
            codes: Mutex::default(),
            walks: Walks::default(),
            stop: Told::new(false),
            graves: Mutex::default(),
            buried: Notify::new(),
        };
        Arc::new(Repair { shared: Arc::new(shared), running: Mutex::default() })
    }

    /// Begins work in the current runtime, with a walk over everything.
    pub fn start(&self) {
        self.look_at_all();
        let parts = [
            tokio::spawn(exec::background(self.shared.clone().work())),
            tokio::spawn(exec::background(self.shared.clone().bury_on())),
            tokio::spawn(exec::background(self.shared.clone().walk_on())),
            tokio::spawn(exec::background(self.shared.clone().scrub_on())),
        ];
        self.running.lock().extend(parts);
    }

    /// Ends work; none is left when this returns. What waited is found again by the next start.
    pub async fn stop(&self) {
        self.shared.stop.tell(|s| *s = true);
        let running = std::mem::take(&mut *self.running.lock());
        for part in running {
            // A part that panicked is as gone as one that returned.
            let _ = part.await;
        }
    }

    /// Where reads and writes report what they had to go round.
    pub fn sink(&self) -> Arc<dyn RepairSink> {
        self.shared.clone()
    }

    /// OSDs changed: what waited is tried again, and everything is held against them in a walk.
    pub fn look_at_all(&self) {
        self.shared.queue.retry();
        self.shared.walks.ask();
    }

    /// Begins a scrub now. Another that runs ends first when it is deep and this one is not, else it is replaced.
    pub fn scrub(&self, depth: Depth) {
        self.shared.scrub.ask(depth);
    }

    pub fn scrub_status(&self) -> ScrubStatus {
        self.shared.scrub.status()
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Stripes with a suspect shard on this OSD that are not repaired yet.
    pub fn suspects(&self, osd: OsdId) -> usize {
        self.shared.queue.suspects(osd)
    }

    /// This moment, for [`Repair::looked_since`].
    pub fn now(&self) -> Begun {
        Begun(self.shared.walks.state().begun)
    }

    /// Whether a walk that began after this moment has ended: of what OSDs that were in service then should hold, each shard was there, was
    /// made anew, or is among the [`Repair::suspects_of`] its stripe. Not known again once the queue had to pass something over.
    pub fn looked_since(&self, moment: Begun) -> bool {
        let walk = self.shared.walks.state();
        walk.ended > moment.0 && walk.passed_over == self.shared.queue.passed_over()
    }

    /// Shards of a stripe that are known to lack and not repaired yet, as bits.
    pub fn suspects_of(&self, stripe: StripeId) -> u32 {
        self.shared.queue.suspects_of(stripe)
    }

    pub fn progress(&self) -> Progress {
        let s = &self.shared;
        let (counts, walk) = (s.queue.counts(), s.walks.state());
        let rate = s.rate.bytes_s();
        let state = match (counts.queued + counts.in_hand, walk.under_way, counts.waiting + counts.lost) {
            (1.., ..) => "repairing",
            (0, true, _) => "walking",
            (0, false, 1..) => "waiting",
            (0, false, 0) => "idle",
        };
        // What a walk will still find is as dense as what it found so far.
        let ahead = match walk.seen {
            0 => 0,
            seen => walk.found_bytes.saturating_mul(walk.total.saturating_sub(seen)) / seen,
        };
        s.metrics.queued.set((counts.queued + counts.in_hand) as i64);
        s.metrics.waiting.set(counts.waiting as i64);
        s.metrics.lost.set(counts.lost as i64);
        Progress {
            state,
            queued: counts.queued + counts.in_hand,
            queued_bytes: counts.queued_bytes,
            waiting: counts.waiting,
            lost: counts.lost,
            repaired_stripes: s.metrics.stripes.get(),
            repaired_bytes: s.metrics.bytes.get(),
            reencoded_stripes: s.metrics.reencoded.get(),
            walked: walk.seen,
            walk_total: walk.total,
            rate_bytes_s: rate,
            eta_s: (rate > 0 && state == "repairing").then(|| (counts.queued_bytes + ahead) / rate),
        }
    }
}

impl Shared {
    /// The number of a new task.
    pub fn task(&self) -> u64 {
        self.tasks.fetch_add(1, Ordering::Relaxed)
    }

    /// Completes when work is to end.
    pub async fn stopped(&self) {
        self.stop.until(|s| s.then_some(())).await
    }

    /// Drops shards that no record names, once readers of the record before have gone on.
    pub fn bury(&self, shards: Vec<(OsdId, ShardKey)>) {
        if shards.is_empty() {
            return;
        }
        let mut graves = self.graves.lock();
        if graves.len() < GRAVES_MAX {
            graves.push_back((Instant::now() + self.config.grace, shards));
        }
        drop(graves);
        self.buried.notify_one();
    }

    async fn work(self: Arc<Self>) {
        let mut running = FuturesUnordered::new();
        let mut in_flight = 0;
        let mut retry = Instant::now() + self.config.retry;
        let mut look = Instant::now();
        loop {
            let most = if self.pace.busy() { 1 } else { self.config.in_flight_bytes };
            while in_flight == 0 || in_flight < most {
                let Some((job, held)) = self.queue.take() else { break };
                in_flight += job.bytes.max(1);
                running.push(self.one(job, held));
            }
            tokio::select! {
                biased;
                // What is under way may be dropped at any step: at worst it leaves shards that no record names.
                () = self.stopped() => return,
                Some(bytes) = running.next() => in_flight -= bytes,
                () = self.queue.wake.notified() => {}
                () = tokio::time::sleep_until(retry) => {
                    retry = Instant::now() + self.config.retry;
                    if self.queue.overflowed() {
                        self.walks.ask();
                    }
                    self.queue.retry();
                }
                () = tokio::time::sleep_until(look) => {
                    look = Instant::now() + self.config.missing_every;
                    if let Err(why) = self.queue_missing() {
                        tracing::debug!("stripes with missing shards are looked up later: {why}");
                    }
                }
            }
        }
    }

    /// Takes in what was published with shards missing, but for what is stuck already.
    fn queue_missing(&self) -> Result<(), String> {
        let mut after = None;
        for _ in 0..MISSING_PAGES {
            let page = self.records.missing(after, self.config.page)?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            for stripe in &page {
                if !self.queue.is_stuck(stripe.id) {
                    self.queue.push(Job::of(stripe, 0));
                }
            }
        }
        Ok(())
    }

    /// One stripe; answers what it counted as in flight.
    async fn one(&self, mut job: Job, held: Held) -> u64 {
        let begun = Instant::now();
        let outcome = self.mend(&mut job).await;
        let (bytes, counted) = (job.bytes, job.bytes.max(1));
        match outcome {
            Outcome::Clean => {}
            Outcome::Mended | Outcome::Widened => {
                self.metrics.stripes.inc();
                self.metrics.bytes.inc_by(bytes);
                self.metrics.reencoded.inc_by((outcome == Outcome::Widened) as u64);
                self.rate.done(bytes);
            }
            Outcome::Again => {
                self.queue.push(job);
            }
            Outcome::Stuck(why) => self.queue.stuck(job, why),
        }
        drop(held);
        tokio::select! {
            biased;
            () = self.pace.after(begun.elapsed(), self.config.share) => {}
            () = self.stopped() => {}
        }
        counted
    }

    async fn bury_on(self: Arc<Self>) {
        loop {
            let next = self.graves.lock().front().map(|(at, _)| *at);
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => self.buried.notified().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stopped() => return,
                () = due => {}
            }
            let mut due = Vec::new();
            {
                let (now, mut graves) = (Instant::now(), self.graves.lock());
                while graves.front().is_some_and(|(at, _)| *at <= now) {
                    due.extend(graves.pop_front().into_iter().flat_map(|(_, shards)| shards));
                }
            }
            self.bury_now(due).await;
        }
    }

    /// Drops shards that no record names at this moment.
    pub async fn bury_now(&self, shards: Vec<(OsdId, ShardKey)>) {
        let (mut dead, mut hands, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for (osd, key) in shards {
            let held = hands.iter().any(|(id, _)| *id == key.stripe);
            if !held {
                match self.queue.hold(key.stripe) {
                    Some(hand) => hands.push((key.stripe, hand)),
                    None => {
                        later.push((osd, key));
                        continue;
                    }
                }
            }
            match self.records.stripe(key.stripe) {
                Ok(now) if now.as_deref().is_some_and(|s| s.osds.get(key.shard as usize) == Some(&osd)) => {}
                Ok(_) => dead.push((osd, key)),
                Err(_) => later.push((osd, key)),
            }
        }
        if !dead.is_empty() {
            match self.objects.discard(dead.clone()).await {
                Ok(()) => {
                    self.metrics.dropped_shards.inc_by(dead.len() as u64);
                }
                Err(e) => {
                    tracing::debug!("shards that no record names stay for now: {e}")
                }
            }
        }
        drop(hands);
        self.bury(later);
    }
}

impl RepairSink for Shared {
    fn report(&self, stripe: Arc<StripeMeta>, shard: u8, why: ShardFault) {
        // One that is out of service says so itself, and is not repaired by looking at each stripe a reader meets.
        if why == ShardFault::Down || shard as usize >= stripe.code.n() {
            return;
        }
        // An absent shard may belong to a stripe that is being deleted: the worker looks at its record first.
        self.queue.push(Job::of(&stripe, 1 << shard));
    }
}
