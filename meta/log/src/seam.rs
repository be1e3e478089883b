//! `MetaLog`: orders opaque commands, makes them durable in groups, hands them to a [`StateMachine`].

use crate::raft::mirror::{Folder, Place};
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use std::path::PathBuf;
use std::sync::Arc;

/// A committed command. The proposer's clock stamped `now_ns` (wall nanoseconds); it never goes back along the log.
#[derive(Debug, Clone)]
pub struct Entry {
    pub index: u64,
    pub now_ns: i64,
    pub command: Bytes,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Another member leads: ask it.
    #[error("not the leader")]
    NotLeader { leader: Option<String> },
    /// The log or the state failed; the service cannot go on until it is restarted.
    #[error("metadata log failed: {0}")]
    Failed(String),
}

pub type Result<T> = std::result::Result<T, Error>;

/// How much of the room that the log has beyond a checkpoint's threshold is taken, in thousandths: at 1000 proposals wait for a checkpoint to end.
pub type Fill = Arc<dyn Fn() -> u32 + Send + Sync>;

/// What the log drives. `meta/server` implements it over redb; tests over a map.
pub trait StateMachine: Send + Sync + 'static {
    /// Applies committed commands in order and answers one reply each. Synchronous and short: it runs on the data thread.
    /// `tail` is opaque bytes of the log (its own membership and last-applied record) that the state must keep and hand back from
    /// `restore`, atomically with the effects. An error is final.
    fn apply(&self, entries: &[Entry], tail: Bytes) -> Result<Vec<Bytes>>;
    /// What a start finds: the index of the last durably applied command (0: none), and the `tail` kept with it.
    fn restore(&self) -> Result<(u64, Option<Bytes>)>;
    /// Index of the oldest entry of which the state still needs the bytes though it has applied it: from there on entries stay in the log
    /// whatever checkpoint covers them. `None`: none. It only grows, but for entries that are applied in between.
    fn hold(&self) -> Option<u64> {
        None
    }
    /// Index of an entry from which on a snapshot of the state that lies elsewhere needs the log. Entries are kept from there on as from `hold`, but
    /// only as long as they are no more than the log has room for. `None`: there is no such snapshot.
    fn keep(&self) -> Option<u64> {
        None
    }
    /// At a start, before anything is applied: entries from `hold` up to what is durably applied, as far as the log has them, in the order of
    /// the log. They are shown for their bytes only; one may be shown that was overwritten and comes again.
    fn restage(&self, entry: &Entry) -> Result<()> {
        let _ = entry;
        Ok(())
    }
    /// Where the state learns how urgent the end of a checkpoint is. Once, at a start.
    fn pace_by(&self, fill: Fill) {
        let _ = fill;
    }
    /// Begins a durable checkpoint of all that is applied now and returns its index when it is stable. In the background of whoever awaits it.
    fn checkpoint(&self) -> BoxFuture<'_, Result<u64>>;
}

/// One log. Callers cannot tell which implementation.
pub trait MetaLog: Send + Sync + 'static {
    /// Returns the state machine's reply once the command is durable on a quorum and applied.
    fn propose(&self, command: Bytes) -> BoxFuture<'_, Result<Bytes>>;
    /// Ok while this member may answer reads from its applied state (leader, lease valid); one atomic load.
    fn may_read(&self) -> Result<()>;
    /// Index of the last applied command.
    fn applied(&self) -> u64;
    /// What each device that may hold a copy of the log is doing. Empty: the log is not kept on devices.
    fn mirrors(&self) -> Vec<Mirror> {
        Vec::new()
    }
    /// Takes in on which devices copies may lie from now on. Returns when nothing more can be done about it, which may be after a copy was moved;
    /// answers folders that are still relied on although they were not to be kept.
    fn devices(&self, now: Devices) -> BoxFuture<'_, Vec<PathBuf>> {
        let _ = now;
        Box::pin(std::future::ready(Vec::new()))
    }
    /// What the start could not make sure of, a sentence each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// The device has no room for the log to grow: only commands that free room should be proposed until this is false again.
    fn tight(&self) -> bool {
        false
    }
    /// What the log keeps for a snapshot that lies elsewhere.
    fn kept(&self) -> Kept {
        Kept::default()
    }
    /// Stops in order: nothing is in flight afterwards.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

/// What a log keeps for a snapshot of the state that lies elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// It has every entry from this index on.
    pub first: u64,
    /// Bytes written since the entry that the snapshot ends at.
    pub bytes: u64,
    /// Past so many they are not kept any more.
    pub bytes_max: u64,
}

/// On which devices copies of the log may lie. A folder is named by its place among them all, which never changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// All folders, those among them that the log was opened with.
    pub folders: Vec<Folder>,
    /// Of those that are there, one for each device.
    pub devices: Vec<Place>,
    /// Those that stay, there or not. The log relies on no other any more.
    pub kept: Vec<Place>,
    /// Those that lie on another device than before.
    pub renewed: Vec<Place>,
}

/// A device that may hold a copy of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The copy's folder.
    pub dir: PathBuf,
    /// `copy`, `filling`, `spare`, `late` or `lost`.
    pub role: &'static str,
    /// Records and bytes it lacks.
    pub lag_records: u64,
    pub lag_bytes: u64,
    /// Why it is out of service.
    pub why: Option<String>,
}

pub type SharedLog = Arc<dyn MetaLog>;
