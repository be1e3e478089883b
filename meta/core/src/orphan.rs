//! What waits to be freed: inodes without names, chunks beyond a truncation, parts of abandoned uploads.
//!
//! What always holds: each is listed under an inode id (a hidden one for tails and parts, which nobody can hold open); the
//! service sends `ReapOrphan` for it until it is done; each such command does a bounded piece of work.

use crate::apply::Ctx;
use crate::fail::{Done, broken};
use crate::limits::REAP_CHUNKS_MAX;
use crate::record::{Body, Inode, Orphan, encode, load};
use crate::stripes::{self, Net};
use crate::tx::Tx;
use crate::{KvRead, StateError, chunk, ids, keys, upload};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::Reply;

/// Lists an inode whose last name went away.
pub(crate) fn add_inode(tx: &mut Tx, ino: InodeId) {
    tx.put(keys::orphan(ino), encode(&Orphan::Inode));
}

/// Lists something else under a hidden id of its own.
pub(crate) fn add_hidden(tx: &mut Tx, orphan: &Orphan) -> Done<InodeId> {
    let hidden = ids::own_inode(tx)?;
    tx.put(keys::orphan(hidden), encode(orphan));
    Ok(hidden)
}

pub(crate) fn mapped_after(inode: &Inode, net: &Net) -> Result<u64, StateError> {
    inode.mapped.checked_add_signed(net.total()).ok_or_else(|| broken("mapped bytes of an inode fell below zero"))
}

/// Makes the hidden orphan of a file's cuts be there while there are any, and not otherwise. The caller stores the inode.
pub(crate) fn keep_tail(tx: &mut Tx, ino: InodeId, inode: &mut Inode) -> Done<()> {
    let Body::File { cuts, tail, .. } = &mut inode.body else { return Ok(()) };
    match (cuts.is_empty(), *tail) {
        (false, None) => *tail = Some(add_hidden(tx, &Orphan::Tail { of: ino })?),
        (true, Some(hidden)) => {
            tx.delete(keys::orphan(hidden));
            *tail = None;
        }
        _ => {}
    }
    Ok(())
}

/// Frees dead chunks, the newest cut's first, looking at no more than `chunks_max` maps. The caller stores the inode.
pub(crate) fn reap_cuts(tx: &mut Tx, ino: InodeId, inode: &mut Inode, chunks_max: u32, net: &mut Net) -> Done<()> {
    let mut left = chunks_max;
    while left > 0
        && let Body::File { cuts, .. } = &mut inode.body
        && let Some(cut) = cuts.last_mut()
    {
        let freed = chunk::free(tx, ino, cut.from..cut.to, left, Some(cut.number), net)?;
        // A cut with nothing under it costs a look, too.
        left = left.saturating_sub(freed.seen.max(1));
        match freed.next {
            Some(next) => cut.from = next,
            None => drop(cuts.pop()),
        }
    }
    keep_tail(tx, ino, inode)
}

/// Frees all that the newest cut killed.
pub(crate) fn reap_last_cut(tx: &mut Tx, ino: InodeId, inode: &mut Inode, net: &mut Net) -> Done<()> {
    let Body::File { cuts, .. } = &mut inode.body else { return Ok(()) };
    let Some(cut) = cuts.pop() else { return Ok(()) };
    chunk::free(tx, ino, cut.from..cut.to, u32::MAX, Some(cut.number), net).map(|_| ())
}

pub(crate) fn reap(tx: &mut Tx, ctx: Ctx, ino: InodeId, chunks_max: u32) -> Done<Reply> {
    let chunks_max = chunks_max.clamp(1, REAP_CHUNKS_MAX);
    let done = match load(tx, &keys::orphan(ino))? {
        None => true,
        Some(Orphan::Inode) => reap_inode(tx, ctx, ino, chunks_max)?,
        Some(Orphan::Tail { of }) => {
            let mut net = Net::default();
            let mut inode: Inode = load(tx, &keys::inode(of))?.ok_or_else(|| broken(format!("the tail of {of} outlived it")))?;
            reap_cuts(tx, of, &mut inode, chunks_max, &mut net)?;
            inode.mapped = mapped_after(&inode, &net)?;
            tx.put(keys::inode(of), encode(&inode));
            stripes::settle(tx, ctx, &net, Default::default())?;
            inode.cuts().is_empty()
        }
        Some(Orphan::Parts { of }) => {
            let done = upload::reap_parts(tx, ctx, of, chunks_max)?;
            if done {
                tx.delete(keys::orphan(ino));
            }
            done
        }
    };
    Ok(Reply::Reaped { done })
}

fn reap_inode(tx: &mut Tx, ctx: Ctx, ino: InodeId, chunks_max: u32) -> Done<bool> {
    let mut inode: Inode = load(tx, &keys::inode(ino))?.ok_or_else(|| broken(format!("{ino} is an orphan without a record")))?;
    if let Body::File { reaping, .. } = &mut inode.body {
        *reaping = true;
        let mut net = Net::default();
        let left = chunk::free(tx, ino, 0..u32::MAX, chunks_max, None, &mut net)?.next;
        inode.mapped = mapped_after(&inode, &net)?;
        stripes::settle(tx, ctx, &net, Default::default())?;
        if left.is_some() {
            tx.put(keys::inode(ino), encode(&inode));
            return Ok(false);
        }
    }
    if let Body::File { tail: Some(hidden), .. } = inode.body {
        tx.delete(keys::orphan(hidden));
    }
    if tx.get(&keys::info(ino))?.is_some() {
        tx.delete(keys::info(ino));
    }
    tx.delete(keys::inode(ino));
    tx.delete(keys::orphan(ino));
    tx.delta.inodes -= 1;
    Ok(true)
}
