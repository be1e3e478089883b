//! What a mount reads: names, attributes, maps.

use crate::fail::{Done, broken, invalid, split};
use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::record::{Body, CookieRecord, Inode, decode};
use crate::{KvRead, StateError, chunk, dir, keys, stripes};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Attr, CHUNK_BYTES, DirEntry, Entry, MappedExtent, MetaError, MetaResult};
use holdfast_objstore_proto::{InodeId, StripeId};
use std::ops::{ControlFlow, Range};

/// One name in a directory; `None`: not there. `NotDir`, `Stale`, `NameTooLong`.
pub fn lookup(kv: &dyn KvRead, dir: InodeId, name: &[u8]) -> Result<MetaResult<Option<Entry>>, StateError> {
    split(lookup_in(kv, dir, name))
}

fn lookup_in(kv: &dyn KvRead, dir: InodeId, name: &[u8]) -> Done<Option<Entry>> {
    let record = dir::open(kv, dir)?;
    let flat = matches!(record.body, Body::Dir { flat: true, .. });
    if name.len() > if flat { KEY_BYTES_MAX } else { NAME_BYTES_MAX } {
        return Err(MetaError::NameTooLong.into());
    }
    match dir::find(kv, dir, name)? {
        Some(d) => Ok(Some(Entry { ino: d.ino, attr: dir::inode(kv, d.ino)?.attr(d.ino) })),
        None => Ok(None),
    }
}

/// `Stale` when the inode is gone.
pub fn getattr(kv: &dyn KvRead, ino: InodeId) -> Result<MetaResult<Attr>, StateError> {
    split(dir::inode(kv, ino).map(|inode| inode.attr(ino)))
}

/// The target of a symlink; `Invalid` for anything else.
pub fn readlink(kv: &dyn KvRead, ino: InodeId) -> Result<MetaResult<Bytes>, StateError> {
    split(dir::inode(kv, ino).and_then(|inode| match inode.body {
        Body::Symlink { target } => Ok(target),
        _ => invalid("not a symbolic link"),
    }))
}

/// The parent of a directory (itself for a root).
pub fn parent(kv: &dyn KvRead, dir: InodeId) -> Result<MetaResult<InodeId>, StateError> {
    split(dir::open(kv, dir).and_then(|record| Ok(dir::parent_of(&record)?)))
}

/// Entries with cookies above `after`, in cookie order, at most `entries_max`; empty at the end.
pub fn readdir(kv: &dyn KvRead, dir: InodeId, after: u64, entries_max: usize) -> Result<MetaResult<Vec<(DirEntry, Attr)>>, StateError> {
    split(readdir_in(kv, dir, after, entries_max))
}

fn readdir_in(kv: &dyn KvRead, dir: InodeId, after: u64, entries_max: usize) -> Done<Vec<(DirEntry, Attr)>> {
    dir::open(kv, dir)?;
    let Some(from) = after.checked_add(1).filter(|_| entries_max > 0) else { return Ok(Vec::new()) };
    let mut found: Vec<(u64, Bytes)> = Vec::new();
    kv.scan(&keys::cookie(dir, from), &keys::end_of(&keys::cookies(dir)), &mut |k, v| {
        found.push((keys::tail_u64(k).unwrap_or_default(), Bytes::copy_from_slice(v)));
        if found.len() == entries_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let mut entries = Vec::with_capacity(found.len());
    for (cookie, value) in found {
        let c: CookieRecord = decode(&value)?;
        let attr = dir::inode(kv, c.ino)?.attr(c.ino);
        entries.push((DirEntry { name: c.name, cookie, kind: c.kind, ino: c.ino }, attr));
    }
    Ok(entries)
}

/// What became of the bytes of a staged stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StagedBytes {
    Kept(Bytes),
    /// Nobody has them any more, and that was accepted.
    Lost,
}

/// Staged bytes, from whoever keeps them.
pub type Staged<'a> = &'a dyn Fn(StripeId) -> Option<StagedBytes>;

/// The map of the chunks in `chunks`, in file order. No extent crosses a chunk's border. Empty for what is no file.
pub fn extents(kv: &dyn KvRead, ino: InodeId, chunks: Range<u32>, staged: Staged) -> Result<MetaResult<Vec<MappedExtent>>, StateError> {
    split(extents_in(kv, ino, chunks, staged))
}

fn extents_in(kv: &dyn KvRead, ino: InodeId, chunks: Range<u32>, staged: Staged) -> Done<Vec<MappedExtent>> {
    let inode: Inode = dir::inode(kv, ino)?;
    let mut found = Vec::new();
    chunk::read(kv, ino, &inode, chunks, &mut |n, pieces| {
        found.extend(pieces.into_iter().map(|p| (n, p)));
        Ok(())
    })?;
    let mut mapped: Vec<MappedExtent> = Vec::with_capacity(found.len());
    let mut known: Option<(StripeId, stripes::Found)> = None;
    for (n, p) in found {
        let at = match &known {
            Some((id, at)) if *id == p.stripe => at,
            _ => &known.insert((p.stripe, stripes::find(kv, p.stripe)?)).1,
        };
        let inline = match at.staged {
            true => match staged(p.stripe).ok_or_else(|| broken(format!("the bytes of {} are staged and not there", p.stripe)))? {
                StagedBytes::Kept(bytes) => Some(bytes),
                // A stripe without shards and without bytes: whoever reads it fails, and others of the map are read.
                StagedBytes::Lost => None,
            },
            false => None,
        };
        mapped.push(MappedExtent {
            offset: n as u64 * CHUNK_BYTES + p.start as u64,
            len: p.len,
            stripe: at.meta.clone(),
            // A member lies within its pack, whose length is 32 bits.
            stripe_offset: at.shift.saturating_add(p.at),
            inline,
        });
    }
    Ok(mapped)
}
