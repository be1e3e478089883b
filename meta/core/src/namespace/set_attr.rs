//! SetAttr: chmod, chown, utimens.

use crate::apply::Ctx;
use crate::dir;
use crate::fail::Done;
use crate::record::Body;
use crate::tx::Tx;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{AttrChange, Reply};

pub(crate) fn set_attr(tx: &mut Tx, ctx: Ctx, ino: InodeId, change: &AttrChange) -> Done<Reply> {
    let mut inode = dir::inode(tx, ino)?;
    if *change == AttrChange::default() {
        return Ok(Reply::Attr(inode.attr(ino)));
    }
    inode.mode = change.mode.map_or(inode.mode, |m| m & 0o7777);
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    inode.atime = change.atime.unwrap_or(inode.atime);
    inode.mtime = change.mtime.unwrap_or(inode.mtime);
    inode.changed(ctx.now);
    inode.ctime = change.ctime.unwrap_or(inode.ctime);
    // A directory that someone cares for does not vanish with its last key.
    if (change.mode, change.uid, change.gid) != (None, None, None)
        && let Body::Dir { explicit, .. } = &mut inode.body
    {
        *explicit = true;
    }
    dir::put(tx, ino, &inode);
    Ok(Reply::Attr(inode.attr(ino)))
}
