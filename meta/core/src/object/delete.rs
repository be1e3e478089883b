//! DeleteObject: removes a key, and the parents a PUT made that it leaves empty.

use super::{Found, check_condition, etag_of, find, info};
use crate::apply::Ctx;
use crate::fail::Done;
use crate::record::{Body, Inode};
use crate::tx::Tx;
use crate::{KvRead, bucket, dir, keys};
use holdfast_objstore_proto::meta::{Condition, Kind, Name, Reply};
use holdfast_objstore_proto::{BucketId, InodeId};

pub(crate) fn delete(tx: &mut Tx, ctx: Ctx, bucket: BucketId, key: &Name, condition: &Condition) -> Done<Reply> {
    let bucket = bucket::by_id(tx, bucket)?;
    let found = find(tx, &bucket, key)?;
    let object = match &found {
        Some(f) => {
            let (inode, info) = (dir::inode(tx, f.dentry.ino)?, info(tx, f.dentry.ino)?);
            // A directory without an object record is none.
            (!f.is_dir || info.is_some()).then_some((f, inode, info))
        }
        None => None,
    };
    let Some((found, mut inode, info)) = object else {
        check_condition(condition, None)?;
        return Ok(Reply::Removed { ino: None });
    };
    let ino = found.dentry.ino;
    check_condition(condition, Some(etag_of(ino, &inode, info.as_ref())))?;
    if found.is_dir {
        tx.delete(keys::info(ino));
        inode.changed(ctx.now);
        dir::put(tx, ino, &inode);
    }
    for (parent, name, child) in vanishing(tx, found)? {
        let inode = dir::inode(tx, child)?;
        let kind = inode.kind();
        let mut dir = dir::open(tx, parent)?;
        let dentry = dir::find(tx, parent, &name)?.filter(|d| d.kind == kind && d.ino == child);
        let dentry = dentry.ok_or_else(|| crate::fail::broken("a name changed while it was removed"))?;
        dir::remove(tx, parent, &mut dir, &name, dentry, ctx.now)?;
        dir::put(tx, parent, &dir);
        dir::drop_link(tx, child, inode, ctx.now)?;
    }
    Ok(Reply::Removed { ino: Some(ino) })
}

/// The names that go when `found` is deleted, innermost first: (directory, name, the inode it stands for).
/// Of a directory object, its own name goes only if nothing else keeps it.
pub(crate) fn vanishing(kv: &(impl KvRead + ?Sized), found: &Found) -> Done<Vec<(InodeId, Name, InodeId)>> {
    let mut gone = Vec::new();
    let mut child = found.dentry.ino;
    for (i, (parent, name)) in found.way.iter().enumerate().rev() {
        let own = i + 1 == found.way.len();
        if found.dentry.kind == Kind::Dir || !own {
            let dir = dir::open(kv, child)?;
            // The key's own directory has to be empty, a parent to hold nothing but what goes.
            let empty = dir.size == if own { 0 } else { 1 };
            let object = !own && info(kv, child)?.is_some();
            if !empty || object || is_explicit(&dir) {
                break;
            }
        }
        gone.push((*parent, name.clone(), child));
        child = *parent;
    }
    Ok(gone)
}

fn is_explicit(dir: &Inode) -> bool {
    matches!(dir.body, Body::Dir { explicit: true, .. })
}
