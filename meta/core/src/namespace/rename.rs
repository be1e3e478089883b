//! Rename: replace, no-replace, exchange.

use crate::apply::Ctx;
use crate::fail::{Done, invalid};
use crate::record::{Body, Dentry, Inode};
use crate::tx::Tx;
use crate::{KvRead, dir};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Kind, MetaError, Name, RenameMode, Reply, TimeNs};

type Place<'a> = (InodeId, &'a Name);

pub(crate) fn rename(tx: &mut Tx, ctx: Ctx, from: Place, to: Place, mode: RenameMode) -> Done<Reply> {
    let from_dir = dir::open_to_change(tx, from.0)?;
    let to_dir = dir::open_to_change(tx, to.0)?;
    dir::check_name(from.1)?;
    dir::check_name(to.1)?;
    if from_dir.bucket != to_dir.bucket {
        return invalid("a rename stays in its bucket");
    }
    let moved = dir::find(tx, from.0, from.1)?.ok_or(MetaError::NotFound)?;
    let target = dir::find(tx, to.0, to.1)?;
    if moved.kind == Kind::Dir && from.0 != to.0 && is_within(tx, to.0, moved.ino)? {
        return invalid("a directory cannot move into itself");
    }
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => Err(MetaError::Exists.into()),
        (RenameMode::Exchange, None) => Err(MetaError::NotFound.into()),
        (RenameMode::Exchange, Some(target)) => {
            if target.kind == Kind::Dir && from.0 != to.0 && is_within(tx, from.0, target.ino)? {
                return invalid("a directory cannot move into itself");
            }
            exchange(tx, ctx, from, to, moved, target)
        }
        // Two links of one inode: rename(2) does nothing, and leaves both.
        (RenameMode::Replace, Some(target)) if target.ino == moved.ino => Ok(Reply::Renamed { moved: moved.ino, replaced: None }),
        (_, target) => replace(tx, ctx, from, to, moved, target),
    }
}

/// Whether `dir` is `above` or below it. As long as the path is deep.
fn is_within(kv: &(impl KvRead + ?Sized), mut dir: InodeId, above: InodeId) -> Done<bool> {
    loop {
        if dir == above {
            return Ok(true);
        }
        let parent = dir::parent_of(&dir::open(kv, dir)?)?;
        if parent == dir {
            return Ok(false);
        }
        dir = parent;
    }
}

fn replace(tx: &mut Tx, ctx: Ctx, from: Place, to: Place, moved: Dentry, target: Option<Dentry>) -> Done<Reply> {
    let old = target.map(|t| dir::inode(tx, t.ino)).transpose()?;
    if let (Some(t), Some(old)) = (target, &old) {
        match (moved.kind == Kind::Dir, t.kind == Kind::Dir) {
            (true, false) => return Err(MetaError::NotDir.into()),
            (false, true) => return Err(MetaError::IsDir.into()),
            (true, true) if old.size > 0 => return Err(MetaError::NotEmpty.into()),
            _ => {}
        }
    }
    let now = ctx.now;
    if from.0 == to.0 {
        let mut dir = dir::open(tx, from.0)?;
        match target {
            Some(t) => {
                dir::remove(tx, from.0, &mut dir, from.1, moved, now)?;
                dir::replace(tx, to.0, &mut dir, to.1, t, moved.ino, moved.kind, now)?;
            }
            None => dir::rename_in_place(tx, from.0, &mut dir, from.1, to.1, moved, now),
        }
        dir::put(tx, from.0, &dir);
    } else {
        let mut dir = dir::open(tx, from.0)?;
        dir::remove(tx, from.0, &mut dir, from.1, moved, now)?;
        dir::put(tx, from.0, &dir);
        let mut dir = dir::open(tx, to.0)?;
        match target {
            Some(t) => dir::replace(tx, to.0, &mut dir, to.1, t, moved.ino, moved.kind, now)?,
            None => dir::add(tx, to.0, &mut dir, to.1, moved.ino, moved.kind, now)?,
        }
        dir::put(tx, to.0, &dir);
    }
    settle_moved(tx, moved.ino, to.0, now)?;
    let replaced = match (target, old) {
        (Some(t), Some(old)) => Some((t.ino, dir::drop_link(tx, t.ino, old, now)?)),
        _ => None,
    };
    Ok(Reply::Renamed { moved: moved.ino, replaced })
}

fn exchange(tx: &mut Tx, ctx: Ctx, from: Place, to: Place, moved: Dentry, target: Dentry) -> Done<Reply> {
    if moved.ino != target.ino {
        let now = ctx.now;
        // Each directory by itself: they may be one, so it is read again.
        for (place, old, new) in [(from, moved, target), (to, target, moved)] {
            let mut dir = dir::open(tx, place.0)?;
            dir::replace(tx, place.0, &mut dir, place.1, old, new.ino, new.kind, now)?;
            dir::put(tx, place.0, &dir);
        }
        settle_moved(tx, moved.ino, to.0, now)?;
        settle_moved(tx, target.ino, from.0, now)?;
    }
    Ok(Reply::Renamed { moved: moved.ino, replaced: None })
}

/// What a rename changes in the inode that moved. A directory that someone names is one to keep.
fn settle_moved(tx: &mut Tx, ino: InodeId, to: InodeId, now: TimeNs) -> Done<()> {
    let mut inode: Inode = dir::inode(tx, ino)?;
    if let Body::Dir { parent, explicit, .. } = &mut inode.body {
        *parent = to;
        *explicit = true;
    }
    inode.changed(now);
    dir::put(tx, ino, &inode);
    Ok(())
}
