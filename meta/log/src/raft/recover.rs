//! Reading the write-ahead log back at start.
//!
//! What always holds: the result is what a reader of the records in order would know: entries, vote, how far it was committed,
//! the newest stamp, and which segment life holds which entries. Anything that does not fit together is refused. Entries that the state
//! has applied and still needs the bytes of are shown to it on the way.

use super::layout::{Body, Key, unpack};
use super::record::{self, Committed, Entries, Purge, Reset, StoredEntry, StoredKind, StoredVote, Truncate, kind};
use super::wal::State;
use crate::{Entry, Error, StateMachine};
use bytes::Bytes;
use holdfast_objstore_osd::log::{Location, Log, Recovered, Visitor};
use std::collections::BTreeMap;

/// Gathers the records while a log opens; bodies that lie in payloads are read afterwards.
#[derive(Default)]
pub struct Collect(pub Vec<Found>);

/// A record that was found.
pub struct Found {
    pub kind: u8,
    pub key: Key,
    /// The highest entry index in it.
    pub index_max: u64,
    pub location: Location,
    pub meta: Bytes,
}

impl Visitor for Collect {
    fn checkpoint(&mut self, _from_seq: u64, _bytes: Bytes) -> Result<(), String> {
        Err("the write-ahead log of the metadata holds a checkpoint, which no version of this code writes".into())
    }

    fn record(&mut self, r: Recovered<'_>) -> Result<(), String> {
        let (key, index_max, _) = unpack(r.meta)?;
        self.0.push(Found { kind: r.kind, key, index_max, location: r.location, meta: Bytes::copy_from_slice(r.meta) });
        Ok(())
    }
}

/// What the records of one copy say.
pub struct Replayed {
    state: State,
    shown: Vec<Entry>,
}

impl Replayed {
    /// Shows the state what it is to see again.
    pub fn taken(self, restage: &Restage<'_>) -> Result<State, Error> {
        restage.show(&self.shown)?;
        Ok(self.state)
    }
}

/// Entries to show to the state again.
pub struct Restage<'a> {
    sm: &'a dyn StateMachine,
    from: Option<u64>,
    /// The last one it has durably applied.
    to: u64,
}

impl<'a> Restage<'a> {
    pub fn of(sm: &'a dyn StateMachine, applied: u64) -> Self {
        let from = [sm.hold(), sm.keep()].into_iter().flatten().min();
        Self { sm, from, to: applied }
    }

    fn wants(&self, e: &StoredEntry) -> Option<Entry> {
        match &e.kind {
            StoredKind::Command(command) if self.from.is_some_and(|from| from <= e.index) && e.index <= self.to => {
                Some(Entry { index: e.index, now_ns: e.now_ns, command: command.clone() })
            }
            _ => None,
        }
    }

    fn show(&self, entries: &[Entry]) -> Result<(), Error> {
        entries.iter().try_for_each(|e| self.sm.restage(e))
    }
}

impl Collect {
    /// The name of the last record.
    pub fn last(&self) -> Key {
        self.0.last().map_or_else(Key::default, |f| f.key)
    }

    /// The highest entry index in each segment life.
    pub fn lives(&self) -> BTreeMap<u32, u64> {
        let mut lives = BTreeMap::<u32, u64>::new();
        for f in &self.0 {
            let life = lives.entry(f.location.position.life).or_default();
            *life = (*life).max(f.index_max);
        }
        lives
    }

    /// Plays the records back in order. An error: they are not whole; nothing was shown to the state then.
    pub async fn replay(&self, log: &Log, restage: &Restage<'_>) -> Result<Replayed, Error> {
        let (mut state, mut shown) = (State::default(), Vec::new());
        state.hold = restage.from;
        for found in &self.0 {
            let at = found.location.position;
            let read;
            let body = match unpack(&found.meta).map_err(Error::Failed)?.2 {
                Body::Here(body) => body,
                Body::InPayload => {
                    read = log.read(&found.location, 0, found.location.payload_bytes).await.map_err(|e| Error::Failed(e.to_string()))?;
                    &read
                }
            };
            let entries = state.replay_one(found.kind, body).map_err(|e| Error::Failed(format!("{e} (at {at:?})")))?;
            shown.extend(entries.iter().filter_map(|e| restage.wants(e)));
            state.bytes += found.location.stored_bytes();
            state.wrote(found.index_max, found.location.stored_bytes());
        }
        state.number = self.last().number;
        if !state.window.is_whole() {
            return Err(Error::Failed("the write-ahead log lacks entries between its purge point and its first entry".into()));
        }
        Ok(Replayed { state, shown })
    }
}

impl State {
    /// Takes in one record; answers the entries in it.
    pub(super) fn replay_one(&mut self, kind: u8, body: &[u8]) -> Result<Vec<StoredEntry>, String> {
        match kind {
            kind::ENTRIES => {
                let record: Entries = record::decode(body, "entries")?;
                self.committed = self.committed.max(record.committed.map(Into::into));
                for entry in &record.entries {
                    self.now_ns = self.now_ns.max(entry.now_ns);
                    self.window.push_found(entry.clone().into_raft()?)?;
                }
                return Ok(record.entries);
            }
            kind::VOTE => {
                let vote: StoredVote = record::decode(body, "vote")?;
                self.vote = Some(vote.into());
            }
            kind::TRUNCATE => {
                let record: Truncate = record::decode(body, "truncation")?;
                self.window.truncate(record.after.map(Into::into));
            }
            kind::PURGE => {
                let record: Purge = record::decode(body, "purge")?;
                self.purge(record.upto.into());
                self.vote = record.vote.map(Into::into);
                self.committed = self.committed.max(record.committed.map(Into::into));
                self.now_ns = self.now_ns.max(record.now_ns);
            }
            kind::COMMITTED => {
                let record: Committed = record::decode(body, "committed")?;
                self.committed = self.committed.max(Some(record.id.into()));
            }
            kind::RESET => {
                let Reset {} = record::decode(body, "reset")?;
                let (now_ns, bytes, hold) = (self.now_ns, self.bytes, self.hold);
                *self = State::default();
                (self.now_ns, self.bytes, self.hold) = (now_ns, bytes, hold);
            }
            other => return Err(format!("a record of unknown kind {other}")),
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{StoredEntry, StoredId, StoredKind};
    use super::*;

    fn entries(term: u64, indexes: std::ops::Range<u64>) -> Vec<u8> {
        let entry = |index| StoredEntry { index, term, leader: 1, now_ns: index as i64, kind: StoredKind::Blank };
        record::encode(&Entries { committed: None, entries: indexes.map(entry).collect() })
    }
    fn stored(term: u64, index: u64) -> StoredId {
        StoredId { term, leader: 1, index }
    }
    fn purge(term: u64, index: u64) -> Vec<u8> {
        record::encode(&Purge { upto: stored(term, index), vote: None, committed: None, now_ns: 0 })
    }
    fn replay(records: &[(u8, Vec<u8>)]) -> Result<State, String> {
        let mut s = State::default();
        records.iter().try_for_each(|(kind, body)| s.replay_one(*kind, body).map(drop))?;
        Ok(s)
    }

    #[test]
    fn truncated_entries_are_void_and_their_indexes_used_again() {
        let cut = record::encode(&Truncate { after: Some(stored(1, 3)) });
        let s = replay(&[(kind::ENTRIES, entries(1, 0..8)), (kind::TRUNCATE, cut), (kind::ENTRIES, entries(2, 4..6))]).expect("replays");
        assert_eq!((s.window.last(), s.window.len()), (Some(stored(2, 5).into()), 6));
        assert_eq!(s.window.id_at(3), Some(stored(1, 3).into()));
        let all = record::encode(&Truncate { after: None });
        let s = replay(&[(kind::ENTRIES, entries(1, 0..8)), (kind::TRUNCATE, all), (kind::ENTRIES, entries(2, 0..1))]).expect("replays");
        assert_eq!(s.window.len(), 1);
    }

    #[test]
    fn a_gap_is_refused_unless_a_purge_accounts_for_it() {
        assert!(replay(&[(kind::ENTRIES, entries(1, 0..3)), (kind::ENTRIES, entries(1, 4..6))]).is_err());
        assert!(replay(&[(kind::ENTRIES, entries(1, 0..3)), (kind::ENTRIES, entries(1, 2..6))]).is_err());
        // What is left when the lowest segments were given back: an older purge, entries, the purge that covers the gap.
        let s = replay(&[(kind::PURGE, purge(1, 5)), (kind::ENTRIES, entries(1, 26..30))]).expect("replays");
        assert!(!s.window.is_whole());
        let s = replay(&[(kind::PURGE, purge(1, 5)), (kind::ENTRIES, entries(1, 26..30)), (kind::PURGE, purge(1, 25))]).expect("replays");
        assert!(s.window.is_whole());
        assert_eq!((s.window.purged(), s.window.len()), (Some(stored(1, 25).into()), 4));
    }

    #[test]
    fn nothing_before_a_reset_counts() {
        let reset = record::encode(&Reset {});
        let vote = record::encode(&StoredVote { term: 9, node: 1, committed: true });
        let old = [(kind::VOTE, vote), (kind::PURGE, purge(7, 90)), (kind::ENTRIES, entries(7, 91..99)), (kind::RESET, reset)];
        let new = [(kind::PURGE, purge(1, 25)), (kind::ENTRIES, entries(1, 26..30))];
        let s = replay(&[old.as_slice(), new.as_slice()].concat()).expect("replays");
        assert_eq!((s.window.purged(), s.window.len(), s.vote), (Some(stored(1, 25).into()), 4, None));
    }

    #[test]
    fn unknown_kinds_are_refused() {
        assert!(replay(&[(99, vec![1])]).is_err());
        assert!(replay(&[(kind::VOTE, vec![1, 1])]).is_err());
    }
}
