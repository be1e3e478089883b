//! Multipart uploads: parts wait outside the namespace until they are joined.
//!
//! What always holds: a part's stripes live as long as the part; joining moves them, so no byte is copied; what was not joined
//! is freed by the reaper. An upload that was completed answers the same to whoever asks again, for the last 10,000 of them.

use crate::apply::Ctx;
use crate::fail::{Done, broken, invalid};
use crate::limits::{COMPLETED_UPLOADS_MAX, INFO_BYTES_MAX, KEY_BYTES_MAX, PARTS_MAX};
use crate::object::{self, NewObject};
use crate::record::{Completed, Orphan, Part, UploadRecord, decode, encode, load};
use crate::stripes::{self, Net};
use crate::tx::Tx;
use crate::{KvRead, StateError, bucket, ids, keys, orphan};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Condition, Extent, Inline, MetaError, Name, ObjectInfo, Owner, Reply, Shape};
use holdfast_objstore_proto::{BucketId, InodeId, StripeMeta, UploadId};
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) struct NewPart<'a> {
    pub number: u16,
    pub size: u64,
    pub etag: &'a str,
    pub checksums: &'a [(String, String)],
    pub extents: &'a [Extent],
    pub stripes: &'a [Arc<StripeMeta>],
    pub inline: &'a [Inline],
}

pub(crate) struct Join<'a> {
    pub ino: InodeId,
    pub parts: &'a [(u16, String)],
    pub info: &'a ObjectInfo,
    pub owner: Owner,
    pub part_bytes_min: u64,
    pub condition: &'a Condition,
}

pub(crate) fn create(tx: &mut Tx, ctx: Ctx, bucket: BucketId, key: &Name, info: &ObjectInfo) -> Done<Reply> {
    let record = bucket::by_id(tx, bucket)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(MetaError::NameTooLong.into());
    }
    // A NUL ends the key in the order of uploads.
    if key.is_empty() || key.contains(&0) {
        return invalid("the key of an upload has at least one byte and no NUL");
    }
    if record.shape == Shape::Tree {
        if key.ends_with(b"/") {
            return Err(MetaError::KeyConflict("a key that ends in '/' makes a directory, which has no data".into()).into());
        }
        object::locate(tx, &record, key)?;
    }
    object::check_info(info)?;
    let mut c = ids::counters(tx)?;
    let id = UploadId(c.upload);
    c.upload += 1;
    ids::put_counters(tx, &c);
    tx.put(keys::upload(id), encode(&UploadRecord { bucket, key: key.clone(), created: ctx.now, info: info.clone() }));
    tx.put(keys::upload_key(bucket, key, id), Bytes::new());
    Ok(Reply::Upload(id))
}

/// An upload that is still open.
pub(crate) fn open(kv: &(impl KvRead + ?Sized), bucket: BucketId, id: UploadId) -> Done<UploadRecord> {
    let record = load::<UploadRecord>(kv, &keys::upload(id))?.filter(|u| u.bucket == bucket);
    Ok(record.ok_or(MetaError::NoSuchUpload)?)
}

pub(crate) fn put_part(tx: &mut Tx, ctx: Ctx, bucket: BucketId, id: UploadId, p: NewPart) -> Done<Reply> {
    open(tx, bucket, id)?;
    if !(1..=PARTS_MAX).contains(&p.number) {
        return invalid(format!("parts are numbered 1 to {PARTS_MAX}"));
    }
    let words = p.etag.len() + p.checksums.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>();
    if words > INFO_BYTES_MAX {
        return invalid(format!("a part keeps at most {INFO_BYTES_MAX} bytes of checksums"));
    }
    let claimed = stripes::claim(tx, ctx, bucket, p.stripes, p.inline)?;
    stripes::check_extents(p.extents, p.size, &claimed)?;
    if p.extents.windows(2).any(|w| w[0].offset + w[0].len as u64 > w[1].offset) {
        return invalid("a part's extents are in order and do not overlap");
    }
    let mut net = Net::default();
    let key = keys::part(id, p.number);
    if let Some(old) = load::<Part>(tx, &key)? {
        old.extents.iter().for_each(|e| net.sub(e.stripe, e.len));
    }
    p.extents.iter().for_each(|e| net.add(e.stripe, e.len));
    stripes::settle(tx, ctx, &net, claimed)?;
    let part = Part { size: p.size, etag: p.etag.into(), modified: ctx.now, checksums: p.checksums.to_vec(), extents: p.extents.to_vec() };
    tx.put(key, encode(&part));
    Ok(Reply::Part { modified: ctx.now })
}

pub(crate) fn complete(tx: &mut Tx, ctx: Ctx, bucket: BucketId, id: UploadId, join: Join) -> Done<Reply> {
    let record = bucket::by_id(tx, bucket)?;
    if let Some(done) = load::<Completed>(tx, &keys::completed(id))?
        && done.bucket == bucket
    {
        return Ok(done.reply);
    }
    let upload = open(tx, bucket, id)?;
    if join.parts.is_empty() {
        return invalid("an upload is completed with at least one part");
    }
    if let Some(w) = join.parts.windows(2).find(|w| w[0].0 >= w[1].0) {
        return Err(MetaError::InvalidPart(w[1].0).into());
    }
    object::check_info(join.info)?;
    let spot = object::locate(tx, &record, &upload.key)?;

    let (mut net, mut extents, mut sizes, mut size) = (Net::default(), Vec::new(), Vec::new(), 0u64);
    for (i, (number, etag)) in join.parts.iter().enumerate() {
        let key = keys::part(id, *number);
        let part = load::<Part>(tx, &key)?.filter(|p| p.etag == *etag);
        let part = part.ok_or(MetaError::InvalidPart(*number))?;
        if part.size < join.part_bytes_min && i + 1 < join.parts.len() {
            return Err(MetaError::PartTooSmall(*number).into());
        }
        // The part's share goes, the object's comes: the same bytes.
        part.extents.iter().for_each(|e| net.sub(e.stripe, e.len));
        extents.extend(part.extents.iter().map(|e| Extent { offset: size + e.offset, ..*e }));
        size = size.checked_add(part.size).ok_or(MetaError::FileTooLarge)?;
        sizes.push(part.size);
        tx.delete(key);
    }
    let mut info = join.info.clone();
    if info.headers.is_empty() {
        info.headers = upload.info.headers.clone();
    }
    if info.parts.is_empty() {
        info.parts = sizes;
    }
    let new = NewObject { ino: join.ino, size, extents, info: &info, owner: join.owner, claimed: Default::default(), net };
    let reply = object::place(tx, ctx, bucket, spot, join.condition, new)?;
    close(tx, bucket, id, &upload.key)?;
    remember(tx, id, Completed { bucket, reply: reply.clone() })?;
    Ok(reply)
}

pub(crate) fn abort(tx: &mut Tx, bucket: BucketId, id: UploadId) -> Done<Reply> {
    let upload = open(tx, bucket, id)?;
    close(tx, bucket, id, &upload.key)?;
    Ok(Reply::Done)
}

/// Takes the upload out of every list; parts that are left go to the reaper.
fn close(tx: &mut Tx, bucket: BucketId, id: UploadId, key: &[u8]) -> Done<()> {
    tx.delete(keys::upload(id));
    tx.delete(keys::upload_key(bucket, key, id));
    if !first_parts(tx, id, 1)?.is_empty() {
        orphan::add_hidden(tx, &Orphan::Parts { of: id })?;
    }
    Ok(())
}

fn remember(tx: &mut Tx, id: UploadId, completed: Completed) -> Done<()> {
    let mut c = ids::counters(tx)?;
    tx.put(keys::completed(id), encode(&completed));
    tx.put(keys::completed_order(c.completed), encode(&id));
    if let Some(oldest) = c.completed.checked_sub(COMPLETED_UPLOADS_MAX) {
        let key = keys::completed_order(oldest);
        let old: UploadId = load(tx, &key)?.ok_or_else(|| broken("the list of completed uploads has a hole"))?;
        tx.delete(key);
        tx.delete(keys::completed(old));
    }
    c.completed += 1;
    ids::put_counters(tx, &c);
    Ok(())
}

fn first_parts(tx: &Tx, id: UploadId, parts_max: usize) -> Result<Vec<(Vec<u8>, Bytes)>, StateError> {
    let from = keys::parts(id);
    let mut parts = Vec::new();
    tx.scan(&from, &keys::end_of(&from), &mut |k, v| {
        parts.push((k.to_vec(), Bytes::copy_from_slice(v)));
        if parts.len() == parts_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(parts)
}

/// Frees parts of an upload that is over, until `extents_max` extents went (one part at least). True when none is left.
pub(crate) fn reap_parts(tx: &mut Tx, ctx: Ctx, id: UploadId, extents_max: u32) -> Done<bool> {
    let mut net = Net::default();
    let mut left = extents_max as usize;
    // One more than there can be extents would be enough; the parts are small when they are many.
    let parts = first_parts(tx, id, 64)?;
    let mut done = parts.len() < 64;
    for (i, (key, value)) in parts.iter().enumerate() {
        let part: Part = decode(value)?;
        part.extents.iter().for_each(|e| net.sub(e.stripe, e.len));
        tx.delete(key.clone());
        left = left.saturating_sub(part.extents.len().max(1));
        if left == 0 && i + 1 < parts.len() {
            done = false;
            break;
        }
    }
    stripes::settle(tx, ctx, &net, Default::default())?;
    Ok(done)
}
