//! Doors to devices that break their promises.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, DiskSpace, DomainId, File, Open, Result};
use std::path::Path;
use std::sync::Arc;

/// Flushes of the metadata log are answered and not done.
pub struct Unflushed(pub Arc<dyn Disk>);

struct UnflushedFile(Arc<dyn File>);

impl Disk for Unflushed {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        let file = self.0.open(path, how)?;
        let log = path.parent().is_some_and(|p| p.ends_with("wal"));
        Ok(if log { Arc::new(UnflushedFile(file)) } else { file })
    }
    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        self.0.read_small(path)
    }
    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        self.0.write_small(path, data, mode)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.0.list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.0.sync_dir(path)
    }
    fn space(&self, path: &Path) -> Result<DiskSpace> {
        self.0.space(path)
    }
}

impl File for UnflushedFile {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        self.0.write_at(offset, parts)
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        self.0.flush_all()
    }
    fn domain(&self) -> DomainId {
        self.0.domain()
    }
}
