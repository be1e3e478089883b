//! Buckets: made with a root directory, removed when empty.

use crate::apply::Ctx;
use crate::fail::{Done, broken, invalid};
use crate::limits::BUCKETS_MAX;
use crate::record::{Body, BucketRecord, Inode, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, dir, ids, keys};
use holdfast_objstore_proto::meta::{Bucket, MetaError, Name, Owner, Reply, Shape};
use holdfast_objstore_proto::{BucketId, Code};
use std::ops::ControlFlow;

pub(crate) fn by_id(kv: &(impl KvRead + ?Sized), id: BucketId) -> Done<BucketRecord> {
    Ok(load(kv, &keys::bucket(id))?.ok_or(MetaError::NoSuchBucket)?)
}

/// The code of its stripes; `None` when there is no such bucket any more.
pub(crate) fn code(kv: &(impl KvRead + ?Sized), id: BucketId) -> Done<Option<Code>> {
    Ok(load::<BucketRecord>(kv, &keys::bucket(id))?.map(|b| b.code))
}

pub(crate) fn by_name(kv: &(impl KvRead + ?Sized), name: &[u8]) -> Done<(BucketId, BucketRecord)> {
    let id: BucketId = load(kv, &keys::bucket_name(name))?.ok_or(MetaError::NoSuchBucket)?;
    let record = load(kv, &keys::bucket(id))?.ok_or_else(|| broken(format!("{id} has a name and no record")))?;
    Ok((id, record))
}

pub(crate) fn show(id: BucketId, r: &BucketRecord) -> Bucket {
    Bucket { id, name: r.name.clone(), shape: r.shape, code: r.code, root: r.root, created: r.created }
}

pub(crate) fn create(tx: &mut Tx, ctx: Ctx, name: &Name, shape: Shape, code: Code, owner: Owner, mode: u32) -> Done<Reply> {
    if !(3..=63).contains(&name.len()) {
        return invalid("a bucket's name has 3 to 63 bytes");
    }
    if code.k == 0 || code.n() > 32 {
        return invalid(format!("{code} is not a code"));
    }
    if tx.get(&keys::bucket_name(name))?.is_some() {
        return Err(MetaError::BucketExists.into());
    }
    let root = ids::own_inode(tx)?;
    let mut c = ids::counters(tx)?;
    if c.buckets >= BUCKETS_MAX {
        return invalid(format!("there are {BUCKETS_MAX} buckets already"));
    }
    let id = BucketId(c.bucket);
    c.bucket = c.bucket.checked_add(1).ok_or_else(|| broken("bucket ids ran out"))?;
    c.buckets += 1;
    ids::put_counters(tx, &c);
    let record = BucketRecord { name: name.clone(), shape, code, root, created: ctx.now };
    tx.put(keys::bucket(id), encode(&record));
    tx.put(keys::bucket_name(name), encode(&id));
    let inode = Inode {
        bucket: id,
        mode: mode & 0o7777,
        uid: owner.uid,
        gid: owner.gid,
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
        body: Body::dir(root, true, shape == Shape::Flat),
    };
    dir::put_new(tx, root, &inode);
    Ok(Reply::Bucket(show(id, &record)))
}

pub(crate) fn delete(tx: &mut Tx, ctx: Ctx, name: &Name) -> Done<Reply> {
    let (id, record) = by_name(tx, name)?;
    let root = dir::open(tx, record.root)?;
    if root.size > 0 || has_uploads(tx, id)? {
        return Err(MetaError::BucketNotEmpty.into());
    }
    tx.delete(keys::bucket(id));
    tx.delete(keys::bucket_name(name));
    let mut c = ids::counters(tx)?;
    c.buckets = c.buckets.saturating_sub(1);
    ids::put_counters(tx, &c);
    dir::drop_link(tx, record.root, root, ctx.now)?;
    Ok(Reply::Done)
}

fn has_uploads(tx: &Tx, id: BucketId) -> Result<bool, StateError> {
    let from = keys::upload_keys(id, b"");
    let mut found = false;
    tx.scan(&from, &keys::end_of(&from), &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}
