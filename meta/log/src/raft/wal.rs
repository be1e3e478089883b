//! The write-ahead log: Raft's records, in order, on every copy in force, made durable in groups.
//!
//! What always holds: records take their place in the order of the calls, on every copy the same; a caller hears that its record is
//! durable only when enough copies have it and every earlier one. The first failure that no copy is left to survive is final: it is
//! kept, everyone waiting hears it, and nothing is written afterwards.
//! What it leaves out: what Raft wants to store ([`super::store`]), which copies count ([`super::mirror::rules`]), and reading it back at start ([`super::recover`]).

use super::health::Health;
use super::layout::{self, Key};
use super::mirror::folders::Folders;
use super::mirror::member::{Member, Record};
use super::mirror::rules::{Command, Event, Rules};
use super::mirror::set::{self, Epoch, Place, Set, Super};
use super::mirror::start::Started;
use super::record::{Purge, StoredId, StoredVote, Tail};
use super::types::{Id, RaftEntry, Types, Vote};
use super::window::Window;
use super::{Config, TIGHT_BYTES, mirror};
use crate::metrics::Metrics;
use crate::seam::{Devices, Kept, Mirror, StateMachine};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::block_up;
use holdfast_objstore_osd::log;
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, oneshot};

/// Who hears that a record is durable.
pub enum Done {
    Raft(IOFlushed<Types>),
    Wake(oneshot::Sender<io::Result<()>>),
    Nobody,
}

impl Done {
    fn call(self, result: io::Result<()>) {
        match self {
            Done::Raft(callback) => callback.io_completed(result),
            Done::Wake(tx) => drop(tx.send(result)),
            Done::Nobody => {}
        }
    }
}

#[derive(Default)]
pub struct State {
    pub window: Window,
    pub vote: Option<Vote>,
    pub committed: Option<Id>,
    /// The newest stamp; none goes below it.
    pub now_ns: i64,
    /// Bytes written since the newest checkpoint began.
    pub bytes: u64,
    /// The number of the newest record.
    pub number: u64,
    /// The state needs the bytes of entries from this one on, purged or not.
    pub hold: Option<u64>,
    /// Purged entries from there on, up to the purge point.
    held: VecDeque<RaftEntry>,
    /// Bytes written since this log was opened or made anew, those it was read back from too.
    written: u64,
    /// Where entries lie among them: the highest index of a record, and the bytes before it.
    starts: VecDeque<(u64, u64)>,
    /// Entries from here on were more than the log has room for, and are not kept.
    abandoned: Option<u64>,
    /// Who waits for records, from number `first_pending` on.
    pending: VecDeque<Done>,
    first_pending: u64,
}

/// Where the copies are and which of them count.
pub struct Mirrors {
    pub disk: Arc<dyn Disk>,
    pub folders: Folders,
    pub config: mirror::Config,
    pub log: log::Config,
    /// Identity of the log, on every device's superblock.
    pub id: u128,
    /// For the identities of copies made in this run; each is used once.
    pub seed: u128,
    /// Copies made in this run.
    pub made: AtomicU64,
    /// The number of this start.
    pub promised: u64,
    /// Whether there are, or were, devices for more than one copy.
    several: AtomicBool,
    rules: Mutex<Rules>,
    /// Copies that get records, by place.
    pub members: Mutex<BTreeMap<Place, Arc<Member>>>,
    /// Copies of this run that get none any more; their logs stay open, for what is under way.
    pub dropped: Mutex<BTreeMap<Place, Arc<Member>>>,
    /// Why places are out of service.
    reasons: Mutex<BTreeMap<Place, String>>,
    /// Places whose superblock is being written.
    writing: Arc<Mutex<std::collections::BTreeSet<Place>>>,
    /// Told when anything about the copies changed.
    pub changed: Notify,
    /// Told when a copy got further that is in no set yet.
    pub filled: Notify,
    /// What a start could not make sure of.
    pub notes: Vec<String>,
}

pub struct Wal {
    pub state: Mutex<State>,
    pub mirrors: Mirrors,
    pub metrics: Metrics,
    pub health: Arc<Health>,
    pub clock: Arc<dyn Clock>,
    /// Why nothing more is written. Not the same as the health's reason: a log that is being shut down still writes.
    broken: OnceLock<String>,
    /// Told when `State::bytes` passes the threshold.
    pub grown: Notify,
    /// Told when a copy has room again.
    pub unstalled: Notify,
    pub checkpoint_bytes: u64,
    kept_bytes_max: u64,
    /// It was closed, and nobody looks for late copies any more.
    closed: AtomicBool,
    /// What may be given back.
    spent: Mutex<Spent>,
}

/// The index of a purge, and each copy's life below which segments may go.
type Upto = (u64, Vec<(Arc<Member>, u32)>);

/// Up to where entries are purged, and from where on they are held all the same, for their bytes.
#[derive(Default)]
struct Spent {
    /// The newest durable purge: its index, and each copy's newest life before its record was started.
    purged: Option<Upto>,
    hold: Option<u64>,
    /// The hold kept something of that purge from being given back.
    behind: bool,
}

impl Spent {
    /// The last index that is needed by nobody, and each copy's life below which segments may go.
    fn upto(&mut self) -> Option<Upto> {
        let (purged, below) = self.purged.clone()?;
        let free = self.hold.map_or(u64::MAX, |h| h.saturating_sub(1));
        self.behind = free < purged;
        Some((purged.min(free), below))
    }
}

impl Wal {
    pub fn new(
        disk: Arc<dyn Disk>,
        folders: Folders,
        started: Started,
        config: &Config,
        health: Arc<Health>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let Started { members, mut state, set, id, promised, out, notes } = started;
        state.first_pending = state.number + 1;
        let failed: Vec<Place> = out.keys().copied().collect();
        let all: Vec<Place> = (0..folders.len() as Place).collect();
        let devices = config.mirrors.devices.as_ref().unwrap_or(&all);
        let wanted = set::wanted(&set.known, devices, config.mirrors.kept.as_deref());
        let mirrors = Mirrors {
            disk,
            folders,
            config: config.mirrors.clone(),
            log: config.log.clone(),
            id,
            seed: config.id,
            made: AtomicU64::new(0),
            promised,
            several: AtomicBool::new(false),
            rules: Mutex::new(Rules::new(set, config.mirrors.copies, state.number, &failed)),
            members: Mutex::new(members.into_iter().map(|m| (m.place, m)).collect()),
            dropped: Mutex::default(),
            reasons: Mutex::new(out),
            writing: Arc::default(),
            changed: Notify::new(),
            filled: Notify::new(),
            notes,
        };
        let wal = Arc::new(Self {
            state: Mutex::new(state),
            mirrors,
            metrics: config.metrics.clone(),
            health,
            clock,
            broken: OnceLock::new(),
            grown: Notify::new(),
            unstalled: Notify::new(),
            checkpoint_bytes: config.checkpoint_bytes,
            kept_bytes_max: config.kept_bytes_max,
            closed: AtomicBool::new(false),
            spent: Mutex::default(),
        });
        wal.want(wanted);
        wal.count_copies();
        wal
    }
}

impl State {
    /// Drops everything up to `upto` but for what is held for its bytes.
    pub fn purge(&mut self, upto: Id) {
        if let Some(hold) = self.hold {
            self.held.extend(self.window.range(hold..=upto.index));
        }
        self.window.purge(upto);
    }

    /// A record takes so many bytes; `index_max`: the highest entry in it.
    pub fn wrote(&mut self, index_max: u64, bytes: u64) {
        if index_max > self.starts.back().map_or(0, |s| s.0) {
            self.starts.push_back((index_max, self.written));
        }
        self.written += bytes;
    }

    /// Bytes written since an entry, its own record among them.
    fn bytes_since(&self, index: u64) -> u64 {
        let at = self.starts.partition_point(|(i, _)| *i < index);
        self.starts.get(at).map_or(0, |(_, before)| self.written - before)
    }

    /// What is to be held for those two, where entries from `keep` on may take `bytes_max`.
    fn held_for(&mut self, hold: Option<u64>, keep: Option<u64>, bytes_max: u64) -> Option<u64> {
        let Some(from) = keep else {
            self.starts.clear();
            return hold;
        };
        while self.starts.front().is_some_and(|s| s.0 < from) {
            self.starts.pop_front();
        }
        if self.abandoned != Some(from) && self.bytes_since(from) > bytes_max {
            tracing::warn!(from, bytes_max, "the metadata log has no room for all that the snapshot in the pool needs");
            self.abandoned = Some(from);
        }
        if self.abandoned == Some(from) { hold } else { Some(hold.map_or(from, |h| h.min(from))) }
    }

    /// Index of the oldest entry from which on all are here.
    fn first(&self) -> u64 {
        self.held.front().map_or_else(|| self.window.first_index(), |e| e.log_id.index)
    }

    /// Takes back purged entries for a state that ends before the purge point: one that was rebuilt from a snapshot. Whether they are all here,
    /// and follow what the state has.
    pub fn rewind(&mut self, applied: Option<Id>) -> bool {
        let Some(purged) = self.window.purged().filter(|p| applied < Some(*p)) else { return false };
        let from = applied.map_or(0, |a| a.index + 1);
        let other = |e: &RaftEntry| applied.is_some_and(|a| e.log_id.index == a.index && e.log_id != a);
        let Some(at) = self.held.iter().position(|e| e.log_id.index == from) else { return false };
        let follows = self.held.iter().skip(at).zip(from..).all(|(e, index)| e.log_id.index == index);
        if !follows || self.held.back().map(|e| e.log_id) != Some(purged) || self.held.iter().any(other) {
            return false;
        }
        let back = self.held.split_off(at);
        self.window.take_back(applied, back.into_iter());
        self.committed = self.committed.max(Some(purged));
        true
    }

    fn set_hold(&mut self, from: Option<u64>) {
        self.hold = from;
        let freed = self.held.iter().take_while(|e| from.is_none_or(|from| e.log_id.index < from)).count();
        self.held.drain(..freed);
    }

    /// Purged entries whose bytes the state still needs; they end at the purge point.
    pub fn held(&self) -> impl Iterator<Item = &RaftEntry> {
        self.held.iter()
    }

    /// Begins the log anew right behind what a state holds; answers the record that says so, which goes behind one that voids all entries.
    pub fn begin_behind(&mut self, tail: &Tail) -> Purge {
        let StoredId { term, leader, .. } = tail.applied;
        self.window = Window::default();
        self.held.clear();
        let vote = StoredVote { term, node: leader, committed: true };
        self.window.purge(tail.applied.into());
        (self.vote, self.committed) = (Some(vote.into()), Some(tail.applied.into()));
        Purge { upto: tail.applied, vote: Some(vote), committed: Some(tail.applied), now_ns: tail.now_ns }
    }
}

/// What a record is about, for the books.
#[derive(Clone, Copy, Default)]
pub struct About {
    /// Highest entry index in it.
    pub index_max: u64,
    pub entries: u64,
}

impl Wal {
    /// Starts writing a record. Returns when its place in the order is taken; `done` hears the rest.
    pub async fn start(self: &Arc<Self>, kind: u8, body: Vec<u8>, about: About, done: Done) -> io::Result<()> {
        if let Some(why) = self.broken.get() {
            failpoint::reached("wal.write_after_failure");
            let e = || io::Error::other(why.to_string());
            done.call(Err(e()));
            return Err(e());
        }
        let epoch = self.epoch();
        let (record, members) = {
            let mut s = self.state.lock();
            s.number += 1;
            s.pending.push_back(done);
            let number = s.number;
            let append = layout::pack(kind, Key { epoch, number }, about.index_max, body);
            let record = Record { number, bytes: stored_bytes(&append), append, index_max: about.index_max };
            s.bytes += record.bytes;
            s.wrote(about.index_max, record.bytes);
            // Together with the number: a copy that is being filled gets exactly what comes after the filling's snapshot.
            let members: Vec<Arc<Member>> = self.mirrors.members.lock().values().cloned().collect();
            (record, members)
        };
        self.metrics.wal_records.inc();
        self.metrics.wal_entries.inc_by(about.entries);
        self.metrics.wal_bytes.inc_by(record.bytes);
        let now_ns = self.clock.boot_ns();
        for m in &members {
            m.put(self, record.clone(), now_ns);
        }
        if self.state.lock().bytes >= self.checkpoint_bytes {
            self.grown.notify_one();
        }
        self.placed().await;
        match self.broken.get() {
            Some(why) => Err(io::Error::other(why.to_string())),
            None => Ok(()),
        }
    }

    /// Waits while fewer copies than needed have room for records: the log's own back-pressure.
    async fn placed(&self) {
        loop {
            let told = self.unstalled.notified();
            if self.broken.get().is_some() {
                return;
            }
            {
                let need = self.mirrors.rules.lock().set().need();
                let members = self.mirrors.members.lock();
                if members.values().filter(|m| !m.is_stalled()).count() >= need.min(members.len()) {
                    return;
                }
            }
            told.await;
        }
    }

    /// Writes a record and waits until it is durable.
    pub async fn write(self: &Arc<Self>, kind: u8, body: Vec<u8>) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        self.start(kind, body, About::default(), Done::Wake(tx)).await?;
        rx.await.unwrap_or_else(|_| Err(io::Error::other(self.broken.get().cloned().unwrap_or_else(|| "the write-ahead log ended".into()))))
    }

    /// A copy has everything up to a record on stable media.
    pub fn durable(self: &Arc<Self>, member: &Member, upto: u64) {
        self.tell(Event::Durable(member.place, upto));
        if self.is_mirrored() {
            self.mirrors.filled.notify_waiters();
        }
    }

    /// The set in force, by its epoch.
    pub fn epoch(&self) -> Epoch {
        self.mirrors.rules.lock().set().epoch
    }

    /// Whether it is handed records.
    pub fn is_member(&self, member: &Arc<Member>) -> bool {
        self.mirrors.members.lock().get(&member.place).is_some_and(|m| Arc::ptr_eq(m, member))
    }

    /// Keeps why a place is out of service.
    pub fn refuse(&self, place: Place, why: String) {
        self.mirrors.reasons.lock().entry(place).or_insert(why);
    }

    /// A copy takes no more writes.
    pub fn lost(self: &Arc<Self>, member: &Arc<Member>, why: String) {
        if !self.is_member(member) {
            return; // it was left out before
        }
        if self.is_mirrored() {
            failpoint::reached("wal.copy_lost");
            tracing::error!(copy = %member.dir.display(), %why, "a copy of the metadata log is out of service");
        }
        self.refuse(member.place, why);
        self.tell(Event::Failed(member.place));
        self.mirrors.filled.notify_waiters();
    }

    /// Lets the rules decide, and does what they say.
    pub fn tell(self: &Arc<Self>, event: Event) {
        let commands = self.mirrors.rules.lock().step(event);
        self.obey(commands);
        if !matches!(event, Event::Durable(..)) {
            self.count_copies();
            self.mirrors.changed.notify_waiters();
        }
    }

    /// From now on these devices are to be known.
    fn want(self: &Arc<Self>, wanted: Vec<Place>) {
        let several = wanted.len() > 1 || self.mirrors.rules.lock().set().known.len() > 1;
        if several && !self.mirrors.several.swap(true, Ordering::Relaxed) {
            tokio::spawn(Self::watch_lag(Arc::downgrade(self)));
        }
        let commands = self.mirrors.rules.lock().devices(wanted);
        self.obey(commands);
    }

    /// Takes in which folders there are now, which of them are to be known, and which devices are others than before. Returns when nothing more can be
    /// done about it; answers the folders that are known although they were not to stay.
    pub async fn devices(self: &Arc<Self>, now: Devices) -> Vec<PathBuf> {
        let m = &self.mirrors;
        m.folders.update(now.folders);
        for place in &now.renewed {
            let member = m.members.lock().get(place).cloned();
            if let Some(member) = member.filter(|old| !log::Log::exists(&*m.disk, &old.dir)) {
                failpoint::reached("wal.copy_vanished");
                self.lost(&member, "its device was taken away".into());
            }
        }
        self.settled().await;
        for place in now.renewed {
            // One that only hangs may still write there.
            let ended = |old: &Arc<Member>| old.log.failure().is_some() || old.log.durable_seq() >= old.log.last_seq();
            if m.dropped.lock().get(&place).is_none_or(ended) && !m.members.lock().contains_key(&place) {
                m.dropped.lock().remove(&place);
                m.reasons.lock().remove(&place);
                self.tell(Event::Renewed(place));
            }
        }
        let known = m.rules.lock().set().known.clone();
        self.want(set::wanted(&known, &now.devices, Some(&now.kept)));
        self.settled().await;
        let left = m.rules.lock().set().stores().into_iter().filter(|p| !now.kept.contains(p)).map(|p| m.folders.dir(p));
        left.collect()
    }

    /// Waits until nothing more can be done to have the copies where they are to be.
    async fn settled(&self) {
        loop {
            let changed = self.mirrors.changed.notified();
            if self.mirrors.rules.lock().is_settled() || self.is_broken() {
                return;
            }
            changed.await;
        }
    }

    fn obey(self: &Arc<Self>, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Ack(upto) => self.acknowledge(upto),
                Command::Propose(set) => {
                    self.metrics.mirror_set_changes.inc();
                    tracing::info!(epoch = %set.epoch, members = ?set.members, "copies of the metadata log that count");
                    tokio::spawn(self.clone().propose(set));
                }
                Command::Fill(place) => drop(tokio::spawn(self.clone().fill(place))),
                Command::Drop(place) => {
                    if let Some(member) = self.mirrors.members.lock().remove(&place) {
                        member.close();
                        self.mirrors.dropped.lock().insert(place, member);
                    }
                    self.unstalled.notify_waiters();
                    self.mirrors.filled.notify_waiters();
                }
                Command::Fail(why) => {
                    let first = self.mirrors.reasons.lock().values().next().cloned();
                    match first {
                        Some(first) if !self.is_mirrored() => self.fail(first),
                        Some(first) => self.fail(format!("{why}: {first}")),
                        None => self.fail(why),
                    }
                }
            }
        }
    }

    fn acknowledge(&self, upto: u64) {
        let over: Vec<Done> = {
            let mut s = self.state.lock();
            let n = (upto + 1).saturating_sub(s.first_pending).min(s.pending.len() as u64);
            s.first_pending += n;
            s.pending.drain(..n as usize).collect()
        };
        over.into_iter().for_each(|done| done.call(Ok(())));
    }

    /// Makes a set durable on a quorum of the devices that store it.
    async fn propose(self: Arc<Self>, set: Set) {
        let m = &self.mirrors;
        let what = Super { log: m.id, promised: m.promised, set: set.clone() };
        let enough = |have: &[Place]| set.decided_by(have);
        let counts = set::store(&m.disk, &m.folders, &set.stores(), &what, enough, m.log.blocking, &m.writing).await;
        if !counts {
            failpoint::reached("wal.set_refused");
        }
        self.tell(if counts { Event::Counts } else { Event::Refused });
    }

    /// Ends the log: everyone waiting hears why.
    pub fn fail(&self, why: impl std::fmt::Display) {
        failpoint::reached("wal.failed");
        let why = self.broken.get_or_init(|| why.to_string()).clone();
        self.health.fail(&why);
        let over = {
            let mut s = self.state.lock();
            let over = std::mem::take(&mut s.pending);
            s.first_pending += over.len() as u64;
            over
        };
        over.into_iter().for_each(|done| done.call(Err(io::Error::other(why.clone()))));
        self.grown.notify_one();
        self.unstalled.notify_waiters();
        self.mirrors.changed.notify_waiters();
    }

    /// Waits until nothing of the copies in force is under way. One that takes longer than a copy may lack what others have, once one of them is
    /// done, is left behind: it could never end.
    pub async fn close(&self) {
        let members: Vec<Arc<Member>> = self.mirrors.members.lock().values().cloned().collect();
        let mut closing = tokio::task::JoinSet::new();
        for m in members {
            closing.spawn(async move { m.close_log().await });
        }
        let mut one_is_done = false;
        loop {
            let next = closing.join_next();
            let ended = match one_is_done {
                false => next.await,
                true => match tokio::time::timeout(self.mirrors.config.late_after, next).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        failpoint::reached("wal.close_not_waited_for");
                        tracing::warn!("a copy of the metadata log does not answer and is left as it is");
                        break;
                    }
                },
            };
            match ended {
                None => break,
                Some(Ok(Ok(()))) => one_is_done = true,
                Some(Ok(Err(e))) => tracing::warn!(error = %e, "the metadata log did not close cleanly"),
                Some(Err(e)) => tracing::warn!(error = %e, "closing the metadata log was cut short"),
            }
        }
        self.closed.store(true, Ordering::Release);
    }

    /// See [`crate::Fill`].
    pub fn fill_permille(&self, bytes_max: u64) -> u32 {
        if self.tight() {
            return 1000;
        }
        let over = self.state.lock().bytes.saturating_sub(self.checkpoint_bytes);
        let room = bytes_max.saturating_sub(self.checkpoint_bytes).max(1);
        (over.saturating_mul(1000) / room).min(1000) as u32
    }

    pub fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Whether the device of a copy has no room for it to grow.
    pub fn tight(&self) -> bool {
        self.mirrors.members.lock().values().any(|m| m.log.space().tight)
    }

    /// A purge of entries up to `upto` is durable: gives segments back. `below`: each copy's newest life before its record was started; a
    /// write still on its way cannot lie under it.
    pub fn purged(self: &Arc<Self>, upto: u64, below: Vec<(Arc<Member>, u32)>) {
        self.spent.lock().purged = Some((upto, below));
        self.retire();
    }

    /// Holds what the state needs of its entries. When that sets free what an earlier purge had to leave, it is given back.
    pub fn hold(self: &Arc<Self>, sm: &dyn StateMachine) {
        let (hold, keep) = (sm.hold(), sm.keep());
        let much = keep.is_some_and(|from| self.state.lock().bytes_since(from) >= TIGHT_BYTES);
        // Deletes on a full device need the log to be given back.
        let bytes_max = if much && self.tight() { 0 } else { self.kept_bytes_max };
        let from = {
            let mut s = self.state.lock();
            let from = s.held_for(hold, keep, bytes_max);
            if s.hold != from {
                s.set_hold(from);
            }
            from
        };
        let frees = {
            let mut spent = self.spent.lock();
            let risen = spent.hold.is_some_and(|old| from.is_none_or(|new| new > old));
            spent.hold = from;
            risen && spent.behind
        };
        if frees {
            self.retire();
        }
    }

    /// What is kept for a snapshot that ends at entry `from`.
    pub fn kept(&self, from: u64) -> Kept {
        let s = self.state.lock();
        Kept { first: s.first(), bytes: s.bytes_since(from), bytes_max: self.kept_bytes_max }
    }

    /// Has every copy that gets records give back the segments whose entries nobody needs, each for itself.
    fn retire(self: &Arc<Self>) {
        let Some((upto, below)) = self.spent.lock().upto() else { return };
        for (member, below) in below {
            if self.is_member(&member) {
                member.give_back(self, upto, below);
            }
        }
    }

    /// Each copy with the life its newest records go to.
    pub fn newest_lives(&self) -> Vec<(Arc<Member>, u32)> {
        self.mirrors.members.lock().values().map(|m| (m.clone(), m.newest_life())).collect()
    }

    /// Whether there are devices for more than one copy.
    pub fn is_mirrored(&self) -> bool {
        self.mirrors.several.load(Ordering::Relaxed)
    }

    /// Waits until the log is on two devices, or cannot be: before anybody is served.
    pub async fn replicated(&self) {
        loop {
            let changed = self.mirrors.changed.notified();
            {
                let rules = self.mirrors.rules.lock();
                if rules.set().need() >= self.mirrors.config.copies.min(2) || rules.is_settled() || self.is_broken() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Leaves out copies that are too far behind, and takes back those that have caught their breath.
    pub async fn watch_lag(this: std::sync::Weak<Self>) {
        loop {
            let look = match this.upgrade() {
                // Also while it is shut down: what is under way waits for a copy that hangs.
                Some(wal) if !wal.is_broken() && !wal.closed.load(Ordering::Acquire) => wal.mirrors.config.late_after / 8,
                _ => return,
            };
            tokio::time::sleep(look).await;
            if let Some(wal) = this.upgrade() {
                wal.look_for_late();
            }
        }
    }

    fn look_for_late(self: &Arc<Self>) {
        let newest = self.state.lock().number;
        let members: Vec<Arc<Member>> = self.mirrors.members.lock().values().cloned().collect();
        let lags: Vec<_> = members.iter().map(|m| (m.place, m.lag(newest))).collect();
        let (late_ns, late_bytes) = (self.mirrors.config.late_after.as_nanos() as u64, self.mirrors.config.late_bytes);
        let now = self.clock.boot_ns();
        for (place, lag) in &lags {
            let Some((number, since)) = lag.oldest else { continue };
            let others_have_it = lags.iter().any(|(p, l)| p != place && l.durable >= number);
            if others_have_it && (now.saturating_sub(since) > late_ns || lag.bytes > late_bytes) {
                failpoint::reached("wal.copy_late");
                tracing::warn!(copy = %self.mirrors.folders.dir(*place).display(), records = lag.records, bytes = lag.bytes, "a copy of the metadata log is late and is left out");
                self.tell(Event::Late(*place));
            }
        }
        let dropped: Vec<Arc<Member>> = self.mirrors.dropped.lock().values().cloned().collect();
        for member in dropped {
            let late = self.mirrors.rules.lock().is_late(member.place);
            if late && member.log.failure().is_none() && member.log.durable_seq() >= member.log.last_seq() {
                failpoint::reached("wal.copy_back");
                self.tell(Event::Back(member.place));
            }
        }
        self.gauge(&lags.iter().map(|(_, l)| *l).collect::<Vec<_>>());
    }

    fn count_copies(&self) {
        self.metrics.mirrors.set(self.mirrors.rules.lock().set().members.len() as i64);
    }

    fn gauge(&self, lags: &[mirror::member::Lag]) {
        self.count_copies();
        self.metrics.mirror_lag_records.set(lags.iter().map(|l| l.records).max().unwrap_or(0) as i64);
        self.metrics.mirror_lag_bytes.set(lags.iter().map(|l| l.bytes).max().unwrap_or(0) as i64);
    }

    /// What each known device's copy is doing.
    pub fn shown(&self) -> Vec<Mirror> {
        let newest = self.state.lock().number;
        let members = self.mirrors.members.lock().clone();
        let reasons = self.mirrors.reasons.lock().clone();
        let rules = self.mirrors.rules.lock();
        let set = rules.set();
        set.known
            .iter()
            .map(|place| {
                let role = match (set.members.contains(place), rules.filling() == Some(*place)) {
                    _ if rules.has_failed(*place) => "lost",
                    _ if rules.is_late(*place) => "late",
                    (true, _) => "copy",
                    (_, true) => "filling",
                    _ => "spare",
                };
                let lag = members.get(place).map(|m| m.lag(newest)).unwrap_or_default();
                Mirror {
                    dir: self.mirrors.folders.dir(*place),
                    role,
                    lag_records: lag.records,
                    lag_bytes: lag.bytes,
                    why: reasons.get(place).cloned(),
                }
            })
            .collect()
    }
}

/// What a record takes on a device, head and padding included.
fn stored_bytes(append: &log::Append) -> u64 {
    /// Of the record log's own head.
    const HEAD: u64 = 64;
    block_up(HEAD + append.meta.len() as u64 + 4 * append.payload.len().div_ceil(holdfast_objstore_base::units::BLOCK) as u64)
        + block_up(append.payload.len() as u64)
}
