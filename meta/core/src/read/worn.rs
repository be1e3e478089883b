//! What the packer reads to rewrite worn stripes: first which stripes, the deadest of all, then the runs of files that lie on them.
//!
//! What always holds: the stripes chosen have no more living bytes than the caller has room for, so all that lives of them can be copied
//! before any of them ends: a stripe's runs may lie anywhere in its files, and it ends with the last. One call looks at a bounded number
//! of records and goes on where the last one stopped, stripes in the order of ids, maps in the order of files. All runs of one answer
//! belong to one bucket.
//! What it leaves out: when a pass is worth it (the packer's affair), and stripes whose bytes are staged.

use crate::fail::broken;
use crate::limits::RUNS_MAX;
use crate::read::packs::members;
use crate::record::{Body, Inode, Piece, StripeRecord, decode, load};
use crate::{KvRead, StateError, bucket, chunk, keys};
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Home, MetaResult, Run};
use holdfast_objstore_proto::{BucketId, Code, InodeId, StripeId, StripeMeta};
use std::collections::{BTreeSet, BinaryHeap, HashMap};
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
}

/// Stripes chosen at most: what is remembered of them stays small.
const VICTIMS_MAX: usize = 65_536;

/// The deadest stripes seen so far, as far as what lives of them fits.
#[derive(Debug, Clone)]
pub struct Victims {
    /// Living bytes of all of them at most.
    live_max: u64,
    /// A stripe is worn when less than this many thousandths of it are live.
    live_below: u32,
    live: u64,
    /// (millionths that live, stripe, living bytes): the most alive on top.
    chosen: BinaryHeap<(u64, StripeId, u64)>,
}

impl Victims {
    pub fn new(live_max: u64, live_below: u32) -> Self {
        Self { live_max, live_below, live: 0, chosen: BinaryHeap::new() }
    }

    /// What lives of those chosen, bytes.
    pub fn live(&self) -> u64 {
        self.live
    }

    pub fn ids(&self) -> BTreeSet<StripeId> {
        self.chosen.iter().map(|(_, id, _)| *id).collect()
    }

    fn look(&mut self, id: StripeId, live: u64, len: u32) {
        if live as u128 * 1000 >= len as u128 * self.live_below as u128 {
            return;
        }
        self.chosen.push((live * 1_000_000 / len as u64, id, live));
        self.live += live;
        while self.live > self.live_max || self.chosen.len() > VICTIMS_MAX {
            let Some((_, _, live)) = self.chosen.pop() else { break };
            self.live -= live;
        }
    }
}

/// Looks at stripes behind `after`, at about `looks_max` records; answers where to go on, `None` at the end. A pack counts by what lives of its
/// members.
pub fn choose_worn(
    kv: &dyn KvRead,
    after: Option<StripeId>,
    looks_max: usize,
    victims: &mut Victims,
) -> Result<MetaResult<Option<StripeId>>, StateError> {
    let from = after.map_or_else(|| keys::family(keys::STRIPE), |id| keys::end_of(&keys::stripe(id)));
    let mut page: Vec<(StripeId, StripeRecord)> = Vec::new();
    let (mut looked, mut failed) = (0, Ok(()));
    kv.scan(&from, &keys::end_of(&keys::family(keys::STRIPE)), &mut |k, v| {
        let found = keys::parse_stripe(k).ok_or_else(|| broken("a stripe's key has another form"));
        match found.and_then(|id| Ok((id, decode(v)?))) {
            Ok(found) => page.push(found),
            Err(e) => failed = Err(e),
        }
        looked += 1;
        if looked >= looks_max || failed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed?;
    let mut last = None;
    for (id, record) in &page {
        last = Some(*id);
        if record.home != Home::Shards {
            continue;
        }
        let members = members(kv, *id)?;
        let mut live = if members.is_empty() { record.live } else { 0 };
        for (_, member) in &members {
            let member: StripeRecord =
                load(kv, &keys::stripe(member.stripe))?.ok_or_else(|| broken(format!("{id} has a member without a record")))?;
            live += member.live.min(member.meta.len as u64);
        }
        victims.look(*id, live, record.meta.len);
        looked += members.len();
        if looked >= 2 * looks_max {
            return Ok(Ok(last));
        }
    }
    Ok(Ok(if page.len() < looks_max { None } else { last }))
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
    /// `None`: it is not chosen, or staged.
    read: Option<(Arc<StripeMeta>, u32)>,
}

struct Pass<'a> {
    kv: &'a dyn KvRead,
    bounds: WornBounds,
    victims: &'a BTreeSet<StripeId>,
    known: HashMap<StripeId, Known>,
    worn: Worn,
    looked: usize,
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
        let read = match record.home {
            Home::Shards if self.victims.contains(&id) => Some((record.meta.clone(), 0)),
            Home::Packed { pack, at } if self.victims.contains(&pack) => Some((self.record(pack)?.meta, at)),
            _ => None,
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

/// Runs on the chosen stripes from `from` on.
pub fn gather_worn(
    kv: &dyn KvRead,
    from: Cursor,
    bounds: WornBounds,
    victims: &BTreeSet<StripeId>,
) -> Result<MetaResult<Worn>, StateError> {
    let bounds = WornBounds { runs_max: bounds.runs_max.clamp(1, RUNS_MAX), bytes_max: bounds.bytes_max.max(1), ..bounds };
    let mut pass = Pass { kv, bounds, victims, known: HashMap::new(), worn: Worn::none(), looked: 0 };
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
