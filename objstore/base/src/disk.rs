//! The door to files: what the logs, the state and the WAL read and write through.
//!
//! Promises. `write_at` returns when the device has the bytes, not when they are stable. `flush` returns when every
//! write to *any* file of the same flush domain that had completed before `flush` was called is stable; one flush
//! serves all who wait, without a timer. A failed flush poisons its domain for good: every later write and flush of it
//! fails with [`DiskError::Poisoned`]. A write that fails leaves the range undefined. Futures may be dropped at any time: the
//! operation goes on and its buffers live until it ends. Nothing here is retried.

use crate::{BoxFuture, buf::AlignedBuf};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone, thiserror::Error)]
pub enum DiskError {
    /// The call failed; `errno` says how.
    #[error("{call} {path}: {}", std::io::Error::from_raw_os_error(*errno))]
    Io { call: &'static str, path: PathBuf, errno: i32 },
    /// Fewer bytes than asked for.
    #[error("{path}: short read at offset {offset}: {got} of {want} bytes")]
    Short { path: PathBuf, offset: u64, got: usize, want: usize },
    /// An earlier flush of this flush domain failed; what was written since the last good one may be lost.
    #[error("{path}: out of service since a flush failed: {why}")]
    Poisoned { path: PathBuf, why: String },
}

impl DiskError {
    pub fn errno(&self) -> i32 {
        match self {
            DiskError::Io { errno, .. } => *errno,
            _ => libc::EIO,
        }
    }
    pub fn is_no_space(&self) -> bool {
        matches!(self.errno(), libc::ENOSPC | libc::EDQUOT)
    }
    pub fn is_not_found(&self) -> bool {
        self.errno() == libc::ENOENT
    }
}

pub type Result<T> = std::result::Result<T, DiskError>;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Existing,
    /// It is made when missing, empty.
    Create,
    /// It must not exist.
    CreateNew,
}

/// Space of the filesystem or device behind a path, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskSpace {
    pub total: u64,
    pub free: u64,
}

/// A folder tree (or a device) that can be opened. Calls without a future may block: they belong to start-up and to
/// background work, never to a client's request.
pub trait Disk: Send + Sync + 'static {
    /// Opens for direct I/O: every offset, length and address must be a multiple of [`crate::units::BLOCK`].
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>>;
    /// The whole of a small file, or `None` when it does not exist.
    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>>;
    /// Replaces a small file atomically and durably: temporary file, write, fsync, rename, fsync of the folder.
    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()>;
    /// Makes the missing folders, durably.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Names in a folder, in byte order; an absent folder is an error.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    fn exists(&self, path: &Path) -> bool;
    fn remove(&self, path: &Path) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes creations, removals and renames in a folder durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    fn space(&self, path: &Path) -> Result<DiskSpace>;
}

/// An open file or device.
#[expect(clippy::len_without_is_empty, reason = "a file is not a container; nobody asks whether it is empty")]
pub trait File: Send + Sync + 'static {
    fn path(&self) -> &Path;
    fn len(&self) -> Result<u64>;
    /// Changes the length; growth reads as zeroes but is *not* written (use [`write_zeroes`] before putting it into service).
    fn set_len(&self, len: u64) -> Result<()>;
    /// Fills all of `buf` (its `len` must be whole blocks) from `offset`, and hands it back.
    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>>;
    /// Writes the parts one after the other from `offset`. Each part must be aligned as [`crate::buf::is_aligned`] says.
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>>;
    /// See the module's promises.
    fn flush(&self) -> BoxFuture<'_, Result<()>>;
    /// Also makes the file's length and block map stable (fsync, not fdatasync): after `set_len` and zero-fill.
    fn flush_all(&self) -> BoxFuture<'_, Result<()>>;
    /// Identifies the flush domain: two files of one domain share one flush.
    fn domain(&self) -> DomainId;
}

/// A flush domain, numbered within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(pub u64);

/// Writes zeroes over `[offset, offset + len)`, in runs of 1 MiB, so that later writes there touch written extents only.
pub async fn write_zeroes(file: &dyn File, offset: u64, len: u64) -> Result<()> {
    let run = AlignedBuf::zeroed(len.min(1 << 20) as usize).freeze();
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let n = (end - at).min(run.len() as u64);
        file.write_at(at, vec![run.slice(..n as usize)]).await?;
        at += n;
    }
    Ok(())
}
