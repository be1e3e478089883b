//! Publish: durable stripes become reachable.

use crate::apply::Ctx;
use crate::fail::{Done, Fail, invalid, refused};
use crate::limits::FILE_BYTES_MAX;
use crate::record::{Body, Inode, encode, load};
use crate::stripes::{self, Net};
use crate::tx::Tx;
use crate::{KvRead, StateError, chunk, keys, map, object, orphan};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, MetaError, Publish, Reply};

const SUID: u32 = 0o4000;
const SGID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o010;

/// A file that data can change in.
pub(crate) fn file(kv: &(impl KvRead + ?Sized), ino: InodeId) -> Done<Inode> {
    let inode: Inode = load(kv, &keys::inode(ino))?.ok_or(MetaError::Stale)?;
    match inode.body {
        Body::File { reaping: false, .. } => Ok(inode),
        Body::File { reaping: true, .. } => Err(MetaError::Stale.into()),
        Body::Dir { .. } => Err(MetaError::IsDir.into()),
        _ => invalid("not a regular file"),
    }
}

pub(crate) fn check_number(inode: &Inode, number: u64) -> Done<()> {
    let next = inode.number + 1;
    if number == next { Ok(()) } else { refused(format!("number {number}, the inode's next is {next}")) }
}

pub(crate) fn publish(tx: &mut Tx, ctx: Ctx, p: &Publish) -> Done<Reply> {
    let mut inode = file(tx, p.ino)?;
    check_number(&inode, p.number)?;
    let size = inode.size.max(p.size);
    if size > FILE_BYTES_MAX {
        return Err(MetaError::FileTooLarge.into());
    }
    let claimed = stripes::claim(tx, ctx, inode.bucket, &p.stripes, &p.inline)?;
    stripes::check_extents(&p.extents, size, &claimed)?;

    let mut net = Net::default();
    let chunks = map::by_chunk(p.extents.iter().copied());
    for (&n, pieces) in &chunks {
        chunk::write(tx, p.ino, &inode, n, pieces, p.number, &mut net)?;
    }
    // Two for one: so pending cuts are paid off faster than new ones can be made.
    orphan::reap_cuts(tx, p.ino, &mut inode, 2 * chunks.len() as u32 + 2, &mut net)?;
    inode.mapped = orphan::mapped_after(&inode, &net)?;
    stripes::settle(tx, ctx, &net, claimed)?;

    inode.number = p.number;
    inode.size = size;
    inode.mtime = p.mtime;
    inode.changed(p.ctime);
    if p.clear_suid {
        inode.mode &= !SUID;
        if inode.mode & GROUP_EXEC != 0 {
            inode.mode &= !SGID;
        }
    }
    tx.put(keys::inode(p.ino), encode(&inode));
    object::data_changed(tx, p.ino)?;
    Ok(Reply::Attr(inode.attr(p.ino)))
}

/// A Publish or Truncate that failed uses up its number all the same, so that those behind it are not refused for a gap.
/// One that failed *for* its number, or whose inode is gone, does not.
pub(crate) fn consume_number(tx: &mut Tx, command: &Command, why: &MetaError) -> Result<(), StateError> {
    let (ino, number) = match command {
        Command::Publish(p) => (p.ino, p.number),
        Command::Truncate { ino, number, .. } => (*ino, *number),
        _ => return Ok(()),
    };
    if *why == MetaError::Evicted {
        return Ok(());
    }
    match file(tx, ino) {
        Ok(mut inode) if check_number(&inode, number).is_ok() => {
            inode.number = number;
            tx.put(keys::inode(ino), encode(&inode));
            Ok(())
        }
        Err(Fail::State(e)) => Err(e),
        _ => Ok(()),
    }
}
