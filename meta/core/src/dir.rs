//! Directories: names to inodes, in two orders.
//!
//! What always holds: each name has one dentry record, whose key order is S3's list order (a directory's name ends in `/`), and one
//! cookie record, whose order is readdir's. Cookies start at 3 and are never given twice in a directory.

use crate::fail::{Done, broken, invalid};
use crate::limits::{LINKS_MAX, NAME_BYTES_MAX};
use crate::record::{Body, CookieRecord, Dentry, Inode, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, keys, orphan};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Kind, MetaError, Name, TimeNs};

/// Whether `name` can be one of a tree.
pub(crate) fn check_name(name: &[u8]) -> Done<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(MetaError::NameTooLong.into());
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|b| matches!(b, 0 | b'/')) {
        return invalid("not a name");
    }
    Ok(())
}

pub(crate) fn inode(kv: &(impl KvRead + ?Sized), ino: InodeId) -> Done<Inode> {
    let inode: Inode = load(kv, &keys::inode(ino))?.ok_or(MetaError::Stale)?;
    if inode.reaping() { Err(MetaError::Stale.into()) } else { Ok(inode) }
}

/// A directory, maybe removed.
pub(crate) fn open(kv: &(impl KvRead + ?Sized), ino: InodeId) -> Done<Inode> {
    let inode = inode(kv, ino)?;
    if inode.is_dir() { Ok(inode) } else { Err(MetaError::NotDir.into()) }
}

/// A directory of a tree whose names a mount may change.
pub(crate) fn open_to_change(kv: &(impl KvRead + ?Sized), ino: InodeId) -> Done<Inode> {
    let dir = open(kv, ino)?;
    if matches!(dir.body, Body::Dir { flat: true, .. }) {
        return Err(MetaError::NotPermitted.into());
    }
    if dir.nlink == 0 { Err(MetaError::NotFound.into()) } else { Ok(dir) }
}

pub(crate) fn parent_of(dir: &Inode) -> Result<InodeId, StateError> {
    match dir.body {
        Body::Dir { parent, .. } => Ok(parent),
        _ => Err(broken("an inode that should be a directory is not one")),
    }
}

/// What a name stands for.
pub(crate) fn find(kv: &(impl KvRead + ?Sized), dir: InodeId, name: &[u8]) -> Result<Option<Dentry>, StateError> {
    if let Some(d) = load::<Dentry>(kv, &keys::dentry(dir, name))?
        && d.kind != Kind::Dir
    {
        return Ok(Some(d));
    }
    Ok(load::<Dentry>(kv, &keys::dentry_dir(dir, name))?.filter(|d| d.kind == Kind::Dir))
}

fn dentry_key(dir: InodeId, name: &[u8], kind: Kind) -> Vec<u8> {
    if kind == Kind::Dir { keys::dentry_dir(dir, name) } else { keys::dentry(dir, name) }
}

fn put_entry(tx: &mut Tx, dir: InodeId, name: &Name, d: Dentry) {
    tx.put(dentry_key(dir, name, d.kind), encode(&d));
    tx.put(keys::cookie(dir, d.cookie), encode(&CookieRecord { ino: d.ino, kind: d.kind, name: name.clone() }));
}

fn stamp(dir: &mut Inode, now: TimeNs) {
    dir.mtime = now;
    dir.changed(now);
}

fn links(dir: &mut Inode, kind: Kind, change: i32) -> Done<()> {
    if kind == Kind::Dir {
        let n = dir.nlink.checked_add_signed(change).ok_or_else(|| broken("links of a directory fell below zero"))?;
        if change > 0 && n > LINKS_MAX {
            return Err(MetaError::TooManyLinks.into());
        }
        dir.nlink = n;
    }
    Ok(())
}

/// Adds a name that is not there. The caller stores the directory.
pub(crate) fn add(tx: &mut Tx, ino: InodeId, dir: &mut Inode, name: &Name, child: InodeId, kind: Kind, now: TimeNs) -> Done<()> {
    let Body::Dir { next_cookie, .. } = &mut dir.body else { return Err(MetaError::NotDir.into()) };
    let cookie = *next_cookie;
    *next_cookie += 1;
    links(dir, kind, 1)?;
    dir.size += 1;
    stamp(dir, now);
    put_entry(tx, ino, name, Dentry { ino: child, cookie, kind });
    Ok(())
}

/// Removes a name. The caller stores the directory.
pub(crate) fn remove(tx: &mut Tx, ino: InodeId, dir: &mut Inode, name: &[u8], d: Dentry, now: TimeNs) -> Done<()> {
    tx.delete(dentry_key(ino, name, d.kind));
    tx.delete(keys::cookie(ino, d.cookie));
    links(dir, d.kind, -1)?;
    dir.size = dir.size.checked_sub(1).ok_or_else(|| broken("entries of a directory fell below zero"))?;
    stamp(dir, now);
    Ok(())
}

/// Lets a name stand for another inode; it keeps its cookie, since it was there all the time. The caller stores the directory.
pub(crate) fn replace(
    tx: &mut Tx,
    ino: InodeId,
    dir: &mut Inode,
    name: &Name,
    old: Dentry,
    child: InodeId,
    kind: Kind,
    now: TimeNs,
) -> Done<()> {
    tx.delete(dentry_key(ino, name, old.kind));
    links(dir, old.kind, -1)?;
    links(dir, kind, 1)?;
    stamp(dir, now);
    put_entry(tx, ino, name, Dentry { ino: child, cookie: old.cookie, kind });
    Ok(())
}

/// Gives an entry another name in its directory. It keeps its cookie, so that a reader that renames as it goes meets each entry once.
pub(crate) fn rename_in_place(tx: &mut Tx, ino: InodeId, dir: &mut Inode, from: &[u8], to: &Name, d: Dentry, now: TimeNs) {
    tx.delete(dentry_key(ino, from, d.kind));
    stamp(dir, now);
    put_entry(tx, ino, to, d);
}

/// Takes one link (a directory: its only one) from an inode and stores it; without links it is an orphan. Answers the links left.
pub(crate) fn drop_link(tx: &mut Tx, ino: InodeId, mut inode: Inode, now: TimeNs) -> Done<u32> {
    inode.nlink =
        if inode.is_dir() { 0 } else { inode.nlink.checked_sub(1).ok_or_else(|| broken(format!("links of {ino} fell below zero")))? };
    inode.changed(now);
    if inode.nlink == 0 {
        orphan::add_inode(tx, ino);
    }
    let left = inode.nlink;
    tx.put(keys::inode(ino), encode(&inode));
    Ok(left)
}

pub(crate) fn put(tx: &mut Tx, ino: InodeId, inode: &Inode) {
    tx.put(keys::inode(ino), encode(inode));
}

/// Stores a new inode.
pub(crate) fn put_new(tx: &mut Tx, ino: InodeId, inode: &Inode) {
    tx.delta.inodes += 1;
    put(tx, ino, inode);
}
