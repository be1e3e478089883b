//! Create: a new inode under a new name.

use crate::apply::Ctx;
use crate::fail::{Done, invalid};
use crate::limits::TARGET_BYTES_MAX;
use crate::record::{Body, Inode};
use crate::tx::Tx;
use crate::{dir, ids};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Kind, MetaError, Name, Owner, Reply};

const SGID: u32 = 0o2000;

pub(crate) struct New<'a> {
    pub ino: InodeId,
    pub kind: Kind,
    pub mode: u32,
    pub owner: Owner,
    pub rdev: u32,
    pub target: &'a Name,
}

/// Group and mode of an inode made in `dir`: a directory's sgid bit hands down its group, and to directories the bit.
pub(crate) fn inherit(dir: &Inode, kind: Kind, mode: u32, gid: u32) -> (u32, u32) {
    let mode = mode & 0o7777;
    match (dir.mode & SGID != 0, kind) {
        (true, Kind::Dir) => (mode | SGID, dir.gid),
        (true, _) => (mode, dir.gid),
        (false, _) => (mode, gid),
    }
}

pub(crate) fn create(tx: &mut Tx, ctx: Ctx, parent: InodeId, name: &Name, new: New) -> Done<Reply> {
    let mut dir = dir::open_to_change(tx, parent)?;
    dir::check_name(name)?;
    if dir::find(tx, parent, name)?.is_some() {
        return Err(MetaError::Exists.into());
    }
    let body = match new.kind {
        Kind::File => Body::file(),
        Kind::Dir => Body::dir(parent, true, false),
        Kind::Symlink if new.target.is_empty() || new.target.contains(&0) => return invalid("not a symlink's target"),
        Kind::Symlink if new.target.len() > TARGET_BYTES_MAX => return Err(MetaError::NameTooLong.into()),
        Kind::Symlink => Body::Symlink { target: new.target.clone() },
        Kind::Fifo => Body::Fifo,
        Kind::Socket => Body::Socket,
        Kind::CharDev => Body::CharDev,
        Kind::BlockDev => Body::BlockDev,
    };
    if new.kind != Kind::Symlink && !new.target.is_empty() {
        return invalid("only a symlink has a target");
    }
    let rdev = if matches!(new.kind, Kind::CharDev | Kind::BlockDev) { new.rdev } else { 0 };
    ids::take_inode(tx, ctx.session, new.ino)?;
    let (mode, gid) = inherit(&dir, new.kind, new.mode, new.owner.gid);
    let inode = Inode {
        bucket: dir.bucket,
        mode,
        uid: new.owner.uid,
        gid,
        rdev,
        nlink: if new.kind == Kind::Dir { 2 } else { 1 },
        size: new.target.len() as u64,
        mapped: 0,
        atime: ctx.now,
        mtime: ctx.now,
        ctime: ctx.now,
        btime: ctx.now,
        change: 1,
        number: 0,
        body,
    };
    dir::put_new(tx, new.ino, &inode);
    dir::add(tx, parent, &mut dir, name, new.ino, new.kind, ctx.now)?;
    dir::put(tx, parent, &dir);
    Ok(Reply::Attr(inode.attr(new.ino)))
}
