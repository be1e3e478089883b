//! What openraft asks of a log store, over the write-ahead log and the window in memory.
//!
//! What always holds: entries are readable when `append` returns and reported durable only after their flush; the leader's
//! stamp is set here, where the order of the log is made, and never goes back.

use super::record::{self, Entries, Purge, StoredEntry, Truncate, kind};
use super::types::{Id, Payload, RaftEntry, Types, Vote};
use super::wal::{About, Done, Wal};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_osd::log::PAYLOAD_BYTES_MAX;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A record carries at most this many bytes of commands, well below what the record log takes.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(RECORD_BYTES_MAX + (64 << 10) <= PAYLOAD_BYTES_MAX);

/// Room an entry takes beside its command, at most, unless it is a membership.
const ENTRY_OVERHEAD: usize = 64;

#[derive(Clone)]
pub struct Store {
    pub wal: Arc<Wal>,
    pub clock: Arc<dyn Clock>,
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<RaftEntry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        Ok(self.wal.state.lock().window.range(range))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.wal.state.lock().vote)
    }
}

impl Store {
    /// Stamps what this member proposed, puts it into the window and cuts it into records.
    fn take(&self, entries: impl IntoIterator<Item = RaftEntry>) -> io::Result<Vec<(Vec<u8>, About)>> {
        let clock = i64::try_from(self.clock.wall_ns()).unwrap_or(i64::MAX);
        let mut s = self.wal.state.lock();
        let committed = s.committed.map(Into::into);
        let mut records = Vec::new();
        let mut batch = Entries { committed, entries: Vec::new() };
        let mut bytes = 0;
        for mut entry in entries {
            let mut size = ENTRY_OVERHEAD;
            let now_ns = match &mut entry.payload {
                // Unstamped: it was proposed here. Stamped: another leader did it.
                Payload::Normal(c) if c.now_ns == 0 => {
                    c.now_ns = clock.max(s.now_ns);
                    size += c.bytes.len();
                    c.now_ns
                }
                Payload::Normal(c) => {
                    size += c.bytes.len();
                    c.now_ns
                }
                Payload::Blank | Payload::Membership(_) => s.now_ns,
            };
            s.now_ns = s.now_ns.max(now_ns);
            if bytes + size > RECORD_BYTES_MAX && !batch.entries.is_empty() {
                records.push(seal(&mut batch));
                bytes = 0;
            }
            bytes += size;
            batch.entries.push(StoredEntry::from_raft(&entry, now_ns));
            s.window.push(entry).map_err(io::Error::other)?;
        }
        if !batch.entries.is_empty() {
            records.push(seal(&mut batch));
        }
        Ok(records)
    }
}

fn seal(batch: &mut Entries) -> (Vec<u8>, About) {
    let about = About { index_max: batch.entries.last().map_or(0, |e| e.index), entries: batch.entries.len() as u64 };
    let body = record::encode(batch);
    batch.entries.clear();
    (body, about)
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let s = self.wal.state.lock();
        Ok(LogState { last_purged_log_id: s.window.purged(), last_log_id: s.window.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.wal.write(kind::VOTE, record::encode(&record::StoredVote::from(*vote))).await?;
        self.wal.state.lock().vote = Some(*vote);
        Ok(())
    }

    /// Rides on the next record; see docs/formats/wal.md for what a start does without it.
    async fn save_committed(&mut self, committed: Option<Id>) -> Result<(), io::Error> {
        let mut s = self.wal.state.lock();
        s.committed = s.committed.max(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<Id>, io::Error> {
        Ok(self.wal.state.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = self.take(entries)?;
        let Some((body, about)) = records.pop() else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        for (body, about) in records {
            self.wal.start(kind::ENTRIES, body, about, Done::Nobody).await?;
        }
        self.wal.start(kind::ENTRIES, body, about, Done::Raft(callback)).await
    }

    async fn truncate_after(&mut self, after: Option<Id>) -> Result<(), io::Error> {
        self.wal.state.lock().window.truncate(after);
        let body = record::encode(&Truncate { after: after.map(Into::into) });
        self.wal.start(kind::TRUNCATE, body, About::default(), Done::Nobody).await
    }

    async fn purge(&mut self, upto: Id) -> Result<(), io::Error> {
        let record = {
            let mut s = self.wal.state.lock();
            s.purge(upto);
            Purge { upto: upto.into(), vote: s.vote.map(Into::into), committed: s.committed.map(Into::into), now_ns: s.now_ns }
        };
        let wal = self.wal.clone();
        let below = wal.newest_lives();
        let (tx, rx) = tokio::sync::oneshot::channel();
        wal.start(kind::PURGE, record::encode(&record), About::default(), Done::Wake(tx)).await?;
        tokio::spawn(async move {
            if let Ok(Ok(())) = rx.await {
                wal.purged(upto.index, below);
            }
        });
        Ok(())
    }
}
