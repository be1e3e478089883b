//! One run: lives of the cluster one after the other, each ended as the plan says, with an audit at the start of the next, and at
//! last a life without faults in which everything must come to rest.
//!
//! What always holds: everything runs on the calling thread, under a paused clock; a life that ended leaves nothing running.

use crate::checkers::{self, liveness, space};
use crate::clients::{self, Gateway, Mount};
use crate::clock::SimClock;
use crate::cluster::{self, Running};
use crate::coverage::Coverage;
use crate::devices::{Devices, Power};
use crate::history::{Audit, End, Life};
use crate::plan::{Fault, FaultKind, LifePlan, Plan};
use crate::planted::Bug;
use crate::recorder::Recorder;
use crate::trace::Trace;
use holdfast_objstore_base::sim::Rng;
use std::cell::{Cell, RefCell};
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
    recorder: Arc<Recorder>,
    /// Starts so far, the format among them.
    starts: Cell<u64>,
    coverage: RefCell<Coverage>,
}

/// Runs a plan, with a bug planted if one is named. `keep`: the trace is kept for a reader of a failure.
pub fn run(plan: &Plan, bug: Option<Bug>, keep: bool) -> Result<Report, Failure> {
    let clock = SimClock::default();
    let trace = Arc::new(Trace::new(clock.clone(), keep));
    let power = Arc::new(Power::default());
    let devices = Devices::new(plan.devices, plan.seed, plan.pace, power.clone(), trace.clone());
    let recorder = Arc::new(Recorder::new(trace.clone(), power.clone()));
    let house =
        House { plan, bug, trace: trace.clone(), clock, power, devices, recorder, starts: Cell::default(), coverage: RefCell::default() };
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
        let mut coverage = self.coverage.borrow().clone();
        coverage.add("calls answered", answered as u64);
        coverage.add("calls cut off", unheard as u64);
        Ok(Report { seed: self.plan.seed, trace, image, answered, unheard, ms, coverage, lines: self.trace.lines() })
    }

    fn restart(&self, end: End, seed: u64) {
        self.trace.note(format_args!("-- {end:?} after {} steps --", self.power.steps()));
        self.devices.restart(end, seed, self.plan.pace);
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
        let start = async {
            let running = Running::open(self.plan, &self.devices, &self.clock, self.bug, self.starts.get())
                .await
                .map_err(|why| ("durability", why))?;
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
        self.trace.note(format_args!("begins with {begin:?}"));
        let service = running.service.clone();
        let first = service.status().applied;
        if let Some(steps) = plan.cut_after {
            self.power.cut_after(steps);
        }
        let mut mounts = Vec::new();
        let lived = self.lit(async {
            for _ in 0..self.plan.mounts {
                mounts.push(running.mount().await?);
            }
            let mut calls = tokio::task::JoinSet::new();
            for (n, vfs) in mounts.iter().enumerate() {
                let mount = Mount::new(n, vfs.clone(), self.recorder.clone(), seed << 3 | n as u64).await?;
                calls.spawn(mount.run(plan.calls));
            }
            if self.plan.gateway {
                let meta = running.connect("gateway", false).await.map_err(|e| e.to_string())?;
                let number = self.plan.mounts;
                let gateway = Gateway::new(number, meta, running.objects.clone(), self.recorder.clone(), seed << 3 | 7).await?;
                calls.spawn(gateway.run(plan.calls));
            }
            for fault in plan.faults.clone() {
                let devices = self.devices.clone();
                tokio::spawn(async move { strike(&devices, fault, seed).await });
            }
            Ok::<_, String>(liveness::within("the clients' calls", calls.join_all(), || self.recorder.waiting()).await)
        });
        let mut end = plan.end;
        let lived = lived.await;
        self.coverage.borrow_mut().join(&running.meters.count(&mounts));
        match lived {
            // Nobody hears anything any more.
            None => {}
            Some(Err(why)) => return Err(("liveness", why)),
            Some(Ok(done)) => drop(done?),
        }
        if plan.end == End::Stopped {
            let stop = async {
                for vfs in &mounts {
                    vfs.shutdown().await.map_err(|e| format!("a mount cannot be shut down: {e}"))?;
                }
                running.close().await
            };
            if let Some(Err(why)) = self.lit(liveness::within("an end in order", stop, Vec::new)).await.transpose()? {
                // With devices that fail, what could not be written is told, and the end is like any other.
                self.trace.note(format_args!("the end in order: {why}"));
                end = End::Killed;
            }
        }
        let evicted = mounts.iter().enumerate().filter(|(_, v)| v.metrics().vfs_evictions.get() > 0).map(|(n, _)| n).collect();
        let hurt = |f: &Fault| matches!(f.kind, FaultKind::Loss | FaultKind::Away | FaultKind::Hang { .. } | FaultKind::Errors);
        let calm = !plan.faults.iter().any(hurt) && (0..self.devices.count()).all(|d| !self.devices.is_lost(d));
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
        running.repair.look_at_all();
        let gone = async {
            while space::held(&running).is_some() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        if tokio::time::timeout(liveness::PATIENCE, gone).await.is_err() {
            return Err(("space", space::held(&running).unwrap_or_default()));
        }
        let there = cluster::present(&self.devices).count();
        if let Some(why) = checkers::log::lacking(&running, self.plan.log_copies(), there) {
            return Err(("log", why));
        }
        self.coverage.borrow_mut().join(&running.meters.count(&[]));
        liveness::within("the last end", running.close(), Vec::new).await?.map_err(live)?;
        Ok(last)
    }
}

/// Lets a fault happen at its time, and end.
async fn strike(devices: &Devices, fault: Fault, seed: u64) {
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
        FaultKind::Misbehave { lost_percent, astray_percent } => devices.misbehave(device, lost_percent, astray_percent),
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
