//! ETags, conditions on them, and the record S3 keeps with an object.

use crate::fail::{Done, invalid};
use crate::limits::INFO_BYTES_MAX;
use crate::record::{Inode, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, keys};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Condition, MetaError, ObjectInfo};

/// The object record of an inode, as stored.
pub(crate) fn info(kv: &(impl KvRead + ?Sized), ino: InodeId) -> Result<Option<ObjectInfo>, StateError> {
    load(kv, &keys::info(ino))
}

/// The ETag of an inode: its record's, else `<16 hex of the inode>-<n>`, where n grows with each change of data.
pub(crate) fn etag_of(ino: InodeId, inode: &Inode, info: Option<&ObjectInfo>) -> String {
    match info.and_then(|i| i.etag.clone()) {
        Some(etag) => etag,
        None => format!("{:016x}-{}", ino.0, inode.number + 1),
    }
}

/// The record as readers get it: always with its ETag.
pub(crate) fn with_etag(ino: InodeId, inode: &Inode, info: Option<ObjectInfo>) -> ObjectInfo {
    let etag = Some(etag_of(ino, inode, info.as_ref()));
    ObjectInfo { etag, ..info.unwrap_or_default() }
}

/// Data changed through a mount: of the record only the headers still hold.
pub(crate) fn data_changed(tx: &mut Tx, ino: InodeId) -> Result<(), StateError> {
    if let Some(old) = info(tx, ino)?
        && (old.etag.is_some() || !old.checksums.is_empty() || !old.parts.is_empty())
    {
        tx.put(keys::info(ino), encode(&ObjectInfo { headers: old.headers, ..ObjectInfo::default() }));
    }
    Ok(())
}

pub(crate) fn check_info(info: &ObjectInfo) -> Done<()> {
    let pairs = |v: &[(String, String)]| v.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>();
    let bytes = info.etag.as_ref().map_or(0, String::len) + pairs(&info.headers) + pairs(&info.checksums);
    if bytes > INFO_BYTES_MAX {
        return invalid(format!("an object keeps at most {INFO_BYTES_MAX} bytes of headers"));
    }
    Ok(())
}

/// `etag`: of what the key holds now.
pub(crate) fn check_condition(condition: &Condition, etag: Option<String>) -> Done<()> {
    if condition.absent && etag.is_some() {
        return Err(MetaError::PreconditionFailed.into());
    }
    match (&condition.etag, etag) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(MetaError::NotFound.into()),
        (Some(want), Some(is)) if want == "*" || *want == is => Ok(()),
        _ => Err(MetaError::PreconditionFailed.into()),
    }
}
