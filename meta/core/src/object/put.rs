//! PutObject: the one commit of a PUT or a copy, and what a completed upload shares with it.

use super::{Spot, check_condition, check_info, etag_of, info, locate};
use crate::apply::Ctx;
use crate::fail::{Done, broken, invalid};
use crate::limits::{COPY_BYTES_MAX, FILE_BYTES_MAX};
use crate::namespace::inherit;
use crate::record::{Body, BucketRecord, Inode, encode};
use crate::stripes::{self, Claimed, Net};
use crate::tx::Tx;
use crate::{bucket, chunk, dir, ids, keys, map, publish};
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Condition, Extent, Kind, MetaError, Name, ObjectInfo, Owner, PutObject, Reply};
use holdfast_objstore_proto::{BucketId, InodeId};

const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// What goes under the key. Its stripes' bytes are already in `net`, but for those of `extents`.
pub(crate) struct NewObject<'a> {
    pub ino: InodeId,
    pub size: u64,
    pub extents: Vec<Extent>,
    pub info: &'a ObjectInfo,
    pub owner: Owner,
    pub claimed: Claimed,
    pub net: Net,
}

pub(crate) fn put(tx: &mut Tx, ctx: Ctx, p: &PutObject) -> Done<Reply> {
    let bucket = bucket::by_id(tx, p.bucket)?;
    let spot = locate(tx, &bucket, &p.key)?;
    check_info(&p.info)?;
    if spot.is_dir {
        let data = !p.extents.is_empty() || !p.stripes.is_empty() || !p.inline.is_empty();
        if p.size != 0 || data || p.copy_from.is_some() {
            return Err(MetaError::KeyConflict("a key that ends in '/' makes a directory, which has no data".into()).into());
        }
        return put_dir(tx, ctx, p, &bucket, spot);
    }
    let claimed = stripes::claim(tx, ctx, p.bucket, &p.stripes, &p.inline)?;
    let (size, extents) = match p.copy_from {
        Some((source, change)) => {
            if !p.extents.is_empty() || !p.stripes.is_empty() || !p.inline.is_empty() {
                return invalid("a copy brings no data of its own");
            }
            copied(tx, source, change)?
        }
        None => {
            stripes::check_extents(&p.extents, p.size, &claimed)?;
            (p.size, p.extents.clone())
        }
    };
    let new = NewObject { ino: p.ino, size, extents, info: &p.info, owner: p.owner, claimed, net: Net::default() };
    place(tx, ctx, p.bucket, spot, &p.condition, new)
}

/// Size and extents of a copy's source.
fn copied(tx: &Tx, source: InodeId, change: u64) -> Done<(u64, Vec<Extent>)> {
    let inode = publish::file(tx, source)?;
    if inode.change != change {
        return Err(MetaError::Retry("the source of the copy changed".into()).into());
    }
    if inode.size > COPY_BYTES_MAX {
        return Err(MetaError::FileTooLarge.into());
    }
    let mut extents = Vec::new();
    chunk::read(tx, source, &inode, 0..u32::MAX, &mut |n, pieces| {
        let base = n as u64 * CHUNK_BYTES;
        extents.extend(pieces.iter().map(|p| Extent { offset: base + p.start as u64, len: p.len, stripe: p.stripe, stripe_offset: p.at }));
        Ok(())
    })?;
    Ok((inode.size, extents))
}

/// Swaps a new inode under the key of `spot`.
pub(crate) fn place(tx: &mut Tx, ctx: Ctx, bucket: BucketId, spot: Spot, condition: &Condition, new: NewObject) -> Done<Reply> {
    if new.size > FILE_BYTES_MAX {
        return Err(MetaError::FileTooLarge.into());
    }
    let old = match spot.found {
        Some(d) => Some((d, dir::inode(tx, d.ino)?)),
        None => None,
    };
    let etag = match &old {
        Some((d, inode)) => Some(etag_of(d.ino, inode, info(tx, d.ino)?.as_ref())),
        None => None,
    };
    check_condition(condition, etag)?;
    ids::take_inode(tx, ctx.session, new.ino)?;
    let (parent_ino, mut parent) = make_parents(tx, ctx, &spot, new.owner)?;
    let (mode, uid, gid) = match &old {
        Some((_, inode)) => (inode.mode, inode.uid, inode.gid),
        None => {
            let (mode, gid) = inherit(&parent, Kind::File, FILE_MODE, new.owner.gid);
            (mode, new.owner.uid, gid)
        }
    };
    let now = ctx.now;
    let mut inode = Inode {
        bucket,
        mode,
        uid,
        gid,
        rdev: 0,
        nlink: 1,
        size: new.size,
        mapped: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: 1,
        number: 0,
        body: Body::file(),
    };
    let mut net = new.net;
    let before = net.total();
    for (n, pieces) in map::by_chunk(new.extents) {
        chunk::write(tx, new.ino, &inode, n, &pieces, 0, &mut net)?;
    }
    inode.mapped = u64::try_from(net.total() - before).map_err(|_| broken("a new inode maps less than nothing"))?;
    stripes::settle(tx, ctx, &net, new.claimed)?;
    dir::put_new(tx, new.ino, &inode);
    tx.put(keys::info(new.ino), encode(new.info));

    match spot.found {
        Some(d) => dir::replace(tx, parent_ino, &mut parent, &spot.name, d, new.ino, Kind::File, now)?,
        None => dir::add(tx, parent_ino, &mut parent, &spot.name, new.ino, Kind::File, now)?,
    }
    dir::put(tx, parent_ino, &parent);
    let replaced = match old {
        Some((d, inode)) => {
            dir::drop_link(tx, d.ino, inode, now)?;
            Some(d.ino)
        }
        None => None,
    };
    let etag = etag_of(new.ino, &inode, Some(new.info));
    Ok(Reply::Put { attr: inode.attr(new.ino), etag, replaced })
}

/// The directory the last name goes into, after making those that are missing. They vanish with their last key.
fn make_parents(tx: &mut Tx, ctx: Ctx, spot: &Spot, owner: Owner) -> Done<(InodeId, Inode)> {
    let (mut ino, mut dir) = (spot.dir, dir::open(tx, spot.dir)?);
    for name in &spot.missing {
        let child = ids::own_inode(tx)?;
        let made = make_dir(tx, ctx, ino, &mut dir, name, child, owner)?;
        dir::put(tx, ino, &dir);
        (ino, dir) = (child, made);
    }
    Ok((ino, dir))
}

/// The caller stores the parent.
fn make_dir(tx: &mut Tx, ctx: Ctx, parent: InodeId, dir: &mut Inode, name: &Name, ino: InodeId, owner: Owner) -> Done<Inode> {
    let (mode, gid) = inherit(dir, Kind::Dir, DIR_MODE, owner.gid);
    let inode = Inode {
        bucket: dir.bucket,
        mode,
        uid: owner.uid,
        gid,
        rdev: 0,
        nlink: 2,
        size: 0,
        mapped: 0,
        atime: ctx.now,
        mtime: ctx.now,
        ctime: ctx.now,
        btime: ctx.now,
        change: 1,
        number: 0,
        body: Body::dir(parent, false, false),
    };
    dir::put_new(tx, ino, &inode);
    dir::add(tx, parent, dir, name, ino, Kind::Dir, ctx.now)?;
    Ok(inode)
}

/// A key `name/`: the directory itself becomes an object.
fn put_dir(tx: &mut Tx, ctx: Ctx, p: &PutObject, bucket: &BucketRecord, spot: Spot) -> Done<Reply> {
    let marker = match spot.found {
        Some(d) => info(tx, d.ino)?.map(|i| (d.ino, i)),
        None => None,
    };
    let etag = match &marker {
        Some((ino, info)) => Some(etag_of(*ino, &dir::open(tx, *ino)?, Some(info))),
        None => None,
    };
    check_condition(&p.condition, etag)?;
    let (ino, inode) = match spot.found {
        Some(d) => {
            let mut inode = dir::open(tx, d.ino)?;
            inode.changed(ctx.now);
            dir::put(tx, d.ino, &inode);
            (d.ino, inode)
        }
        None => {
            ids::take_inode(tx, ctx.session, p.ino)?;
            let (parent_ino, mut parent) = make_parents(tx, ctx, &spot, p.owner)?;
            let inode = make_dir(tx, ctx, parent_ino, &mut parent, &spot.name, p.ino, p.owner)?;
            dir::put(tx, parent_ino, &parent);
            (p.ino, inode)
        }
    };
    debug_assert_ne!(ino, bucket.root, "a root has no name");
    tx.put(keys::info(ino), encode(&p.info));
    Ok(Reply::Put { attr: inode.attr(ino), etag: etag_of(ino, &inode, Some(&p.info)), replaced: None })
}
