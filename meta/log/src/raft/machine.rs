//! openraft's state machine, over ours: commands go through, everything else is the log's own and rides in the tail.
//!
//! What always holds: the tail handed to the state names the last applied entry and the membership in force, so a start
//! goes on exactly after what the state durably holds. A snapshot is a durable checkpoint of the state, nothing else.
//! What it leaves out: moving a snapshot to another member; installing one is refused.

use super::record::{self, StoredMembers, Tail};
use super::types::{Id, Members, Payload, RaftEntry, Types};
use super::wal::Wal;
use crate::{Entry, Error, StateMachine};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use holdfast_objstore_base::failpoint;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{OptionalSend, StoredMembership};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// At most this many entries are handed to the state machine at once, so that the data thread gets to other work.
const BATCH_MAX: usize = 512;

/// A durable checkpoint, as openraft's snapshot data: the bytes stay on this member's device.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint;

/// What the machine and its checkpoints share with the rest of the log.
pub struct Shared {
    pub wal: Arc<Wal>,
    pub sm: Arc<dyn StateMachine>,
    /// Index of the last applied command.
    pub applied: AtomicU64,
    /// A checkpoint was asked for and is not done.
    pub building: AtomicBool,
    books: Mutex<Books>,
}

struct Books {
    /// Memberships by their log ids, oldest first: those in force at or after the newest checkpoint.
    members: Vec<Members>,
    checkpoint: Option<SnapshotMetaOf<Types>>,
}

pub struct Machine {
    shared: Arc<Shared>,
    applied: Option<Id>,
    members: Members,
    now_ns: i64,
}

impl Machine {
    /// Goes on from what the state holds: the index of its last command and the tail kept with it.
    pub fn restore(wal: Arc<Wal>, sm: Arc<dyn StateMachine>, index: u64, tail: Option<&Tail>) -> Result<Self, String> {
        let (applied, members) = match tail {
            Some(t) => (Some(t.applied.into()), t.members()?),
            None => (None, StoredMembership::default()),
        };
        let checkpoint = applied.map(|id| SnapshotMeta { last_log_id: Some(id), last_membership: members.clone() });
        let books = Mutex::new(Books { members: vec![members.clone()], checkpoint });
        let shared = Shared { wal, sm, applied: AtomicU64::new(index), building: AtomicBool::new(false), books };
        Ok(Self { shared: Arc::new(shared), applied, members, now_ns: tail.map_or(0, |t| t.now_ns) })
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Applies entries in order and answers whoever waits for them.
    fn apply_batch(&mut self, batch: &mut Vec<EntryResponder<Types>>) -> io::Result<()> {
        let Some((last, _)) = batch.last() else { return Ok(()) };
        self.applied = Some(last.log_id);
        let mut commands = Vec::with_capacity(batch.len());
        for (entry, _) in batch.iter() {
            self.note(entry, &mut commands);
        }
        let tail = Tail {
            applied: self.applied.expect("just set").into(),
            members_id: self.members.log_id().map(Into::into),
            members: StoredMembers::from(self.members.membership()),
            now_ns: self.now_ns,
        };
        let shared = &self.shared;
        let mut replies = match shared.sm.apply(&commands, Bytes::from(record::encode(&tail))) {
            Ok(replies) if replies.len() == commands.len() => replies.into_iter(),
            Ok(replies) => return Err(self.fail(format!("{} replies for {} commands", replies.len(), commands.len()))),
            Err(Error::Failed(why)) => return Err(self.fail(why)),
            Err(e) => return Err(self.fail(e)),
        };
        shared.wal.metrics.apply_batches.inc();
        shared.wal.metrics.applied.inc_by(commands.len() as u64);
        if let Some(last) = commands.last() {
            shared.applied.store(last.index, Ordering::Release);
            shared.wal.hold(&*shared.sm);
        }
        for (entry, responder) in batch.drain(..) {
            let reply = match entry.payload {
                Payload::Normal(_) => replies.next().expect("as many replies as commands"),
                Payload::Blank | Payload::Membership(_) => Bytes::new(),
            };
            if let Some(responder) = responder {
                responder.send(reply);
            }
        }
        Ok(())
    }

    fn note(&mut self, entry: &RaftEntry, commands: &mut Vec<Entry>) {
        match &entry.payload {
            Payload::Blank => {}
            Payload::Normal(c) => {
                self.now_ns = self.now_ns.max(c.now_ns);
                commands.push(Entry { index: entry.log_id.index, now_ns: c.now_ns, command: c.bytes.clone() });
            }
            Payload::Membership(m) => {
                self.members = StoredMembership::new(Some(entry.log_id), m.clone());
                self.shared.books.lock().members.push(self.members.clone());
            }
        }
    }

    fn fail(&self, why: impl std::fmt::Display) -> io::Error {
        failpoint::reached("wal.apply_failed");
        let why = format!("applying commands: {why}");
        self.shared.wal.fail(&why);
        io::Error::other(why)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Checkpoint;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<Id>, Members), io::Error> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut batch = Vec::new();
        while let Some(next) = entries.next().await {
            batch.push(next?);
            if batch.len() == BATCH_MAX {
                self.apply_batch(&mut batch)?;
                tokio::task::yield_now().await;
            }
        }
        self.apply_batch(&mut batch)
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Builder> {
        if self.shared.applied.load(Ordering::Acquire) == 0 {
            // Nothing was commanded yet, so there is nothing a checkpoint could stand for.
            self.shared.building.store(false, Ordering::Release);
            return None;
        }
        Some(Builder(self.shared.clone()))
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(self.shared.clone())
    }

    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types>, _: Checkpoint) -> Result<(), io::Error> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this version cannot take a snapshot from another member"))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<Types, Checkpoint>>, io::Error> {
        Ok(self.shared.current())
    }
}

impl Shared {
    fn current(&self) -> Option<SnapshotOf<Types, Checkpoint>> {
        let meta = self.books.lock().checkpoint.clone()?;
        Some(Snapshot { meta, snapshot: Checkpoint })
    }

    /// Makes a durable checkpoint and names it.
    async fn build(&self) -> Result<SnapshotOf<Types, Checkpoint>, String> {
        let before = self.wal.state.lock().bytes;
        let index = self.sm.checkpoint().await.map_err(|e| e.to_string())?;
        self.wal.metrics.checkpoints.inc();
        let id = {
            let mut s = self.wal.state.lock();
            s.bytes = s.bytes.saturating_sub(before);
            s.window.id_at(index)
        };
        let mut books = self.books.lock();
        let old = books.checkpoint.as_ref().and_then(|m| m.last_log_id);
        match id {
            Some(id) if old.is_none_or(|old| old < id) => {
                let from = books.members.iter().rposition(|m| m.log_id().is_none_or(|m| m.index <= id.index)).unwrap_or(0);
                books.members.drain(..from);
                let last_membership = books.members.first().cloned().unwrap_or_default();
                books.checkpoint = Some(SnapshotMeta { last_log_id: Some(id), last_membership });
            }
            // No command since the last one.
            _ if old.is_some_and(|old| old.index >= index) => {}
            _ => return Err(format!("a checkpoint at {index}, which this log does not hold")),
        }
        drop(books);
        self.current().ok_or_else(|| "no checkpoint".into())
    }
}

/// Makes one checkpoint.
pub struct Builder(Arc<Shared>);

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Checkpoint;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, Checkpoint>, io::Error> {
        let built = self.0.build().await;
        self.0.building.store(false, Ordering::Release);
        let wal = &self.0.wal;
        match &built {
            Ok(_) => {
                wal.health.changed.notify_waiters();
                // What was written meanwhile may already call for the next one.
                if wal.state.lock().bytes >= wal.checkpoint_bytes {
                    wal.grown.notify_one();
                }
            }
            Err(why) => wal.fail(format!("checkpoint of the state: {why}")),
        }
        built.map_err(io::Error::other)
    }
}
