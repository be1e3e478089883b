//! Starting and stopping the service.
//!
//! What always holds: before anybody is served, every session of a former run is ended through the log: what they had not
//! published is garbage, and nothing they may still send can change anything.
//! What it leaves out: formatting (`format`).

use super::core::Core;
use super::grants::Grants;
use super::opens::Opens;
use super::work::{Known, PackStore, SnapshotStore, StripeReaper, Work};
use super::{Service, SnapshotStatus};
use crate::ballast::{Ballast, Cushioned};
use crate::config::Config;
use crate::image::{Export, Head, Rows, incarnation_at};
use crate::metrics::Metrics;
use crate::state::{State, Store};
use crate::superblock::{self, ClusterId, Found};
use holdfast_meta_core::{StateError, read};
use holdfast_meta_log::raft::mirror::{Doubt, OnDoubt};
use holdfast_meta_log::solo::Solo;
use holdfast_meta_log::{Error as LogError, SharedLog, raft};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::{Disk, DiskError, File, Open};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::real::RealClock;
use holdfast_objstore_proto::meta::{Command, Inline, MetaError};
use holdfast_objstore_proto::{Code, StripeId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// What the service needs.
pub struct Deps {
    pub disk: Arc<dyn Disk>,
    /// A folder that [`crate::format`] made.
    pub dir: PathBuf,
    /// Refuse a folder of another cluster.
    pub cluster: Option<ClusterId>,
    pub clock: Arc<dyn Clock>,
    pub config: Config,
    /// The log's; it is never made here: a lost log must not pass for an empty one.
    pub log: raft::Config,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The folder is not one this program may use; the sentence says why.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// Moments tried for an image before it is given up.
const EXPORT_ATTEMPTS: usize = 20;

/// How often a start looks whether the log leads.
const LEAD_LOOK: Duration = Duration::from_millis(2);

impl Service {
    /// Recovers the state and the log in `deps.dir` and serves. Its background work runs in the runtime this is called in.
    pub async fn open(deps: Deps) -> Result<Arc<Self>, OpenError> {
        let Deps { disk, dir, cluster, clock, mut config, log } = deps;
        config.cluster = cluster.unwrap_or_default();
        let here = dir.display();
        let refused = |why: String| Err(OpenError::Refused(format!("{here} {why}")));
        let id = match superblock::inspect(&*disk, &dir)? {
            Found::Ready(id) if cluster.is_none_or(|c| c == id) => id,
            Found::Ready(_) => return refused("holds the metadata of another cluster".into()),
            Found::Nothing => return refused("holds no metadata".into()),
            Found::HalfFormatted(_) => return refused("was only half formatted: remove it and start afresh".into()),
            Found::HalfRebuilt(_) => return refused("was only half rebuilt from its snapshot".into()),
            Found::Newer { version } => return refused(format!("was written by a newer program (version {version})")),
            Found::Foreign(name) => return refused(format!("holds foreign files ('{name}')")),
            Found::Damaged(why) => return refused(format!("has a damaged superblock: {why}")),
        };
        let metrics = Metrics::default();
        let ballast = Ballast::open(disk.clone(), &dir, config.ballast_bytes).await?;
        let file = disk.open(&superblock::state_path(&dir), Open::Existing)?;
        let file: Arc<dyn File> = Arc::new(Cushioned { file, ballast: ballast.clone() });
        let state = State::open(Store::open(file, config.state.cache_bytes, log.log.blocking)?, config.state.clone(), metrics.clone())?;
        if let Some(snapshots) = &mut config.snapshots {
            state.begin_cover(snapshots)?;
        }
        let wal = superblock::wal_path(&dir);
        let accept_stale = log.mirrors.accept_stale;
        let mut log = raft::Config { create: false, ..log };
        let (on, at) = (disk.clone(), dir.clone());
        let doubted = move |doubt| superblock::write_to_raise(&*on, &at, id, doubt == Doubt::Stale).map_err(|e| e.to_string());
        log.mirrors.on_doubt = Some(OnDoubt(Arc::new(doubted)));
        let log = raft::open(disk.clone(), vec![wal], log, clock.clone(), state.clone()).await?;
        let service = Self::assemble(state, log, Some(ballast), clock, config, metrics);
        if service.core.config.snapshots.is_some() {
            service.core.snapshots.begin();
        }
        service.begin(accept_stale).await?;
        if superblock::is_to_raise(&*disk, &dir)? {
            service.part_from_lost().await?;
            superblock::write_raised(&*disk, &dir, id)?;
        }
        service.core.start_orphans();
        Ok(service)
    }

    /// A service whose state and log live in memory and end with it: for tests of those who use metadata. Call it within a runtime.
    pub fn in_memory() -> Arc<Self> {
        Self::in_memory_with(
            Config { stripe_grace: Duration::ZERO, orphan_grace: Duration::ZERO, ..Config::default() },
            Arc::new(RealClock),
        )
    }

    /// The same with a clock and bounds of the caller's.
    pub fn in_memory_with(config: Config, clock: Arc<dyn Clock>) -> Arc<Self> {
        let metrics = Metrics::default();
        let state = State::in_memory(config.state.clone(), metrics.clone()).expect("memory holds a fresh state");
        let log = Solo::open(clock.clone(), state.clone()).expect("memory does not fail");
        let service = Self::assemble(state, log, None, clock, config, metrics);
        service.core.start_orphans();
        service
    }

    pub(super) fn assemble(
        state: Arc<State>,
        log: SharedLog,
        ballast: Option<Arc<Ballast>>,
        clock: Arc<dyn Clock>,
        config: Config,
        metrics: Metrics,
    ) -> Arc<Self> {
        let core = Core {
            log,
            state,
            ballast,
            clock,
            grants: Grants::new(config.leases, metrics.clone()),
            config,
            metrics,
            runtime: Handle::current(),
            opens: Opens::default(),
            sessions: Mutex::default(),
            work: Work::default(),
            snapshots: Known::default(),
            notes: Mutex::default(),
        };
        Arc::new(Self { core: Arc::new(core) })
    }

    /// Waits until the log leads, ends the sessions of former runs, starts the background work. `accept_stale`: goes on without staged bytes
    /// that the log lacks.
    async fn begin(&self, accept_stale: bool) -> Result<(), OpenError> {
        let core = &self.core;
        let leads = async {
            while let Err(e) = core.log.may_read() {
                if let LogError::Failed(_) = e {
                    return Err(e);
                }
                tokio::time::sleep(LEAD_LOOK).await;
            }
            Ok(())
        };
        match tokio::time::timeout(core.config.lead_timeout, leads).await {
            Ok(led) => led?,
            Err(_) => return Err(OpenError::Log(LogError::NotLeader { leader: None })),
        }
        // Everything before this command is applied when it is answered.
        core.propose_own(Command::ForgetStripes { stripes: Vec::new() }).await?;
        for (session, ..) in core.view(|kv| read::sessions(kv))? {
            core.propose_own(Command::Evict { session }).await?;
        }
        let lacking = core.state.staged_lacking();
        if lacking > 0 {
            failpoint::reached("meta.staged_lacking");
            let why =
                format!("the metadata log lacks the bytes of {lacking} small writes that no pack has: it was cut short or is another");
            if !accept_stale {
                return Err(OpenError::Refused(format!(
                    "{why}; bring back the device with the newest copy of the log, or start with --accept-stale, which gives those bytes up"
                )));
            }
            core.state.give_up_lacking();
            let note =
                format!("{why}. Reading them fails with EIO; a start needs --accept-stale until their files are overwritten or deleted");
            tracing::error!("{note}");
            core.notes.lock().push(note);
        }
        Ok(())
    }

    /// For a start whose log may lack commands: no id they granted is given again, and inline bytes do not depend on entries from before
    /// any more. Repeated by the next start if it does not come to its end.
    async fn part_from_lost(&self) -> Result<(), OpenError> {
        let core = &self.core;
        core.propose_own(Command::RaiseIncarnation { at_least: incarnation_at(core.clock.wall_ns()) }).await?;
        core.stage_all_anew(|| false).await?;
        failpoint::reached("meta.parted_from_lost");
        Ok(())
    }

    /// Starts packing inline bytes and other small stripes through `store`. Once in a run; without it writers send nothing inline.
    pub fn pack_stripes(&self, store: Arc<dyn PackStore>) {
        self.core.start_packs(store);
    }

    /// Starts making snapshots of the state in the pool, in stripes of `code` that `packs` writes. Once in a run.
    pub fn make_snapshots(&self, packs: Arc<dyn PackStore>, store: Arc<dyn SnapshotStore>, code: Code) {
        self.core.start_snapshots(packs, store, code);
    }

    /// Makes a snapshot in the pool of all that is applied now; an error is the sentence that says why not.
    pub async fn snapshot(&self) -> Result<SnapshotStatus, String> {
        self.core.snapshot_now().await
    }

    /// Starts deleting retired stripes through `reaper`. Once in a run.
    pub fn reap_stripes(&self, reaper: Arc<dyn StripeReaper>) {
        self.core.start_stripes(reaper);
    }

    /// Makes all that is applied durable in the state, so that the next start replays little; the index of the last command in it.
    pub async fn checkpoint(&self) -> Result<u64, OpenError> {
        Ok(self.core.state.checkpoint().await?)
    }

    /// Begins an image of all that is applied now. `cluster` names it.
    pub async fn export(&self, cluster: ClusterId) -> Result<Export, OpenError> {
        let core = &self.core;
        for _ in 0..EXPORT_ATTEMPTS {
            let mut staged: BTreeMap<StripeId, Inline> = core.state.staged_all().into_iter().map(|i| (i.stripe, i)).collect();
            let (mark, rows) = core.state.image().await?;
            staged.extend(core.state.staged_all().into_iter().map(|i| (i.stripe, i)));
            // What came after the one look and was packed before the other is not known: another moment is taken.
            let listed = read::staged(&Rows(&rows))??;
            let listed = core.state.without_lost(listed);
            let bytes: Option<Vec<Inline>> = listed.iter().map(|id| staged.remove(id)).collect();
            if let Some(bytes) = bytes {
                let head = Head { cluster, applied: mark.applied, wall_ns: core.clock.wall_ns(), behind: None, tail: mark.tail };
                return Ok(Export::new(head, rows, bytes));
            }
        }
        Err(OpenError::Refused("small writes come and go too fast to catch one moment of them: try again".into()))
    }

    /// Stops in order: ends sessions, stops background work, checkpoints, closes the log and the state.
    pub async fn shutdown(&self) -> Result<(), OpenError> {
        let sessions: Vec<_> = self.core.sessions.lock().values().cloned().collect();
        for s in sessions {
            self.core.close(&s).await;
        }
        self.core.stop_work().await;
        self.core.state.hurry();
        let checkpoint = self.core.state.checkpoint().await;
        self.core.log.shutdown().await;
        checkpoint?;
        self.core.state.close().await?;
        Ok(())
    }
}
