//! What the packer reads to rewrite worn stripes: runs of files that lie on stripes of which much is dead.
//!
//! What always holds: one call looks at a bounded number of maps and goes on where the last one stopped, in the order of files, so a pass
//! over everything costs its length once and nothing is kept of it but a [`Cursor`]. All runs of one answer belong to one bucket.
//! What it leaves out: when a pass is worth it (the packer's affair), and stripes whose bytes are staged.

use crate::fail::broken;
use crate::limits::RUNS_MAX;
use crate::record::{Body, Inode, Piece, StripeRecord, load};
use crate::{KvRead, StateError, bucket, chunk, keys};
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Home, MetaResult, Run};
use holdfast_objstore_proto::{BucketId, Code, InodeId, StripeId, StripeMeta};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Where a pass goes on: at this byte of a chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    ino: InodeId,
    chunk: u32,
    start: u32,
}

/// How much one answer takes and looks at.
#[derive(Debug, Clone, Copy)]
pub struct WornBounds {
    /// Data bytes, at most those of a stripe.
    pub bytes_max: u64,
    pub runs_max: usize,
    /// Pieces of maps looked at.
    pub pieces_max: usize,
    /// A stripe is worn when less than this many thousandths of it are live.
    pub live_below: u32,
}

/// A run to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WornRun {
    /// Its place in the new stripe is not known yet: 0.
    pub run: Run,
    /// Where its bytes are read: from byte `at` of this stripe.
    pub read: (Arc<StripeMeta>, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worn {
    pub runs: Vec<WornRun>,
    /// Of the runs, if there are any; the code is `None` when the bucket is gone.
    pub bucket: BucketId,
    pub code: Option<Code>,
    pub bytes: u64,
    /// Where to go on; `None` at the end of everything.
    pub next: Option<Cursor>,
}

impl Worn {
    /// Nothing, of no bucket.
    pub fn none() -> Self {
        Self { runs: Vec::new(), bucket: BucketId(0), code: None, bytes: 0, next: None }
    }
}

/// What one stripe id comes to.
#[derive(Clone)]
struct Known {
    bucket: BucketId,
    /// `None`: it is not worn, or staged.
    read: Option<(Arc<StripeMeta>, u32)>,
}

struct Pass<'a> {
    kv: &'a dyn KvRead,
    bounds: WornBounds,
    known: HashMap<StripeId, Known>,
    worn: Worn,
    looked: usize,
}

fn is_worn(live: u128, len: u128, live_below: u32) -> bool {
    live * 1000 < len * live_below as u128
}

impl Pass<'_> {
    fn record(&self, id: StripeId) -> Result<StripeRecord, StateError> {
        load(self.kv, &keys::stripe(id))?.ok_or_else(|| broken(format!("a map refers to {id}, which has no record")))
    }

    fn know(&mut self, id: StripeId) -> Result<Known, StateError> {
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let record = self.record(id)?;
        let (len, live) = (record.meta.len as u128, record.live as u128);
        let read = match record.home {
            Home::Staged { .. } => None,
            Home::Shards => is_worn(live, len, self.bounds.live_below).then(|| (record.meta.clone(), 0)),
            Home::Packed { pack, at } => {
                // Of a pack members count whole; of what counts, this member's part is live.
                let pack = self.record(pack)?;
                let (whole, member) = (pack.live as u128, live.min(len));
                is_worn(whole * member, pack.meta.len as u128 * len, self.bounds.live_below).then(|| (pack.meta.clone(), at))
            }
        };
        let known = Known { bucket: record.bucket, read };
        self.known.insert(id, known.clone());
        Ok(known)
    }

    fn is_full(&self) -> bool {
        self.worn.bytes >= self.bounds.bytes_max || self.worn.runs.len() >= self.bounds.runs_max
    }

    /// Takes what is worn of one chunk; where to go on if it had to stop.
    fn take(&mut self, ino: InodeId, chunk: u32, pieces: &[Piece], from: u32) -> Result<Option<Cursor>, StateError> {
        for p in pieces.iter().filter(|p| p.end() > from) {
            let here = Cursor { ino, chunk, start: p.start.max(from) };
            if self.is_full() || self.looked >= self.bounds.pieces_max {
                return Ok(Some(here));
            }
            self.looked += 1;
            let known = self.know(p.stripe)?;
            let Some((meta, shift)) = known.read else { continue };
            if self.worn.runs.is_empty() {
                self.worn.bucket = known.bucket;
            } else if self.worn.bucket != known.bucket {
                return Ok(Some(here));
            }
            // The rest of a piece that does not fit is for the next stripe.
            let skip = here.start - p.start;
            let len = (p.len - skip).min((self.bounds.bytes_max - self.worn.bytes) as u32);
            let at = p.at + skip;
            let offset = chunk as u64 * CHUNK_BYTES + here.start as u64;
            let run = Run { ino, offset, len, from: p.stripe, from_at: at, at: 0 };
            self.worn.runs.push(WornRun { run, read: (meta, shift + at) });
            self.worn.bytes += len as u64;
            if skip + len < p.len {
                return Ok(Some(Cursor { start: here.start + len, ..here }));
            }
        }
        Ok(None)
    }
}

/// The first chunk at or after a place.
fn next_chunk(kv: &dyn KvRead, from: Cursor) -> Result<Option<(InodeId, u32)>, StateError> {
    let mut found = None;
    kv.scan(&keys::chunk(from.ino, from.chunk), &keys::end_of(&keys::family(keys::CHUNK)), &mut |k, _| {
        found = Some(keys::parse_chunk(k));
        ControlFlow::Break(())
    })?;
    found.map(|f| f.map(|(ino, chunk, _)| (ino, chunk)).ok_or_else(|| broken("a chunk's key has another form"))).transpose()
}

/// Runs on worn stripes from `from` on.
pub fn gather_worn(kv: &dyn KvRead, from: Cursor, bounds: WornBounds) -> Result<MetaResult<Worn>, StateError> {
    let bounds = WornBounds { runs_max: bounds.runs_max.clamp(1, RUNS_MAX), bytes_max: bounds.bytes_max.max(1), ..bounds };
    let mut pass = Pass { kv, bounds, known: HashMap::new(), worn: Worn::none(), looked: 0 };
    let (mut at, mut inode): (Cursor, Option<(InodeId, Option<Inode>)>) = (from, None);
    while let Some((ino, n)) = next_chunk(kv, at)? {
        if pass.is_full() || pass.looked >= bounds.pieces_max {
            pass.worn.next = Some(Cursor { ino, chunk: n, start: if (ino, n) == (at.ino, at.chunk) { at.start } else { 0 } });
            break;
        }
        let start = if (ino, n) == (at.ino, at.chunk) { at.start } else { 0 };
        if inode.as_ref().is_none_or(|(i, _)| *i != ino) {
            inode = Some((ino, load(kv, &keys::inode(ino))?));
        }
        // Every map counts as one piece at least, so that a pass over dead ones is bounded too.
        pass.looked += 1;
        let mut stopped = None;
        if let Some((_, Some(inode))) = &inode
            && matches!(inode.body, Body::File { reaping: false, .. })
        {
            chunk::read(kv, ino, inode, n..n.saturating_add(1), &mut |_, pieces| {
                stopped = pass.take(ino, n, &pieces, start)?;
                Ok(())
            })?;
        }
        if stopped.is_some() {
            pass.worn.next = stopped;
            break;
        }
        at = match n.checked_add(1) {
            Some(chunk) => Cursor { ino, chunk, start: 0 },
            None => Cursor { ino: InodeId(ino.0.saturating_add(1)), chunk: 0, start: 0 },
        };
    }
    let mut worn = pass.worn;
    if !worn.runs.is_empty() {
        worn.code = match bucket::code(kv, worn.bucket) {
            Ok(code) => code,
            Err(crate::fail::Fail::State(e)) => return Err(e),
            Err(crate::fail::Fail::Meta(e)) => return Ok(Err(e)),
        };
    }
    Ok(Ok(worn))
}
