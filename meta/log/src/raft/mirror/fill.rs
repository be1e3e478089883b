//! Making a copy whole from what is in memory, while records go on.
//!
//! A filling is a run of records that a reader of the copy ends up with the same state after, whatever the copy held before:
//! all before is void, purged entries that are held for their bytes, the purge point with vote and stamp, the entries behind it. What is written meanwhile follows in order.
//!
//! What always holds: the copy counts only once all of the filling is on stable media; what it held before is told apart by its
//! records' names, so a filling cut short is never believed.

use super::folders::Folder;
use super::member::{Member, Record};
use super::rules::Event;
use super::set::{FILE, Place};
use crate::raft::layout::{self, Key};
use crate::raft::record::{self, Entries, Purge, StoredEntry, kind};
use crate::raft::store::RECORD_BYTES_MAX;
use crate::raft::types::{Payload, RaftEntry};
use crate::raft::wal::{State, Wal};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_osd::log::{self, Append, Blocking, Log, Recovered, Visitor};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The smallest room an entry takes beside its command.
const ENTRY_OVERHEAD: usize = 64;

/// There is none in a log that was just made.
struct Nothing;

impl Visitor for Nothing {
    fn checkpoint(&mut self, _: u64, _: bytes::Bytes) -> Result<(), String> {
        Err("a new log holds a checkpoint".into())
    }
    fn record(&mut self, _: Recovered<'_>) -> Result<(), String> {
        Err("a new log holds a record".into())
    }
}

impl Wal {
    /// Fills the copy at `place` and tells how it went.
    pub async fn fill(self: Arc<Self>, place: Place) {
        let event = match self.clone().try_fill(place).await {
            Ok(true) => Event::Filled(place),
            Ok(false) => return,
            Err(why) => {
                failpoint::reached("wal.fill_failed");
                tracing::warn!(copy = %self.mirrors.folders.dir(place).display(), %why, "a copy of the metadata log could not be filled");
                self.refuse(place, why);
                Event::Failed(place)
            }
        };
        self.tell(event);
    }

    /// Whether it was filled; not, if it was left out meanwhile.
    async fn try_fill(self: Arc<Self>, place: Place) -> Result<bool, String> {
        let member = self.empty_copy(place).await?;
        tracing::info!(copy = %member.dir.display(), "filling a copy of the metadata log");
        let epoch = self.epoch();
        // Records of any size fit into a segment, and several of these.
        let batch_bytes = RECORD_BYTES_MAX.min(self.mirrors.log.segment_bytes as usize / 8);
        let last = {
            // One moment: what is written from here on is handed over behind the filling.
            let s = self.state.lock();
            let key = Key { epoch, number: s.number };
            let mut put = 0;
            let now_ns = self.clock.boot_ns();
            filling(&s, batch_bytes, |kind, body, index_max| {
                let append = layout::pack(kind, key, index_max, body);
                let bytes = append.meta.len() as u64 + append.payload.len() as u64;
                member.queue(Record { number: key.number, append, index_max, bytes }, now_ns);
                put += 1;
            });
            self.mirrors.members.lock().insert(place, member.clone());
            member.ended() + put
        };
        member.run_queue(&self);
        // Each flush tells; what is lost is told too, by its own way.
        while member.ended() < last {
            let changed = self.mirrors.filled.notified();
            if member.ended() >= last {
                break;
            }
            if let Some(why) = member.log.failure() {
                return Err(why);
            }
            if self.is_broken() || !self.is_member(&member) {
                return Ok(false);
            }
            changed.await;
        }
        Ok(true)
    }

    /// A copy that gets records from now on, and whose own are void: one of this run that was left out, or one made anew.
    async fn empty_copy(&self, place: Place) -> Result<Arc<Member>, String> {
        if let Some(member) = self.mirrors.dropped.lock().remove(&place) {
            // Its log is still open, and the only one that may write there.
            member.reopen();
            return Ok(member);
        }
        let folder = self.mirrors.folders.get(place).ok_or("it has no folder")?;
        // Another than any of a log that was made with this seed, which begin behind it.
        let nth = self.mirrors.made.fetch_add(1, Ordering::Relaxed) + 1;
        let id = self.mirrors.seed.wrapping_add(u128::from(nth) << 16 | u128::from(place));
        let log = make(&self.mirrors.disk, &folder, id, &self.mirrors.log).await?;
        Ok(Member::new(place, folder.dir, log, Default::default(), 0))
    }
}

/// Makes an empty log in a folder and opens it. What a copy there held is given up: it counts no more, and only whole can it be believed again.
async fn make(disk: &Arc<dyn Disk>, folder: &Folder, id: u128, config: &log::Config) -> Result<Log, String> {
    let (d, at, c) = (disk.clone(), folder.clone(), config.clone());
    let format = move || {
        // Else it would be made on the device that the folder's was mounted on.
        if !at.is_there(&*d) {
            return Err("its folder is not there".to_string());
        }
        format_anew(&*d, &at.dir, id, &c)
    };
    match config.blocking {
        Blocking::Here => format(),
        Blocking::Pool => tokio::task::spawn_blocking(format).await.unwrap_or_else(|e| Err(e.to_string())),
    }?;
    Log::open(disk.clone(), &folder.dir, config.clone(), &mut Nothing).await.map(|(log, _)| log).map_err(|e| e.to_string())
}

/// Makes an empty log where another, or pieces of one, may be. Blocks.
pub fn format_anew(disk: &dyn Disk, dir: &Path, id: u128, config: &log::Config) -> Result<(), String> {
    let wipe = || {
        disk.create_dir_all(dir)?;
        for name in disk.list(dir)?.into_iter().filter(|n| n != FILE) {
            disk.remove(&PathBuf::from(dir).join(name))?;
        }
        disk.sync_dir(dir)
    };
    wipe().map_err(|e: holdfast_objstore_base::disk::DiskError| e.to_string())?;
    Log::format(disk, dir, id, config).map_err(|e| e.to_string())
}

/// The records that make a reader end up with `state`.
fn filling(state: &State, batch_bytes: usize, mut put: impl FnMut(u8, Vec<u8>, u64)) {
    put(kind::RESET, record::encode(&record::Reset {}), 0);
    let committed = state.committed.map(Into::into);
    // Before the purge point, so that a reader sees their bytes and then drops them.
    entries(state.held(), None, batch_bytes, &mut put);
    match (state.window.purged(), state.vote) {
        (Some(upto), vote) => {
            let purge = Purge { upto: upto.into(), vote: vote.map(Into::into), committed, now_ns: state.now_ns };
            put(kind::PURGE, record::encode(&purge), 0);
        }
        (None, Some(vote)) => put(kind::VOTE, record::encode(&record::StoredVote::from(vote)), 0),
        (None, None) => {}
    }
    entries(state.window.range(..).iter(), committed, batch_bytes, &mut put);
}

/// Puts entries in records of about `batch_bytes`.
fn entries<'a>(
    from: impl Iterator<Item = &'a RaftEntry>,
    committed: Option<record::StoredId>,
    batch_bytes: usize,
    put: &mut impl FnMut(u8, Vec<u8>, u64),
) {
    let mut batch = Entries { committed, entries: Vec::new() };
    let mut bytes = 0;
    for entry in from {
        let (now_ns, size) = match &entry.payload {
            Payload::Normal(c) => (c.now_ns, c.bytes.len()),
            Payload::Blank | Payload::Membership(_) => (0, 0),
        };
        if bytes + size + ENTRY_OVERHEAD > batch_bytes && !batch.entries.is_empty() {
            seal(&mut batch, put);
            bytes = 0;
        }
        bytes += size + ENTRY_OVERHEAD;
        batch.entries.push(StoredEntry::from_raft(entry, now_ns));
    }
    if !batch.entries.is_empty() {
        seal(&mut batch, put);
    }
}

fn seal(batch: &mut Entries, put: &mut impl FnMut(u8, Vec<u8>, u64)) {
    let index_max = batch.entries.last().map_or(0, |e| e.index);
    put(kind::ENTRIES, record::encode(batch), index_max);
    batch.entries.clear();
}

/// Copies records behind the one both have. The bytes are taken as they are, name included.
pub async fn copy_tail(
    from: &Log,
    found: &[crate::raft::recover::Found],
    to: &Log,
    lives: &mut std::collections::BTreeMap<u32, u64>,
) -> Result<(), String> {
    for f in found {
        let mut append = Append::new(f.kind, f.meta.clone()).urgent();
        if f.location.payload_bytes > 0 {
            append = append.payload(from.read(&f.location, 0, f.location.payload_bytes).await.map_err(|e| e.to_string())?);
        }
        let appended = to.append(append).await.map_err(|e| e.to_string())?;
        let life = lives.entry(appended.location.position.life).or_default();
        *life = (*life).max(f.index_max);
    }
    to.flush().await.map(drop).map_err(|e| e.to_string())
}
