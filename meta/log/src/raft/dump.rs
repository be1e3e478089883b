//! Telling what the write-ahead log's folder holds, for `holdfast dump`. Reads only.

use super::layout::{Body, unpack};
use super::mirror::set::{self, Seen};
use super::record::{self, Committed, Entries, Purge, Reset, StoredEntry, StoredKind, StoredVote, Tail, Truncate, kind};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::dump::{Line, Sink};
use holdfast_objstore_osd::log::{self, Describe};
use parking_lot::Mutex;
use std::io;
use std::path::Path;

/// Adds to a line what a command says; the log itself does not know.
pub type DescribeCommand<'a> = &'a (dyn Fn(Line, &[u8]) -> Line + Sync);

/// Tells of every record of the log in `dir`, entry by entry. An error is the sink's.
pub async fn dump(disk: &dyn Disk, dir: &Path, command: DescribeCommand<'_>, sink: &mut Sink<'_>) -> io::Result<()> {
    log::dump(disk, dir, &Records { command }, sink).await
}

/// Tells of the set of copies that the folder beside the log in `dir` stores, if it stores one.
pub fn dump_mirrors(disk: &dyn Disk, dir: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    let line = Line::new("wal-mirrors", &dir.join(set::FILE)).at(0);
    sink(match set::read(disk, dir) {
        Seen::Absent => return Ok(()),
        Seen::Unreadable(why) => line.bad(why),
        Seen::Here(s) => {
            let line = line.show("log", format!("{:032x}", s.log)).with("promised", s.promised).show("set", s.set.epoch);
            let line = line.with("known", &s.set.known).with("members", &s.set.members);
            if s.set.before.is_empty() { line } else { line.with("known_before", &s.set.before) }
        }
    })
}

/// Adds what the log keeps in the state.
pub fn describe_tail(line: Line, bytes: &[u8]) -> Line {
    match record::decode::<Tail>(bytes, "the log's record in the state") {
        Ok(tail) => line.with("tail", tail),
        Err(why) => line.bad(why),
    }
}

struct Records<'a> {
    command: DescribeCommand<'a>,
}

impl Records<'_> {
    fn entry(&self, line: Line, entry: &StoredEntry) -> Line {
        let line = line.with("index", entry.index).with("term", entry.term).with("leader", entry.leader).with("now_ns", entry.now_ns);
        match &entry.kind {
            StoredKind::Blank => line.with("entry", "blank"),
            StoredKind::Members(m) => line.with("entry", "members").with("members", m),
            StoredKind::Command(bytes) => (self.command)(line.with("entry", "command"), bytes),
        }
    }
}

impl Describe for Records<'_> {
    fn needs_payload(&self, _: u8, meta: &[u8]) -> bool {
        matches!(unpack(meta), Ok((_, _, Body::InPayload)))
    }

    fn record(&self, line: Line, kind: u8, meta: &[u8], payload: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        let (line, body) = match unpack(meta) {
            Ok((key, _, body)) => {
                let line = line.show("set", key.epoch).with("number", key.number);
                match body {
                    Body::Here(body) => (line, body),
                    Body::InPayload => (line, payload),
                }
            }
            Err(why) => return sink(line.bad(why)),
        };
        let told = match kind {
            kind::ENTRIES => match record::decode::<Entries>(body, "entries") {
                Ok(record) => {
                    let part = line.part("wal-entry");
                    sink(line.named("wal-entries").with("committed", record.committed).with("entries", record.entries.len()))?;
                    return record.entries.iter().try_for_each(|e| sink(self.entry(part.clone(), e)));
                }
                Err(why) => Err((line.named("wal-entries"), why)),
            },
            kind::VOTE => told(line.named("wal-vote"), record::decode::<StoredVote>(body, "vote")),
            kind::TRUNCATE => told(line.named("wal-truncate"), record::decode::<Truncate>(body, "truncation")),
            kind::PURGE => told(line.named("wal-purge"), record::decode::<Purge>(body, "purge")),
            kind::COMMITTED => told(line.named("wal-committed"), record::decode::<Committed>(body, "committed")),
            kind::RESET => told(line.named("wal-reset"), record::decode::<Reset>(body, "reset")),
            other => Err((line, format!("a record of kind {other}, which this program does not know"))),
        };
        sink(told.unwrap_or_else(|(line, why)| line.bad(why)))
    }

    fn checkpoint(&self, line: Line, _: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        sink(line.bad("the write-ahead log of the metadata holds a checkpoint, which no version of this code writes"))
    }
}

fn told<T: serde::Serialize>(line: Line, record: Result<T, String>) -> Result<Line, (Line, String)> {
    match record {
        Ok(r) => Ok(line.with("value", r)),
        Err(why) => Err((line, why)),
    }
}

/// Looks for the newest entry: its index and stamp.
#[derive(Default)]
pub(super) struct Newest(Mutex<Option<(u64, i64)>>);

impl Newest {
    pub fn get(self) -> Option<(u64, i64)> {
        self.0.into_inner()
    }
}

impl Describe for Newest {
    fn needs_payload(&self, _: u8, meta: &[u8]) -> bool {
        matches!(unpack(meta), Ok((_, _, Body::InPayload)))
    }

    fn record(&self, _: Line, kind: u8, meta: &[u8], payload: &[u8], _: &mut Sink<'_>) -> io::Result<()> {
        let Ok((_, index, body)) = unpack(meta) else { return Ok(()) };
        if kind == kind::ENTRIES {
            let body = match body {
                Body::Here(body) => body,
                Body::InPayload => payload,
            };
            let now_ns = record::decode::<Entries>(body, "entries").ok().and_then(|e| e.entries.last().map(|e| e.now_ns));
            let mut newest = self.0.lock();
            let before = newest.unwrap_or_default();
            *newest = Some((before.0.max(index), before.1.max(now_ns.unwrap_or(0))));
        }
        Ok(())
    }

    fn checkpoint(&self, _: Line, _: &[u8], _: &mut Sink<'_>) -> io::Result<()> {
        Ok(())
    }
}
