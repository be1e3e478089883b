//! What S3 reads, but for listings: buckets, objects by key, uploads.

use crate::fail::{Done, split};
use crate::object::{self, info, with_etag};
use crate::record::{Part, UploadRecord, decode};
use crate::{KvRead, StateError, bucket as buckets_of, dir, keys, upload};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Attr, Bucket, MetaError, MetaResult, Name, ObjectInfo, Upload, UploadPart};
use holdfast_objstore_proto::{BucketId, UploadId};
use std::ops::ControlFlow;

/// `NoSuchBucket`.
pub fn bucket(kv: &dyn KvRead, name: &[u8]) -> Result<MetaResult<Bucket>, StateError> {
    split(buckets_of::by_name(kv, name).map(|(id, record)| buckets_of::show(id, &record)))
}

/// All buckets in byte order of their names (there are at most 10,000).
pub fn buckets(kv: &dyn KvRead) -> Result<MetaResult<Vec<Bucket>>, StateError> {
    let from = keys::bucket_names();
    let mut names = Vec::new();
    kv.scan(&from, &keys::end_of(&from), &mut |k, _| {
        names.push(k[1..].to_vec());
        ControlFlow::Continue(())
    })?;
    let mut all = Vec::new();
    for name in names {
        match bucket(kv, &name)? {
            Ok(b) => all.push(b),
            Err(e) => return Ok(Err(e)),
        }
    }
    Ok(Ok(all))
}

/// The object under a key, with its ETag filled in. `NotFound`, `NoSuchBucket`. A directory only for a key ending in `/`, and only
/// if a PUT of that key made it an object.
pub fn resolve(kv: &dyn KvRead, bucket: BucketId, key: &Name) -> Result<MetaResult<(Attr, ObjectInfo)>, StateError> {
    split(resolve_in(kv, bucket, key))
}

fn resolve_in(kv: &dyn KvRead, bucket: BucketId, key: &Name) -> Done<(Attr, ObjectInfo)> {
    let bucket = buckets_of::by_id(kv, bucket)?;
    let found = object::find(kv, &bucket, key)?.ok_or(MetaError::NotFound)?;
    let ino = found.dentry.ino;
    let info = info(kv, ino)?;
    if found.is_dir && info.is_none() {
        return Err(MetaError::NotFound.into());
    }
    let inode = dir::inode(kv, ino)?;
    Ok((inode.attr(ino), with_etag(ino, &inode, info)))
}

fn show(id: UploadId, r: UploadRecord) -> Upload {
    Upload { id, key: r.key, created: r.created, info: r.info }
}

/// Open uploads in order of (key, id), after that pair, whose keys start with `prefix`.
pub fn uploads(
    kv: &dyn KvRead,
    bucket: BucketId,
    prefix: &[u8],
    after: Option<&(Name, UploadId)>,
    uploads_max: usize,
) -> Result<MetaResult<Vec<Upload>>, StateError> {
    split(uploads_in(kv, bucket, prefix, after, uploads_max))
}

fn uploads_in(kv: &dyn KvRead, bucket: BucketId, prefix: &[u8], after: Option<&(Name, UploadId)>, uploads_max: usize) -> Done<Vec<Upload>> {
    buckets_of::by_id(kv, bucket)?;
    let mut from = keys::upload_keys(bucket, prefix);
    let to = keys::end_of(&from);
    if let Some((key, id)) = after {
        let mut above = keys::upload_key(bucket, key, *id);
        above.push(0);
        from = from.max(above);
    }
    let mut ids = Vec::new();
    if uploads_max > 0 {
        kv.scan(&from, &to, &mut |k, _| {
            ids.push(UploadId(keys::tail_u64(k).unwrap_or_default()));
            if ids.len() == uploads_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    ids.into_iter().map(|id| Ok(show(id, upload::open(kv, bucket, id)?))).collect()
}

/// An upload, and its parts with numbers above `after`. `NoSuchUpload`.
pub fn upload_parts(
    kv: &dyn KvRead,
    bucket: BucketId,
    upload: UploadId,
    after: u16,
    parts_max: usize,
) -> Result<MetaResult<(Upload, Vec<UploadPart>)>, StateError> {
    split(upload_parts_in(kv, bucket, upload, after, parts_max))
}

fn upload_parts_in(kv: &dyn KvRead, bucket: BucketId, id: UploadId, after: u16, parts_max: usize) -> Done<(Upload, Vec<UploadPart>)> {
    let record = upload::open(kv, bucket, id)?;
    let mut found: Vec<(u16, Bytes)> = Vec::new();
    if let Some(from) = after.checked_add(1).filter(|_| parts_max > 0) {
        kv.scan(&keys::part(id, from), &keys::end_of(&keys::parts(id)), &mut |k, v| {
            let number = u16::from_be_bytes([k[k.len() - 2], k[k.len() - 1]]);
            found.push((number, Bytes::copy_from_slice(v)));
            if found.len() == parts_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    let mut parts = Vec::with_capacity(found.len());
    for (number, value) in found {
        let p: Part = decode(&value)?;
        parts.push(UploadPart { number, size: p.size, etag: p.etag, modified: p.modified, checksums: p.checksums });
    }
    Ok((show(id, record), parts))
}
