//! Link, Unlink and Rmdir.

use crate::apply::Ctx;
use crate::dir;
use crate::fail::{Done, invalid};
use crate::limits::LINKS_MAX;
use crate::tx::Tx;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Kind, MetaError, Name, Reply};

pub(crate) fn link(tx: &mut Tx, ctx: Ctx, parent: InodeId, name: &Name, ino: InodeId) -> Done<Reply> {
    let mut dir = dir::open_to_change(tx, parent)?;
    dir::check_name(name)?;
    let mut inode = dir::inode(tx, ino)?;
    if inode.is_dir() {
        return Err(MetaError::NotPermitted.into());
    }
    if inode.bucket != dir.bucket {
        return invalid("a link stays in its bucket");
    }
    if inode.nlink == 0 {
        return Err(MetaError::NotFound.into());
    }
    if inode.nlink >= LINKS_MAX {
        return Err(MetaError::TooManyLinks.into());
    }
    if dir::find(tx, parent, name)?.is_some() {
        return Err(MetaError::Exists.into());
    }
    inode.nlink += 1;
    inode.changed(ctx.now);
    dir::put(tx, ino, &inode);
    dir::add(tx, parent, &mut dir, name, ino, inode.kind(), ctx.now)?;
    dir::put(tx, parent, &dir);
    Ok(Reply::Attr(inode.attr(ino)))
}

pub(crate) fn unlink(tx: &mut Tx, ctx: Ctx, parent: InodeId, name: &Name) -> Done<Reply> {
    let mut dir = dir::open_to_change(tx, parent)?;
    dir::check_name(name)?;
    let d = dir::find(tx, parent, name)?.ok_or(MetaError::NotFound)?;
    if d.kind == Kind::Dir {
        return Err(MetaError::IsDir.into());
    }
    let inode = dir::inode(tx, d.ino)?;
    dir::remove(tx, parent, &mut dir, name, d, ctx.now)?;
    dir::put(tx, parent, &dir);
    let nlink = dir::drop_link(tx, d.ino, inode, ctx.now)?;
    Ok(Reply::Unlinked { ino: d.ino, nlink })
}

pub(crate) fn rmdir(tx: &mut Tx, ctx: Ctx, parent: InodeId, name: &Name) -> Done<Reply> {
    let mut dir = dir::open_to_change(tx, parent)?;
    dir::check_name(name)?;
    let d = dir::find(tx, parent, name)?.ok_or(MetaError::NotFound)?;
    if d.kind != Kind::Dir {
        return Err(MetaError::NotDir.into());
    }
    let inode = dir::inode(tx, d.ino)?;
    if inode.size > 0 {
        return Err(MetaError::NotEmpty.into());
    }
    dir::remove(tx, parent, &mut dir, name, d, ctx.now)?;
    dir::put(tx, parent, &dir);
    let nlink = dir::drop_link(tx, d.ino, inode, ctx.now)?;
    Ok(Reply::Unlinked { ino: d.ino, nlink })
}
