//! One run: lives of the cluster one after the other, each ended as the plan says, with an audit at the start of the next, and at
//! last a life without faults in which everything must come to rest.
//!
//! What always holds: everything runs on the calling thread, under a paused clock; a life that ended leaves nothing running.

use crate::checkers::{self, liveness, space};
use crate::clients::{self, Filler, Gateway, Hung, Mount};
use crate::clock::SimClock;
use crate::cluster::{self, Running, Site};
use crate::coverage::Coverage;
use crate::devices::{Devices, Power};
use crate::history::{Audit, End, Life};
use crate::network::Network;
use crate::operator::Change;
use crate::plan::{Fault, FaultKind, LifePlan, Plan};
use crate::planted::Bug;
use crate::recorder::Recorder;
use crate::trace::Trace;
use holdfast_objstore_base::sim::Rng;
use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::ShardService;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a run that kept every promise did. Two runs of one seed are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    /// Digest of the trace, and its lines.
    pub trace: (u64, u64),
    /// Digest of all bytes on all devices at the end.
    pub image: u64,
    /// Calls of clients that were answered, and that were not.
    pub answered: usize,
    pub unheard: usize,
    /// Virtual time, milliseconds.
    pub ms: u64,
    /// What happened how often.
    pub coverage: Coverage,
    /// The trace, if it was kept.
    pub lines: Vec<String>,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Failure {
    pub seed: u64,
    pub promise: &'static str,
    pub why: String,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "seed {} breaks {}: {}\nreplay: cargo run -p holdfast-bench-sim -- --seed {} --trace",
            self.seed, self.promise, self.why, self.seed
        )
    }
}

/// How long what nobody refers to may stay when all clients are gone.
const QUIET: Duration = Duration::from_secs(300);

type Broken = (&'static str, String);

/// How far a life came.
enum Came {
    /// The power went before the clients began.
    NotFar,
    Lived(Life),
}

struct House<'a> {
    plan: &'a Plan,
    bug: Option<Bug>,
    trace: Arc<Trace>,
    clock: SimClock,
    power: Arc<Power>,
    devices: Devices,
    network: Network,
    recorder: Arc<Recorder>,
    /// Starts so far, the format among them.
    starts: Cell<u64>,
    coverage: Arc<Mutex<Coverage>>,
    /// What each OSD had free when it was new.
    fresh: RefCell<BTreeMap<OsdId, u64>>,
}

/// Runs a plan, with a bug planted if one is named. `keep`: the trace is kept for a reader of a failure.
pub fn run(plan: &Plan, bug: Option<Bug>, keep: bool) -> Result<Report, Failure> {
    let clock = SimClock::default();
    let trace = Arc::new(Trace::new(clock.clone(), keep));
    let power = Arc::new(Power::default());
    let devices = Devices::new(plan.devices, plan.seed, plan.pace, power.clone(), trace.clone());
    let recorder = Arc::new(Recorder::new(trace.clone(), power.clone()));
    let network = Network::new(plan.devices, plan.seed, trace.clone());
    let house = House {
        plan,
        bug,
        trace: trace.clone(),
        clock,
        power,
        devices,
        network,
        recorder,
        starts: Cell::default(),
        coverage: Arc::default(),
        fresh: RefCell::default(),
    };
    house.all().map_err(|(promise, why)| Failure { seed: plan.seed, promise, why, trace: trace.lines() })
}

impl House<'_> {
    fn all(&self) -> Result<Report, Broken> {
        self.trace.note(format_args!("{:?}", self.plan));
        self.restart(End::Stopped, 0);
        self.within(cluster::format(self.plan, &self.devices, &self.clock)).map_err(|e| ("liveness", format!("formatting: {e}")))?;
        self.restart(End::Stopped, 1);
        let mut lives: Vec<Life> = Vec::new();
        for (n, life) in self.plan.lives.iter().enumerate() {
            let seed = self.plan.seed << 8 | n as u64 + 2;
            // One in four of the ends comes while the start recovers from the last one.
            let mut early = life.cut_after.filter(|_| seed % 4 == 0);
            loop {
                match self.within(self.live(life, seed, early))? {
                    Came::Lived(lived) => {
                        lives.push(lived);
                        self.restart(life.end, seed);
                        break;
                    }
                    Came::NotFar => self.restart(End::PowerCut, seed ^ early.unwrap_or(0)),
                }
                early = None;
            }
        }
        let last = self.within(self.rest(&lives))?;
        self.restart(End::Stopped, 3);
        let answered = lives.iter().flat_map(|l| &l.events).filter(|e| e.answered.is_some()).count();
        let unheard = lives.iter().map(|l| l.events.len()).sum::<usize>() - answered;
        drop(last);
        let (trace, image, ms) = (self.trace.digest(), self.devices.digest(), self.clock.now_ns() / 1_000_000);
        let mut coverage = self.coverage.lock().clone();
        coverage.add("late shards refused", self.network.fences.refused());
        coverage.add("calls answered", answered as u64);
        coverage.add("calls cut off", unheard as u64);
        Ok(Report { seed: self.plan.seed, trace, image, answered, unheard, ms, coverage, lines: self.trace.lines() })
    }

    fn restart(&self, end: End, seed: u64) {
        self.trace.note(format_args!("-- {end:?} after {} steps --", self.power.steps()));
        self.devices.restart(end, seed, self.plan.pace);
        self.network.reset();
    }

    /// Runs `work` in a runtime of its own; whatever else it started is gone afterwards, and the power with it.
    fn within<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime of one thread");
        let done = runtime.block_on(async {
            self.clock.begin();
            let done = work.await;
            self.clock.end(Duration::from_secs(1));
            done
        });
        self.power.cut();
        drop(runtime);
        done
    }

    /// `work`, or `None` when the power goes first.
    async fn lit<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.power.gone() => None,
            done = work => (!self.power.is_off()).then_some(done),
        }
    }

    async fn start(&self, waiting: &str) -> Result<Option<(Running, Audit)>, Broken> {
        self.starts.set(self.starts.get() + 1);
        let site = Site {
            plan: self.plan,
            devices: &self.devices,
            network: &self.network,
            clock: &self.clock,
            trace: &self.trace,
            bug: self.bug,
            start: self.starts.get(),
        };
        let start = async {
            let running = Running::open(site).await.map_err(|why| ("durability", why))?;
            if self.starts.get() == 1 {
                *self.fresh.borrow_mut() = running.osds.lock().iter().map(|o| (o.osd(), o.space().free)).collect();
            }
            let audit = clients::audit(&running).await?;
            Ok((running, audit))
        };
        match self.lit(liveness::within(waiting, start, Vec::new)).await {
            None => Ok(None),
            Some(done) => done?.map(Some),
        }
    }

    async fn live(&self, plan: &LifePlan, seed: u64, early: Option<u64>) -> Result<Came, Broken> {
        if let Some(steps) = early {
            self.power.cut_after(steps);
        }
        let Some((running, begin)) = self.start("a start").await? else { return Ok(Came::NotFar) };
        let running = Arc::new(running);
        self.trace.note(format_args!("begins with {begin:?}"));
        let service = running.service.clone();
        let first = service.status().applied;
        if let Some(steps) = plan.cut_after {
            self.power.cut_after(steps);
        }
        let (mut mounts, filler) = (Vec::new(), Arc::new(Mutex::new(Ok(()))));
        let meters = running.meters.clone();
        let mut gateway_meta = None;
        let lived = self.lit(async {
            for n in 0..self.plan.mounts {
                let hung = Hung::over(running.objects.clone());
                mounts.push(running.mount_over(hung.clone()).await?);
                for hang in plan.hangs.iter().filter(|h| h.mount == n).copied() {
                    let (hung, trace) = (hung.clone(), self.trace.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(hang.at_ms)).await;
                        trace.note(format_args!("mount {n} hangs"));
                        hung.hang(true);
                        tokio::time::sleep(Duration::from_millis(hang.ms)).await;
                        trace.note(format_args!("mount {n} wakes up"));
                        hung.hang(false);
                    });
                }
            }
            let mut calls = tokio::task::JoinSet::new();
            for (n, vfs) in mounts.iter().enumerate() {
                let mount = Mount::new(n, vfs.clone(), self.recorder.clone(), seed << 3 | n as u64).await?;
                calls.spawn(mount.run(plan.calls));
            }
            if self.plan.gateway {
                let meta = running.connect("gateway", false).await.map_err(|e| e.to_string())?;
                gateway_meta = Some(meta.clone());
                let number = self.plan.mounts;
                let gateway = Gateway::new(number, meta, running.objects.clone(), self.recorder.clone(), seed << 3 | 7).await?;
                calls.spawn(gateway.run(plan.calls));
            }
            if self.plan.small {
                let vfs = running.mount().await?;
                mounts.push(vfs.clone());
                let (client, told) = (Filler::new(vfs, self.trace.clone(), seed << 3 | 6, self.coverage.clone()), filler.clone());
                calls.spawn(async move { *told.lock() = client.run().await });
            }
            if let Some(depth) = plan.scrub {
                running.repair.scrub(depth);
            }
            if !plan.changes.is_empty() {
                let (changes, running, coverage) = (plan.changes.clone(), running.clone(), self.coverage.clone());
                calls.spawn(operate(changes, running, coverage));
            }
            for fault in plan.faults.clone() {
                if fault.kind == FaultKind::Back {
                    self.devices.will_go_back(fault.device);
                }
                let (devices, network) = (self.devices.clone(), self.network.clone());
                tokio::spawn(async move { strike(&devices, &network, fault, seed).await });
            }
            Ok::<_, String>(liveness::within("the clients' calls", calls.join_all(), || self.recorder.waiting()).await)
        });
        let mut end = plan.end;
        let lived = lived.await;
        match lived {
            // Nobody hears anything any more.
            None => {}
            Some(Err(why)) => return Err(("liveness", why)),
            Some(Ok(done)) => {
                done?;
                std::mem::replace(&mut *filler.lock(), Ok(())).map_err(|why| ("space", why))?;
            }
        }
        if plan.end == End::Stopped {
            let stop = async {
                for vfs in &mounts {
                    vfs.shutdown().await.map_err(|e| format!("a mount cannot be shut down: {e}"))?;
                }
                if let Some(meta) = gateway_meta {
                    meta.close_session().await;
                }
                let left = quiet(&running).await;
                running.close().await.map(|()| left)
            };
            let stopped = self.lit(liveness::within("an end in order", stop, Vec::new)).await.transpose()?;
            if let Some(Ok(Some(left))) = &stopped {
                return Err(("space", format!("all clients are gone, and {left}")));
            }
            if let Some(Err(why)) = stopped {
                // With devices that fail, what could not be written is told, and the end is like any other.
                self.trace.note(format_args!("the end in order: {why}"));
                end = End::Killed;
            }
        }
        self.coverage.lock().join(&meters.count(&mounts));
        self.network.fences.check().map_err(|why| ("fences", why))?;
        let evicted = mounts.iter().enumerate().filter(|(_, v)| v.metrics().vfs_evictions.get() > 0).map(|(n, _)| n).collect();
        let hurt = |f: &Fault| {
            matches!(f.kind, FaultKind::Loss | FaultKind::Away | FaultKind::Hang { .. } | FaultKind::Errors)
                || matches!(f.kind, FaultKind::NoContact { .. } | FaultKind::Late { .. })
        };
        let calm = plan.hangs.is_empty()
            && !self.plan.small
            && !plan.faults.iter().any(hurt)
            && (0..self.devices.count()).all(|d| !self.devices.is_lost(d));
        Ok(Came::Lived(Life { begin, events: self.recorder.take(), end, evicted, calm, log: (first, service.status().applied) }))
    }

    /// The last life: no faults, everything is judged, removed, and must come to rest.
    async fn rest(&self, lives: &[Life]) -> Result<Audit, Broken> {
        let (running, last) = self.start("the last start").await?.ok_or(("liveness", "the power went by itself".into()))?;
        self.trace.note(format_args!("ends with {last:?}"));
        checkers::judge(lives, &last, running.service.status().applied)?;
        let live = |why: String| ("liveness", why);
        let empty = async {
            let meta = running.connect("reconcile", false).await.map_err(|e| live(e.to_string()))?;
            space::give_up_uploads(&*meta).await.map_err(live)?;
            meta.close_session().await;
            let vfs = running.mount().await.map_err(live)?;
            clients::remove_all(&vfs).await.map_err(live)?;
            vfs.shutdown().await.map_err(|e| live(e.to_string()))
        };
        liveness::within("removing everything", empty, Vec::new).await??;
        // A walk leaves alone what waits for its deletion: what that misses, on an OSD that was away, is the next walk's to find.
        let deleted = async {
            while running.service.returning() > 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        if tokio::time::timeout(liveness::PATIENCE, deleted).await.is_err() {
            return Err(("space", space::held(&running).unwrap_or_default()));
        }
        running.repair.look_at_all();
        let hurt: BTreeSet<usize> = self.plan.lives.iter().flat_map(|l| &l.faults).map(|f| f.device).collect();
        let whole = |o: &OsdId| !hurt.contains(&(o.0 as usize));
        let fresh = self.fresh.borrow().iter().filter(|o| whole(o.0)).map(|o| (*o.0, *o.1)).collect();
        let held = || space::held(&running).or_else(|| space::not_returned(&running, &fresh, 4 * self.plan.segment_bytes));
        let gone = async {
            while held().is_some() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        if tokio::time::timeout(liveness::PATIENCE, gone).await.is_err() {
            return Err(("space", held().unwrap_or_default()));
        }
        let there = cluster::present(&self.devices).count();
        if let Some(why) = checkers::log::lacking(&running, self.plan.log_copies(), there) {
            return Err(("log", why));
        }
        self.coverage.lock().join(&running.meters.count(&[]));
        self.network.fences.check().map_err(|why| ("fences", why))?;
        liveness::within("the last end", running.close(), Vec::new).await?.map_err(live)?;
        Ok(last)
    }
}

/// An operator's changes, one after the other.
async fn operate(changes: Vec<(u64, Change)>, running: Arc<Running>, coverage: Arc<Mutex<Coverage>>) {
    let begun = tokio::time::Instant::now();
    for (at_ms, change) in changes {
        tokio::time::sleep_until(begun + Duration::from_millis(at_ms)).await;
        let done = running.ask(change).await;
        let what = match change {
            _ if !done => "changes refused",
            Change::Replace(_) => "osds replaced",
            Change::Add(_) => "osds added",
            Change::Drain(_) => "osds drained",
            Change::Remove(_) => "osds removed",
        };
        coverage.lock().add(what, 1);
        if !done {
            return;
        }
    }
}

/// What is left on OSDs when all clients are gone and time has passed.
async fn quiet(running: &Running) -> Option<String> {
    for closed in [true, false] {
        if !closed {
            running.repair.look_at_all();
        }
        let begun = tokio::time::Instant::now();
        while let Some(left) = space::orphan(running, closed).await {
            if begun.elapsed() >= QUIET {
                return Some(left);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    None
}

/// Lets a fault happen at its time, and end.
async fn strike(devices: &Devices, network: &Network, fault: Fault, seed: u64) {
    tokio::time::sleep(Duration::from_millis(fault.at_ms)).await;
    let device = fault.device;
    match fault.kind {
        FaultKind::Loss => devices.lose(device),
        FaultKind::Away => devices.go_away(device),
        FaultKind::Rot => {
            let mut rng = Rng::new(seed ^ fault.at_ms);
            (0..1 + rng.below(8)).for_each(|_| devices.rot(device, &mut rng));
        }
        FaultKind::Slow { ms_max } => devices.set_pace(device, crate::devices::Pace { percent: 100, ms_max }),
        FaultKind::Lie => devices.lie(device),
        FaultKind::Misbehave(mischief) => devices.misbehave(device, mischief),
        // What it will be is kept already.
        FaultKind::Back => {}
        FaultKind::Late { percent, ms_max } => network.delay(device, percent, ms_max),
        FaultKind::NoContact { ms } => {
            network.cut(device, true);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            network.cut(device, false);
        }
        FaultKind::Errors => {
            let mut rng = Rng::new(seed ^ fault.at_ms);
            (0..1 + rng.below(3)).for_each(|_| devices.fail_soon(device, &mut rng));
        }
        FaultKind::Hang { ms } => {
            devices.hang(device, true);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            devices.hang(device, false);
        }
    }
}
