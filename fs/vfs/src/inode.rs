//! An inode in memory: its grant, its own attributes, its dirty, flying, pending and cached bytes.
//!
//! What always holds: everything is behind one short mutex, never held across an await; under a grant the attributes here are the truth, without one
//! there are none.
//! What it leaves out: I/O.

use crate::extent::{ExtentTree, Place};
use crate::inline::{Inlined, Keeper};
use crate::lease::Lease;
use crate::pages::Pages;
use crate::pending::Unpublished;
use crate::types::{Error, FileAttr, NodeId};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Attr, CHUNK_BYTES, Kind, MappedExtent, TimeNs};
use holdfast_objstore_proto::{InodeId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::Notify;

pub struct Inode {
    pub ino: InodeId,
    pub kind: Kind,
    pub state: Mutex<State>,
    /// Publishes, truncations and changes of attributes of one inode, one at a time and numbered.
    pub order: tokio::sync::Mutex<()>,
    /// Something in `state` changed that someone may wait for.
    pub changed: Notify,
}

#[derive(Default)]
pub struct State {
    /// Lookups the kernel has not given back.
    pub lookups: u64,
    pub opens: u32,
    /// Of those, the writable ones whose pages the kernel keeps: a mapping may dirty them without a word to us.
    pub write_opens: u32,
    /// Operations of ours under way in this directory.
    pub dir_ops: u32,
    pub lease: Lease,
    /// Under a grant: committed attributes with our own unpublished changes.
    pub attr: Option<Attr>,
    /// Size that metadata has.
    pub committed_size: u64,
    /// Counts own changes of size and times; those up to `attr_published` are published.
    pub attr_changes: u64,
    pub attr_published: u64,
    /// suid and sgid were cleared by a write and metadata does not know.
    pub clear_suid: bool,
    pub pages: Pages,
    pub unpublished: Unpublished,
    pub map: MapCache,
    /// Where the next append goes, when beyond the size: appends in the air have taken what is between.
    pub reserved_end: u64,
    /// Size of a truncation that metadata has not confirmed.
    pub truncating: Option<u64>,
    /// Boot time of the oldest change since the last writeback of everything, ns.
    pub unpublished_since: Option<u64>,
    /// In the table of inodes that have unpublished changes.
    pub active: bool,
    /// In the list of inodes to write first when the budget is tight.
    pub pressable: bool,
    /// The clockwork is at it.
    pub syncing: bool,
    /// A publish for want of room is under way.
    pub publishing: bool,
    pub errors: ErrorLog,
    /// The session with which unpublished data was lost last.
    pub lost_with: Option<u64>,
    /// Reads being served.
    pub reading: u32,
    /// What was read or written during a recall, which the kernel may have kept.
    pub read_meanwhile: Option<Range<u64>>,
    /// Readers and writers other than the kernel's write-back wait until the recall of this session has ended.
    pub gate: Option<u64>,
    /// The same for such writers alone.
    pub write_gate: Option<u64>,
    /// Names in this directory the kernel may remember, kept only for kernels without epochs.
    pub names: BTreeSet<Bytes>,
}

/// Write errors, each delivered once to every handle that was open, or to the next that opens.
#[derive(Debug, Default)]
pub struct ErrorLog {
    pub seq: u64,
    last: Option<Error>,
    unseen: bool,
}

impl ErrorLog {
    pub fn record(&mut self, error: Error) {
        self.seq += 1;
        self.last = Some(error);
        self.unseen = true;
    }

    /// What a new handle has already seen.
    pub fn at_open(&self) -> u64 {
        if self.unseen { self.seq - 1 } else { self.seq }
    }

    /// The last error, without its counting as delivered.
    pub fn last(&self) -> Error {
        self.last.unwrap_or(Error::Io)
    }

    /// The error a handle that has seen up to `seen` must report now.
    pub fn check(&mut self, seen: &mut u64) -> Result<(), Error> {
        if *seen >= self.seq {
            return Ok(());
        }
        *seen = self.seq;
        self.unseen = false;
        Err(self.last.unwrap_or(Error::Io))
    }
}

/// The committed map as far as it is known, chunk by chunk.
#[derive(Default)]
pub struct MapCache {
    pub tree: ExtentTree,
    /// Chunks known, each with the number of its loading.
    pub chunks: HashMap<u32, u64>,
    /// Raised by whatever makes a map read under way stale.
    pub epoch: u64,
    /// Chunks of which a place was laid with bytes kept; all that have some are among them.
    inline: BTreeSet<u32>,
}

impl MapCache {
    pub fn forget(&mut self) {
        self.epoch += 1;
        self.tree.clear();
        self.chunks.clear();
        self.inline.clear();
    }

    pub fn forget_chunk(&mut self, chunk: u32) {
        self.inline.remove(&chunk);
        if self.chunks.remove(&chunk).is_some() {
            self.tree.cut(chunk_range(chunk), |_| {});
        }
    }

    pub fn load(&mut self, chunks: Range<u32>, extents: &[MappedExtent], loading: u64, keeper: &Keeper) {
        for c in chunks {
            self.forget_chunk(c);
            self.chunks.insert(c, loading);
        }
        // Bytes are counted once, however many extents show them.
        let mut kept: HashMap<StripeId, Inlined> = HashMap::new();
        for e in extents {
            let chunk = (e.offset / CHUNK_BYTES) as u32;
            if self.chunks.contains_key(&chunk) {
                let inline = e.inline.as_ref().map(|data| kept.entry(e.stripe.id).or_insert_with(|| keeper.keep(data.clone())).clone());
                if inline.is_some() {
                    self.inline.insert(chunk);
                }
                let place = Place { len: e.len, stripe: e.stripe.clone(), stripe_offset: e.stripe_offset, inline, born: 0 };
                self.tree.insert(e.offset, place, |_| {});
            }
        }
    }

    /// Forgets the chunks in which bytes are kept.
    pub fn forget_inline(&mut self) {
        for chunk in std::mem::take(&mut self.inline) {
            if self.tree.overlaps(chunk_range(chunk)).any(|(_, p)| p.inline.is_some()) {
                self.forget_chunk(chunk);
            }
        }
    }

    /// A published extent.
    pub fn lay(&mut self, offset: u64, place: Place) {
        let chunk = (offset / CHUNK_BYTES) as u32;
        if self.chunks.contains_key(&chunk) {
            if place.inline.is_some() {
                self.inline.insert(chunk);
            }
            self.tree.insert(offset, place, |_| {});
        }
    }

    pub fn truncate(&mut self, size: u64) {
        self.epoch += 1;
        self.tree.cut(size..u64::MAX, |_| {});
    }
}

pub fn chunk_range(chunk: u32) -> Range<u64> {
    chunk as u64 * CHUNK_BYTES..(chunk as u64 + 1) * CHUNK_BYTES
}

/// The chunks that hold `range`.
pub fn chunks_of(range: &Range<u64>) -> Range<u32> {
    (range.start / CHUNK_BYTES) as u32..range.end.div_ceil(CHUNK_BYTES) as u32
}

impl Inode {
    pub fn new(ino: InodeId, kind: Kind) -> Self {
        Self { ino, kind, state: Mutex::default(), order: tokio::sync::Mutex::new(()), changed: Notify::new() }
    }

    /// Waits until `check` answers.
    pub async fn until<T>(&self, mut check: impl FnMut(&mut State) -> Option<T>) -> T {
        // Mostly there is nothing to wait for.
        if let Some(t) = check(&mut self.state.lock()) {
            return t;
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(t) = check(&mut self.state.lock()) {
                return t;
            }
            changed.await;
        }
    }
}

impl State {
    /// Nothing of this inode would be lost with this process.
    pub fn is_clean(&self) -> bool {
        self.pages.is_empty()
            && self.unpublished.in_flight() == 0
            && self.unpublished.pending.is_empty()
            && self.attr_changes == self.attr_published
            && !self.clear_suid
    }

    pub fn size(&self) -> u64 {
        self.attr.as_ref().map_or(0, |a| a.size)
    }

    /// Takes committed attributes, keeping what is newer here. Only under a grant.
    pub fn absorb(&mut self, attr: &Attr) {
        let own_changes = self.attr_changes != self.attr_published;
        let clear = self.clear_suid;
        match &mut self.attr {
            Some(own) if attr.change < own.change => (),
            Some(own) => {
                self.committed_size = attr.size;
                let (size, mtime, ctime) = (own.size, own.mtime, own.ctime);
                let truncating = self.truncating.is_some();
                *own = attr.clone();
                if own_changes || truncating {
                    own.size = size;
                    own.mtime = mtime;
                    own.ctime = ctime.max(attr.ctime);
                }
                if clear {
                    own.mode = without_suid(own.mode);
                }
            }
            none => {
                self.committed_size = attr.size;
                self.reserved_end = 0;
                *none = Some(attr.clone());
            }
        }
    }

    /// The kernel may have kept pages of this range, although a recall is under way.
    pub fn kept_meanwhile(&mut self, range: &Range<u64>) {
        if self.lease.is_held() && !self.lease.may_cache() {
            let all = self.read_meanwhile.take().unwrap_or_else(|| range.clone());
            self.read_meanwhile = Some(all.start.min(range.start)..all.end.max(range.end));
        }
    }

    /// A write has changed the data up to `end`.
    pub fn wrote(&mut self, end: u64, now: TimeNs, kill_suidgid: bool) {
        if let Some(a) = &mut self.attr {
            a.size = a.size.max(end);
            a.mtime = now;
            a.ctime = now;
            self.attr_changes += 1;
            if kill_suidgid && without_suid(a.mode) != a.mode {
                a.mode = without_suid(a.mode);
                self.clear_suid = true;
            }
        }
    }

    /// Drops everything that is not committed, and what is cached; answers the stripes that no Publish has named.
    #[must_use]
    pub fn discard(&mut self) -> Vec<Arc<StripeMeta>> {
        self.pages = Pages::default();
        let garbage = self.unpublished.clear();
        self.attr_published = self.attr_changes;
        self.clear_suid = false;
        self.map.forget();
        self.attr = None;
        self.reserved_end = 0;
        self.truncating = None;
        self.unpublished_since = None;
        garbage
    }

    /// `committed` with what only this side knows.
    pub fn overlay(&self, committed: &Attr, node: NodeId) -> FileAttr {
        let a = self.attr.as_ref().unwrap_or(committed);
        let unwritten = self.pages.bytes() + self.unpublished.buffered_bytes + self.unpublished.pending.bytes();
        // Overwrites count twice until they are published; never more than the size would take, unless more is mapped already.
        let stored = a.mapped.max((a.mapped + unwritten).min(a.size.next_multiple_of(4096)));
        FileAttr {
            node,
            kind: a.kind,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            size: a.size,
            blocks: stored.div_ceil(512),
            atime: a.atime,
            mtime: a.mtime,
            ctime: a.ctime,
            btime: a.btime,
        }
    }
}

/// `mode` after a write by someone without privilege: suid goes, and sgid of what its group may execute.
pub fn without_suid(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_per_handle_and_to_the_next_opener_when_nobody_saw_it() {
        let mut log = ErrorLog::default();
        let (mut a, mut b) = (log.at_open(), log.at_open());
        log.record(Error::NoSpace);
        let mut late = log.at_open();
        assert_eq!(log.check(&mut a), Err(Error::NoSpace));
        assert_eq!(log.check(&mut a), Ok(()));
        assert_eq!(log.check(&mut b), Err(Error::NoSpace));
        assert_eq!(log.check(&mut late), Err(Error::NoSpace));
        let mut later = log.at_open();
        assert_eq!(log.check(&mut later), Ok(()));
    }

    #[test]
    fn suid_goes_and_sgid_goes_only_with_group_execute() {
        assert_eq!(without_suid(0o6755), 0o755);
        assert_eq!(without_suid(0o6745), 0o2745);
    }
}
