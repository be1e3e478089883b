//! Chunk maps in the state: read, written, cut and freed.
//!
//! A chunk's map is one record until it has more than 64 fragments; then its head says `Split` and the pieces are in one record
//! per 64 KiB block, so that an overwrite rewrites one block's pieces and not the chunk's. The head counts the fragments; at half as many
//! it is one record again.
//! What always holds: a write touches the records it changes, whatever the size of the file; a map that a truncation
//! killed (see [`Inode::dead`]) is never seen, and is freed before its chunk is written again.

use crate::fail::{Done, broken};
use crate::limits::FRAGMENTS_MAX;
use crate::map::{self, CHUNK};
use crate::record::{Chunk, Inode, Piece, Pieces, decode, encode, load};
use crate::stripes::Net;
use crate::tx::Tx;
use crate::{KvRead, StateError, keys};
use bytes::Bytes;
use holdfast_objstore_proto::InodeId;
use std::ops::{ControlFlow, Range};

/// Bytes per record of a split chunk.
const BLOCK: u32 = 64 << 10;
const BLOCKS: u32 = CHUNK / BLOCK;

fn head(kv: &(impl KvRead + ?Sized), ino: InodeId, chunk: u32) -> Result<Option<Chunk>, StateError> {
    load(kv, &keys::chunk(ino, chunk))
}

fn born(head: &Chunk) -> u64 {
    match head {
        Chunk::Whole { born, .. } | Chunk::Split { born, .. } => *born,
    }
}

fn sound(pieces: Vec<Piece>, from: u32, to: u32) -> Result<Vec<Piece>, StateError> {
    if map::is_sound(&pieces, from, to) { Ok(pieces) } else { Err(broken("a chunk's pieces overlap or leave it")) }
}

fn put_whole(tx: &mut Tx, ino: InodeId, chunk: u32, born: u64, pieces: Vec<Piece>) {
    if pieces.is_empty() {
        tx.delete(keys::chunk(ino, chunk));
    } else if pieces.len() <= FRAGMENTS_MAX {
        tx.put(keys::chunk(ino, chunk), encode(&Chunk::Whole { born, pieces }));
    } else {
        tx.put(keys::chunk(ino, chunk), encode(&Chunk::Split { born, fragments: pieces.len() as u32 }));
        for (block, pieces) in map::by_block(&pieces, BLOCK) {
            tx.put(keys::chunk_block(ino, chunk, block), encode(&Pieces(pieces)));
        }
    }
}

fn block(kv: &(impl KvRead + ?Sized), ino: InodeId, chunk: u32, n: u8) -> Result<Vec<Piece>, StateError> {
    let from = n as u32 * BLOCK;
    match load::<Pieces>(kv, &keys::chunk_block(ino, chunk, n))? {
        Some(Pieces(pieces)) => sound(pieces, from, from + BLOCK),
        None => Ok(Vec::new()),
    }
}

fn put_block(tx: &mut Tx, ino: InodeId, chunk: u32, n: u8, pieces: Vec<Piece>) {
    let key = keys::chunk_block(ino, chunk, n);
    if pieces.is_empty() { tx.delete(key) } else { tx.put(key, encode(&Pieces(pieces))) }
}

/// A split chunk while its blocks change.
struct Split {
    ino: InodeId,
    chunk: u32,
    born: u64,
    /// Pieces of all blocks, those that go on over a block's border counted once.
    fragments: u32,
}

impl Split {
    fn change(&mut self, tx: &mut Tx, n: u8, change: impl FnOnce(&mut Vec<Piece>)) -> Done<()> {
        let mut pieces = block(tx, self.ino, self.chunk, n)?;
        let beside = |n: Option<u8>| n.map_or(Ok(Vec::new()), |n| block(tx, self.ino, self.chunk, n));
        let (left, right) = (beside(n.checked_sub(1))?, beside((n as u32 + 1 < BLOCKS).then_some(n + 1))?);
        let joined = |a: Option<&Piece>, b: Option<&Piece>| matches!((a, b), (Some(a), Some(b)) if map::joins(a, b)) as i64;
        // Below zero for a block in the middle of one fragment, which others count.
        let counted = |p: &[Piece]| p.len() as i64 - joined(left.last(), p.first()) - joined(p.last(), right.first());
        let before = counted(&pieces);
        change(&mut pieces);
        let after = self.fragments as i64 + counted(&pieces) - before;
        self.fragments = u32::try_from(after).map_err(|_| broken("a chunk counts too few fragments"))?;
        put_block(tx, self.ino, self.chunk, n, pieces);
        Ok(())
    }

    /// Keeps the count, or changes the form back.
    fn end(self, tx: &mut Tx) -> Done<()> {
        let Split { ino, chunk, born, fragments } = self;
        if fragments as usize > FRAGMENTS_MAX / 2 {
            tx.put(keys::chunk(ino, chunk), encode(&Chunk::Split { born, fragments }));
            return Ok(());
        }
        let mut all = Vec::new();
        for n in 0..BLOCKS as u8 {
            let pieces = block(tx, ino, chunk, n)?;
            if !pieces.is_empty() {
                pieces.into_iter().for_each(|p| map::append(&mut all, p));
                tx.delete(keys::chunk_block(ino, chunk, n));
            }
        }
        put_whole(tx, ino, chunk, born, all);
        Ok(())
    }
}

/// Lays `new` over a chunk's map, in order. `number`: the inode's, for a map that begins here.
pub(crate) fn write(tx: &mut Tx, ino: InodeId, inode: &Inode, chunk: u32, new: &[Piece], number: u64, net: &mut Net) -> Done<()> {
    let mut found = head(tx, ino, chunk)?;
    let dead = found.as_ref().is_some_and(|h| inode.dead(chunk, born(h)));
    if dead || (matches!(found, Some(Chunk::Split { .. })) && new.iter().any(|p| p.len == CHUNK)) {
        free_one(tx, ino, chunk, net)?;
        found = None;
    }
    match found {
        Some(Chunk::Split { born, fragments }) => {
            let mut split = Split { ino, chunk, born, fragments };
            for (n, parts) in map::by_block(new, BLOCK) {
                split.change(tx, n, |pieces| parts.into_iter().for_each(|p| map::overlay(pieces, p, net)))?;
            }
            split.end(tx)?;
        }
        whole => {
            let (born, mut pieces) = match whole {
                Some(Chunk::Whole { born, pieces }) => (born, sound(pieces, 0, CHUNK)?),
                _ => (number, Vec::new()),
            };
            new.iter().for_each(|p| map::overlay(&mut pieces, *p, net));
            put_whole(tx, ino, chunk, born, pieces);
        }
    }
    Ok(())
}

/// Removes `[from, CHUNK)` of a chunk.
pub(crate) fn cut_from(tx: &mut Tx, ino: InodeId, inode: &Inode, chunk: u32, from: u32, net: &mut Net) -> Done<()> {
    let Some(found) = head(tx, ino, chunk)? else { return Ok(()) };
    if inode.dead(chunk, born(&found)) {
        return free_one(tx, ino, chunk, net);
    }
    match found {
        Chunk::Whole { born, pieces } => {
            let mut pieces = sound(pieces, 0, CHUNK)?;
            map::cut(&mut pieces, from, CHUNK, net);
            put_whole(tx, ino, chunk, born, pieces);
        }
        Chunk::Split { born, fragments } => {
            let mut split = Split { ino, chunk, born, fragments };
            for n in from / BLOCK..BLOCKS {
                split.change(tx, n as u8, |pieces| map::cut(pieces, from, CHUNK, net))?;
            }
            split.end(tx)?;
        }
    }
    Ok(())
}

fn free_one(tx: &mut Tx, ino: InodeId, chunk: u32, net: &mut Net) -> Done<()> {
    free(tx, ino, chunk..chunk + 1, 1, None, net).map(|_| ())
}

/// How far a round of freeing came.
pub(crate) struct Freed {
    /// The chunk to go on from; `None` when the range is done.
    pub next: Option<u32>,
    /// Chunk maps it looked at.
    pub seen: u32,
}

/// Frees chunk maps in `range`, looking at no more than `chunks_max`; with `dead_at`, only those born at or before that number.
pub(crate) fn free(tx: &mut Tx, ino: InodeId, range: Range<u32>, chunks_max: u32, dead_at: Option<u64>, net: &mut Net) -> Done<Freed> {
    let mut records: Vec<(Vec<u8>, Bytes)> = Vec::new();
    let (mut seen, mut last, mut next) = (0, None, None);
    tx.scan(&keys::chunk(ino, range.start), &keys::chunk(ino, range.end), &mut |k, v| {
        let chunk = keys::parse_chunk(k).map(|(_, chunk, _)| chunk);
        if chunk != last {
            if seen == chunks_max {
                next = chunk;
                return ControlFlow::Break(());
            }
            (seen, last) = (seen + 1, chunk);
        }
        records.push((k.to_vec(), Bytes::copy_from_slice(v)));
        ControlFlow::Continue(())
    })?;
    let mut keep = false;
    for (key, value) in records {
        let pieces = match keys::parse_chunk(&key) {
            Some((_, _, None)) => {
                let head: Chunk = decode(&value)?;
                keep = dead_at.is_some_and(|n| born(&head) > n);
                match head {
                    Chunk::Whole { pieces, .. } => pieces,
                    Chunk::Split { .. } => Vec::new(),
                }
            }
            Some((_, _, Some(_))) => decode::<Pieces>(&value)?.0,
            None => return Err(broken("a chunk's key has another form").into()),
        };
        if !keep {
            pieces.iter().for_each(|p| net.sub(p.stripe, p.len));
            tx.delete(key);
        }
    }
    Ok(Freed { next, seen })
}

/// The live maps of `chunks`, in file order.
pub(crate) fn read(
    kv: &(impl KvRead + ?Sized),
    ino: InodeId,
    inode: &Inode,
    chunks: Range<u32>,
    visit: &mut dyn FnMut(u32, Vec<Piece>) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let mut failed = Ok(());
    // The chunk in hand: its number and what is known of it so far; `None` pieces when it is dead.
    let mut hand: Option<(u32, Option<Vec<Piece>>)> = None;
    let mut step = |k: &[u8], v: &[u8]| -> Result<(), StateError> {
        let (_, chunk, block) = keys::parse_chunk(k).ok_or_else(|| broken("a chunk's key has another form"))?;
        if block.is_none() {
            if let Some((chunk, Some(pieces))) = hand.take() {
                visit(chunk, sound(pieces, 0, CHUNK)?)?;
            }
            let head: Chunk = decode(v)?;
            let alive = !inode.dead(chunk, born(&head));
            let pieces = match head {
                Chunk::Whole { pieces, .. } => pieces,
                Chunk::Split { .. } => Vec::new(),
            };
            hand = Some((chunk, alive.then_some(pieces)));
            return Ok(());
        }
        let Some((_, pieces)) = hand.as_mut().filter(|(c, _)| *c == chunk) else {
            return Err(broken("blocks of a chunk have no head"));
        };
        if let Some(pieces) = pieces {
            decode::<Pieces>(v)?.0.into_iter().for_each(|p| map::append(pieces, p));
        }
        Ok(())
    };
    kv.scan(&keys::chunk(ino, chunks.start), &keys::chunk(ino, chunks.end), &mut |k, v| match step(k, v) {
        Ok(()) => ControlFlow::Continue(()),
        Err(e) => {
            failed = Err(e);
            ControlFlow::Break(())
        }
    })?;
    failed?;
    if let Some((chunk, Some(pieces))) = hand {
        visit(chunk, sound(pieces, 0, CHUNK)?)?;
    }
    Ok(())
}
