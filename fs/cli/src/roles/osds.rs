//! The OSDs of a running cluster: one state each, in service or not, and the set of them, which changes while it runs.
//!
//! What always holds: the object cluster has the same set; the cluster file in every data folder is written before what it tells of can be
//! relied on.

mod change;

pub use change::{Change, settle};

use super::data::Shares;
use super::storage::Opened;
use crate::layout::{Layout, Life, Standing, State};
use crate::lock::Lock;
use holdfast_objstore_base::real::RealDisk;
use holdfast_objstore_client::{DownOsd, Watched};
use holdfast_objstore_osd::Osd;
use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::{OsdSpace, ShardService};
use holdfast_objstore_repair::Begun;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long an OSD may take for one call before it is given up, where there are others on other devices.
const PATIENCE: Duration = Duration::from_secs(30);
/// From here on a call that is under way makes `status` call its OSD slow.
const SLOW: Duration = Duration::from_secs(1);

/// One OSD of the cluster, in service or not.
pub struct OsdState {
    pub id: OsdId,
    pub path: PathBuf,
    service: Arc<dyn ShardService>,
    osd: Option<Osd>,
    watched: Option<Arc<Watched>>,
    /// Faults this start found in its log: shards that are gone.
    faults: AtomicUsize,
    /// It was made anew, and does not hold yet what it should.
    rebuilding: AtomicBool,
    /// When it came into service, as repair counts: what it lacks is known once a walk that began later has ended.
    came: AtomicU64,
    draining: AtomicBool,
    /// A start did not find it, and it was waited for long enough.
    given_up: AtomicBool,
}

impl OsdState {
    /// `watched`: there are others on other devices, which go on when this one hangs.
    pub fn open(id: OsdId, path: PathBuf, opened: Opened, watched: bool) -> OsdState {
        let service: Arc<dyn ShardService> = Arc::new(opened.osd.clone());
        let watched = watched.then(|| Watched::new(service.clone(), PATIENCE));
        let service = watched.clone().map_or(service, |w| w as Arc<dyn ShardService>);
        OsdState {
            id,
            path,
            service,
            osd: Some(opened.osd),
            watched,
            faults: AtomicUsize::new(opened.faults),
            rebuilding: AtomicBool::new(false),
            came: AtomicU64::new(Begun::default().0),
            draining: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        }
    }

    /// As [`OsdState::open`], of one made anew: it came in service at [`OsdState::came_at`].
    pub fn new(id: OsdId, path: PathBuf, opened: Opened) -> OsdState {
        let state = Self::open(id, path, opened, true);
        state.rebuilding.store(true, Ordering::Relaxed);
        state.came_at(Begun::NEVER);
        state
    }

    /// `why`: one sentence.
    pub fn lost(id: OsdId, path: PathBuf, why: String) -> OsdState {
        let service = Arc::new(DownOsd { osd: id, why });
        let (faults, no) = (AtomicUsize::new(0), || AtomicBool::new(false));
        let came = AtomicU64::new(Begun::NEVER.0);
        OsdState { id, path, service, osd: None, watched: None, faults, rebuilding: no(), came, draining: no(), given_up: no() }
    }

    pub fn service(&self) -> Arc<dyn ShardService> {
        self.service.clone()
    }
    /// Why it is out of service, if it is.
    pub fn failure(&self) -> Option<String> {
        self.service.failure()
    }
    pub fn space(&self) -> OsdSpace {
        if self.osd.is_some() { self.service.space() } else { OsdSpace::default() }
    }
    /// What is known to be wrong with it, if it serves all the same.
    pub fn damage(&self) -> Option<String> {
        match self.faults.load(Ordering::Relaxed) {
            0 => None,
            n => Some(format!("{n} places of its log were not readable at the start: shards are gone, and are read from the other OSDs")),
        }
    }
    /// It does not hold yet what it should.
    pub fn rebuilding(&self) -> bool {
        self.rebuilding.load(Ordering::Relaxed)
    }
    pub fn came(&self) -> Begun {
        Begun(self.came.load(Ordering::Acquire))
    }
    pub fn came_at(&self, moment: Begun) {
        self.came.store(moment.0, Ordering::Release);
    }
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
    pub fn drain(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }
    /// Everything it should hold was found in it, or made anew, since the start.
    pub fn repaired(&self) {
        self.faults.store(0, Ordering::Relaxed);
        self.rebuilding.store(false, Ordering::Relaxed);
    }
    /// What it had is to be made elsewhere: it will not come back.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
    /// It gets nothing new, and what it has or had is moved elsewhere. One that failed while it served will not come back.
    pub fn leaving(&self) -> bool {
        self.draining() || self.given_up.load(Ordering::Relaxed) || self.was_open() && self.failure().is_some()
    }
    /// Its counts, under its number.
    pub fn metrics(&self) -> Option<Registry> {
        let label = [("osd".into(), self.id.0.to_string().into())];
        let mut registry = Registry::with_prefix_and_labels("holdfast", label.into_iter());
        self.osd.as_ref()?.metrics().register(&mut registry);
        Some(registry)
    }
    /// Whether it was opened.
    pub fn was_open(&self) -> bool {
        self.osd.is_some()
    }
    /// OSDs with one number share a device: one failure domain.
    pub fn domain(&self) -> Option<u64> {
        self.osd.as_ref().map(|_| self.service.domain())
    }
    /// How long a call of it has taken that is not answered yet, when that is long.
    pub fn slow(&self) -> Option<Duration> {
        self.watched.as_ref().map(|w| w.slowest()).filter(|d| *d >= SLOW)
    }
}

/// The OSDs of a running cluster.
pub struct OsdSet {
    disk: Arc<RealDisk>,
    shares: Shares,
    inner: Mutex<Inner>,
    /// One change at a time.
    change: tokio::sync::Mutex<()>,
}

struct Inner {
    layout: Layout,
    states: Vec<Arc<OsdState>>,
    /// Of folders that came while it ran.
    locks: Vec<Lock>,
}

impl OsdSet {
    pub fn new(layout: Layout, states: Vec<OsdState>, disk: Arc<RealDisk>, shares: Shares) -> OsdSet {
        let states = states.into_iter().map(Arc::new).collect();
        OsdSet { disk, shares, inner: Mutex::new(Inner { layout, states, locks: Vec::new() }), change: tokio::sync::Mutex::new(()) }
    }

    pub fn list(&self) -> Vec<Arc<OsdState>> {
        self.inner.lock().states.clone()
    }

    pub fn get(&self, id: OsdId) -> Option<Arc<OsdState>> {
        self.inner.lock().states.iter().find(|s| s.id == id).cloned()
    }

    /// As the cluster file says now.
    pub fn layout(&self) -> Layout {
        self.inner.lock().layout.clone()
    }

    /// Gives up OSDs that hang. To be called now and then, on a thread that no disk call holds up.
    pub fn look(&self) {
        for state in self.list() {
            if let Some(watched) = &state.watched {
                watched.look();
            }
        }
    }

    /// Writes down what is known of each open log, so that a copy of a former time is told when it is put back. Blocks.
    pub fn remember(&self) -> anyhow::Result<()> {
        // Not under the lock: a disk that hangs must not keep `status` from looking.
        let mut layout = self.layout();
        for state in self.list() {
            let Some(osd) = state.osd.as_ref().filter(|_| state.failure().is_none()) else { continue };
            let Some(place) = layout.places.iter_mut().find(|p| p.id == state.id.0) else { continue };
            let (opened, stable) = osd.reached();
            // Once it is open, what was being made is made.
            let standing = if place.life.state == Standing::Forming { Standing::In } else { place.life.state };
            place.life = Life { state: standing, log: format!("{:032x}", osd.superblock().log_id), opened, stable };
        }
        layout.write(&*self.disk, State::Ready)?;
        self.inner.lock().layout = layout;
        Ok(())
    }

    /// The state of the metadata was rebuilt where the layout says: from now on every data folder says so too. Blocks.
    pub fn found_home(&self) -> anyhow::Result<()> {
        let mut layout = self.layout();
        layout.found_home();
        layout.write(&*self.disk, State::Ready)?;
        self.inner.lock().layout = layout;
        Ok(())
    }

    /// Closes every OSD; each failure is a sentence. What hangs is left behind.
    pub async fn close(&self) -> Vec<String> {
        let mut trouble = Vec::new();
        for state in self.list() {
            let Some(osd) = state.osd.as_ref().filter(|_| state.failure().is_none()) else { continue };
            match tokio::time::timeout(PATIENCE, osd.close()).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => trouble.push(format!("closing {}: {e}", state.id)),
                Err(_) => trouble.push(format!("closing {}: it does not answer", state.id)),
            }
        }
        if let Err(e) = self.remember() {
            trouble.push(format!("writing the cluster file: {e:#}"));
        }
        trouble
    }
}
