//! Truncate: sets a file's size, at a cost that does not grow with what it cuts off.
//!
//! The chunk that holds the new end is cut at once, and up to 16 chunks behind it are freed. What lies further is left in place
//! under a *cut*: chunk maps in its range born at or before the truncation's number are dead. Readers do not see them, a write into
//! such a chunk frees its old map first, and a hidden orphan makes the reaper free the rest.

use crate::apply::Ctx;
use crate::fail::Done;
use crate::limits::{CUT_CHUNKS_NOW, CUTS_MAX, FILE_BYTES_MAX};
use crate::map::CHUNK;
use crate::publish::{check_number, file};
use crate::record::{Body, Cut, encode};
use crate::stripes::{self, Net};
use crate::tx::Tx;
use crate::{chunk, keys, object, orphan};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{MetaError, Reply, TimeNs};

pub(crate) fn truncate(tx: &mut Tx, ctx: Ctx, ino: InodeId, number: u64, size: u64, mtime: TimeNs) -> Done<Reply> {
    let mut inode = file(tx, ino)?;
    check_number(&inode, number)?;
    if size > FILE_BYTES_MAX {
        return Err(MetaError::FileTooLarge.into());
    }
    let mut net = Net::default();
    if size < inode.size {
        let (mut from, rest) = ((size / CHUNK as u64) as u32, (size % CHUNK as u64) as u32);
        if rest > 0 {
            chunk::cut_from(tx, ino, &inode, from, rest, &mut net)?;
            from += 1;
        }
        let old_end = inode.size.div_ceil(CHUNK as u64) as u32;
        let to = inode.cuts().last().map_or(old_end, |c| c.to.max(old_end));
        let left = if from < to { chunk::free(tx, ino, from..to, CUT_CHUNKS_NOW, None, &mut net)?.next } else { None };
        if let Body::File { cuts, .. } = &mut inode.body {
            cuts.retain(|c| c.from < from);
            if let Some(last) = cuts.last_mut() {
                last.to = last.to.min(from);
            }
            if let Some(from) = left {
                cuts.push(Cut { from, to, number });
            }
        }
        if inode.cuts().len() > CUTS_MAX {
            orphan::reap_last_cut(tx, ino, &mut inode, &mut net)?;
        }
        orphan::keep_tail(tx, ino, &mut inode)?;
        inode.mapped = orphan::mapped_after(&inode, &net)?;
        stripes::settle(tx, ctx, &net, Default::default())?;
    }
    inode.number = number;
    inode.size = size;
    inode.mtime = mtime;
    inode.changed(ctx.now);
    tx.put(keys::inode(ino), encode(&inode));
    object::data_changed(tx, ino)?;
    Ok(Reply::Attr(inode.attr(ino)))
}
