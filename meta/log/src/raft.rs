//! The replicated log by openraft over our group-committed write-ahead log. One member is a cluster of one.
//!
//! What always holds: openraft's tasks live in the current-thread runtime that called [`open`], so a local command
//! crosses no thread; a command is answered once it is durable and applied; stamps never go back, also across restarts; when
//! the write-ahead log or the state fails, every call answers [`Error::Failed`] and none hangs.
//! What it leaves out: members beyond the first (their network and snapshots are refused).

mod dump;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod health;
mod layout;
mod machine;
pub mod mirror;
mod network;
mod record;
mod recover;
mod runtime;
mod store;
mod types;
mod wal;
mod window;

pub use dump::{DescribeCommand, describe_tail, dump, dump_mirrors};

use crate::metrics::Metrics;
use crate::{Devices, Error, Kept, MetaLog, Mirror, Result, StateMachine};
use bytes::Bytes;
use health::Health;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_osd::log;
use machine::{Machine, Shared};
use mirror::folders::Folders;
use mirror::start::start;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{BasicNode, Raft, ServerState, SnapshotPolicy};
use recover::Restage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Store;
use tokio::sync::Semaphore;
use types::{Command, Types};
use wal::Wal;

/// Proposals answered neither way yet, at most; more wait.
const PROPOSALS_MAX: u32 = 4096;

/// Bytes written since the last checkpoint that call for another where the device has no room for the log to grow.
const TIGHT_BYTES: u64 = 1 << 20;

/// Bytes of the largest command.
pub const COMMAND_BYTES_MAX: usize = store::RECORD_BYTES_MAX;

/// How a log is opened.
#[derive(Clone)]
pub struct Config {
    /// This member's number; part of every entry it leads.
    pub node: u64,
    /// Where other members would reach it.
    pub address: String,
    /// Whether a missing write-ahead log is made. Only for a cluster that is new: else a lost log would pass as an empty one.
    pub create: bool,
    /// Identity of newly made logs: random, and new at every start. It also seeds what openraft draws.
    pub id: u128,
    /// How many copies of the log are kept, and where.
    pub mirrors: mirror::Config,
    /// A checkpoint of the state is begun when this many bytes were written since the last one.
    pub checkpoint_bytes: u64,
    /// Proposals wait while more than this was written since the last checkpoint began.
    pub wal_bytes_max: u64,
    /// Bytes kept at most for a snapshot of the state that lies elsewhere ([`StateMachine::keep`]).
    pub kept_bytes_max: u64,
    /// The record log beneath.
    pub log: log::Config,
    /// Counters, to be registered by the caller.
    pub metrics: Metrics,
}

impl Config {
    /// The same for a device of `total` bytes: on a small one the log takes a small part.
    pub fn sized(mut self, total: u64) -> Self {
        let mib = |n: u64| n << 20;
        // What commands that free room may take on a device that others have filled, until a checkpoint gives some back.
        self.log.segments_ahead = 2;
        self.log.segment_bytes = match total {
            t if t < mib(1024) => mib(5),
            t if t < mib(8192) => mib(8),
            _ => mib(16),
        };
        self.checkpoint_bytes = (total / 128).clamp(mib(4), mib(64));
        self.wal_bytes_max = self.checkpoint_bytes
            * match total {
                t if t < mib(1024) => 2,
                t if t < mib(8192) => 3,
                _ => 4,
            };
        // From one checkpoint to the next, and as much again while a snapshot is made of the first.
        self.kept_bytes_max = (3 * self.checkpoint_bytes).min(self.wal_bytes_max);
        let bytes = self.wal_bytes_max + self.checkpoint_bytes + self.held_bytes_max();
        self.log.segments_max = (bytes / self.log.segment_bytes) as u32 + 3 + self.log.segments_ahead;
        self
    }

    /// Bytes of entries that may be kept beyond a checkpoint, in a log that was [`Config::sized`].
    pub fn held_bytes_max(&self) -> u64 {
        self.wal_bytes_max / 2
    }

    /// Bytes its files may take.
    pub fn bytes_max(&self) -> u64 {
        self.log.segments_max as u64 * self.log.segment_bytes
    }

    /// The defaults, for a new cluster (`create`) or a known one.
    pub fn new(id: u128, create: bool) -> Self {
        let mut log = log::Config::wal();
        let wal_bytes_max = 256 << 20;
        // Twice the bound: sealed tails, records not yet purged and the purge record itself need room too.
        log.segments_max = (2 * wal_bytes_max / log.segment_bytes) as u32 + 4;
        log.segments_reserve = 1;
        let (mirrors, metrics) = (mirror::Config::default(), Metrics::default());
        let (checkpoint_bytes, kept_bytes_max) = (64 << 20, 192 << 20);
        Self { node: 1, address: String::new(), create, id, mirrors, checkpoint_bytes, wal_bytes_max, kept_bytes_max, log, metrics }
    }
}

struct RaftLog {
    raft: Raft<Types, Machine>,
    wal: Arc<Wal>,
    shared: Arc<Shared>,
    health: Arc<Health>,
    in_flight: Semaphore,
    wal_bytes_max: u64,
}

/// Opens the log in `dirs` (one folder for a copy in each data folder, in their order), re-applies to `sm` what it does not durably hold, and leads.
/// Where there are several devices it is on two before this returns.
///
/// To be called in the runtime whose thread is to do the work. Fails when the log is missing and not to be made, damaged, or
/// does not belong to the state.
pub async fn open(
    disk: Arc<dyn Disk>,
    dirs: Vec<PathBuf>,
    config: Config,
    clock: Arc<dyn Clock>,
    sm: Arc<dyn StateMachine>,
) -> Result<Arc<dyn MetaLog>> {
    let folders = Folders::new(&config.mirrors, dirs);
    if folders.len() == 0 {
        return Err(Error::Failed("no folder for the metadata log".into()));
    }
    let (index, tail) = sm.restore()?;
    let tail = match tail {
        Some(bytes) => Some(record::decode::<record::Tail>(&bytes, "the log's record in the state").map_err(Error::Failed)?),
        None if index == 0 => None,
        None => return Err(Error::Failed(format!("the state holds commands up to {index} without the log's record"))),
    };
    let mut started = start(&disk, &folders, &config, index, &Restage::of(&*sm, index)).await?;
    let state = &mut started.state;
    tracing::debug!(entries = state.window.len(), "metadata log read");
    let behind = match &tail {
        Some(tail) if config.mirrors.behind_state => Some(state.begin_behind(tail)),
        // What the newest copy at hand lacks is in the state.
        Some(tail) if config.mirrors.accept_stale && state.window.last() < Some(tail.applied.into()) => {
            config.mirrors.doubt(mirror::Doubt::Stale)?;
            Some(state.begin_behind(tail))
        }
        _ => None,
    };
    let applied: Option<types::Id> = tail.as_ref().map(|t| t.applied.into());
    if state.rewind(applied) {
        tracing::info!(?applied, "the metadata log is applied again behind an older state");
    }
    check_state(state, tail.as_ref())?;
    state.now_ns = state.now_ns.max(tail.as_ref().map_or(0, |t| t.now_ns));

    let health = Arc::new(Health::default());
    let wal = Wal::new(disk, folders, started, &config, health.clone(), clock.clone());
    if let Some(purge) = behind {
        wal.write(record::kind::RESET, record::encode(&record::Reset {})).await.map_err(failed)?;
        wal.write(record::kind::PURGE, record::encode(&purge)).await.map_err(failed)?;
    }
    let (weak, bytes_max) = (Arc::downgrade(&wal), config.wal_bytes_max);
    sm.pace_by(Arc::new(move || weak.upgrade().map_or(0, |wal| wal.fill_permille(bytes_max))));
    wal.hold(&*sm);
    wal.replicated().await;
    let machine = Machine::restore(wal.clone(), sm, index, tail.as_ref()).map_err(Error::Failed)?;
    let shared = machine.shared();
    let store = Store { wal: wal.clone(), clock };
    runtime::seed(config.id as u64);
    let raft = Raft::new(config.node, Arc::new(raft_config()?), network::NoNetwork, store, machine).await.map_err(failed)?;
    let this = Arc::new(RaftLog {
        raft,
        wal,
        shared,
        health,
        in_flight: Semaphore::new(PROPOSALS_MAX as usize),
        wal_bytes_max: config.wal_bytes_max,
    });
    this.clone().lead(&config).await?;
    tokio::spawn(watch_role(this.raft.clone(), this.health.clone(), config.node));
    tokio::spawn(checkpoint_when_grown(this.raft.clone(), this.wal.clone(), this.shared.clone()));
    Ok(this)
}

/// The index and stamp of the newest entry that any copy in `dirs` holds, without changing anything. `None`: none can be read.
pub async fn newest(disk: &Arc<dyn Disk>, dirs: &[PathBuf]) -> Option<(u64, i64)> {
    let newest = dump::Newest::default();
    for dir in dirs.iter().filter(|d| log::Log::exists(&**disk, d)) {
        if let Err(e) = log::dump(&**disk, dir, &newest, &mut |_| Ok(())).await {
            tracing::debug!(dir = %dir.display(), error = %e, "a copy of the metadata log cannot be looked at");
        }
    }
    newest.get()
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

/// The state must be a prefix of the log, and the log must reach back to it.
fn check_state(state: &wal::State, tail: Option<&record::Tail>) -> Result<()> {
    let applied: Option<types::Id> = tail.map(|t| t.applied.into());
    let (purged, last) = (state.window.purged(), state.window.last());
    if applied < purged {
        return Err(Error::Failed(format!("the state is older than the metadata log: applied {applied:?}, purged {purged:?}")));
    }
    let Some(applied) = applied else { return Ok(()) };
    if state.window.id_at(applied.index) != Some(applied) {
        return Err(Error::Failed(format!(
            "the metadata log ends before the state or differs from it: applied {applied:?}, last entry {last:?}"
        )));
    }
    Ok(())
}

fn raft_config() -> Result<openraft::Config> {
    let config = openraft::Config {
        cluster_name: "holdfast-meta".into(),
        // Generous, since one member has nobody to be late for: it elects itself when it is opened.
        heartbeat_interval: 500,
        election_timeout_min: 1500,
        election_timeout_max: 3000,
        // Checkpoints are asked for by bytes, and purge all they cover.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        purge_batch_size: 1,
        api_channel_size: Some(u64::from(PROPOSALS_MAX)),
        // A restart begins a term of its own: what the log holds is committed by that term's first entry.
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    config.validate().map_err(failed)
}

impl RaftLog {
    /// Elects this member and waits until its term's first entry, and so all before it, is applied.
    async fn lead(self: Arc<Self>, config: &Config) -> Result<()> {
        let fresh = !self.raft.is_initialized().await.map_err(failed)?;
        if fresh {
            let members = BTreeMap::from([(config.node, BasicNode::new(&config.address))]);
            self.raft.initialize(members).await.map_err(failed)?;
        } else {
            self.raft.trigger().elect(false).await.map_err(failed)?;
        }
        let wait = self.raft.wait(Some(Duration::from_secs(600)));
        let ready = wait.metrics(
            |m| {
                let applied_now = m.last_applied.is_some_and(|id| id.leader_id.term == m.current_term);
                m.running_state.is_err() || (m.state == ServerState::Leader && applied_now)
            },
            "leads",
        );
        let metrics = tokio::select! {
            biased;
            metrics = ready => metrics.map_err(failed)?,
            () = self.ended() => return Err(self.health.failed()),
        };
        if let Err(e) = metrics.running_state {
            self.health.fail(e);
            return Err(self.health.failed());
        }
        self.health.set_leader(true, Some(config.address.clone()));
        Ok(())
    }

    async fn ended(&self) {
        loop {
            let changed = self.health.changed.notified();
            if self.health.failure().is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Waits while too much was written since the last checkpoint.
    async fn room(&self) -> Result<()> {
        loop {
            let changed = self.health.changed.notified();
            if self.health.failure().is_some() {
                return Err(self.health.failed());
            }
            if self.wal.state.lock().bytes <= self.wal_bytes_max {
                return Ok(());
            }
            changed.await;
        }
    }

    async fn propose_here(&self, command: Bytes) -> Result<Bytes> {
        if command.len() > COMMAND_BYTES_MAX {
            return Err(Error::Failed(format!("a command of {} bytes; the largest is {COMMAND_BYTES_MAX}", command.len())));
        }
        let _in_flight = self.in_flight.acquire().await.expect("never closed");
        self.room().await?;
        self.wal.metrics.proposals.inc();
        match self.raft.client_write(Command { now_ns: 0, bytes: command }).await {
            Ok(done) => Ok(done.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to))) => {
                Err(Error::NotLeader { leader: to.leader_node.map(|n| n.addr) })
            }
            Err(e) => {
                // The first failure knows better than whoever met its consequences.
                self.health.fail(e);
                Err(self.health.failed())
            }
        }
    }
}

impl MetaLog for RaftLog {
    fn propose(&self, command: Bytes) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(self.propose_here(command))
    }

    fn may_read(&self) -> Result<()> {
        self.health.leads()
    }

    fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    fn mirrors(&self) -> Vec<Mirror> {
        self.wal.shown()
    }

    fn devices(&self, now: Devices) -> BoxFuture<'_, Vec<PathBuf>> {
        Box::pin(self.wal.devices(now))
    }

    fn notes(&self) -> Vec<String> {
        self.wal.mirrors.notes.clone()
    }

    fn kept(&self) -> Kept {
        self.wal.kept(self.shared.sm.keep().unwrap_or(0))
    }

    fn tight(&self) -> bool {
        let tight = self.wal.tight();
        if tight {
            // A checkpoint gives segments back.
            self.wal.grown.notify_one();
        }
        tight
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // New proposals are refused. Those on their way are ahead of this blank entry, so they have their answers when it has
            // its own; waiting for their callers instead would wait for futures that nobody may be polling.
            self.health.stop();
            if let Err(e) = self.raft.write_blank().await {
                tracing::warn!(error = %e, "proposals on their way were not waited for");
            }
            if let Err(e) = self.raft.shutdown().await {
                tracing::warn!(error = %e, "raft did not stop cleanly");
            }
            let committed = self.wal.state.lock().committed;
            if let Some(id) = committed {
                let body = record::encode(&record::Committed { id: id.into() });
                // Only spares the next start a second look; a failure here is reported by the log itself.
                let _ = self.wal.write(record::kind::COMMITTED, body).await;
            }
            self.wal.grown.notify_one();
            self.wal.close().await;
        })
    }
}

/// Keeps the one atomic that reads look at.
async fn watch_role(raft: Raft<Types, Machine>, health: Arc<Health>, node: u64) {
    let mut rx = raft.server_metrics();
    drop(raft);
    loop {
        {
            let m = rx.borrow_watched();
            let leader = m.current_leader.and_then(|id| m.membership_config.get_node(&id).map(|n| n.addr.clone()));
            health.set_leader(m.state == ServerState::Leader && m.current_leader == Some(node), leader);
        }
        if rx.changed().await.is_err() {
            // The core is gone: by shutdown, which has its own reason on record, or by a failure.
            health.fail("raft stopped");
            return;
        }
    }
}

/// Asks for a checkpoint whenever enough was written.
async fn checkpoint_when_grown(raft: Raft<Types, Machine>, wal: Arc<Wal>, shared: Arc<Shared>) {
    loop {
        wal.grown.notified().await;
        if wal.health.failure().is_some() {
            return;
        }
        let (bytes, tight) = (wal.state.lock().bytes, wal.tight());
        if bytes < wal.checkpoint_bytes && !(tight && bytes >= TIGHT_BYTES) || shared.building.swap(true, Ordering::AcqRel) {
            continue;
        }
        if raft.trigger().snapshot().await.is_err() {
            return;
        }
    }
}
