//! Doors to devices that break their promises.

use super::Bug;
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, DiskSpace, DomainId, File, Open, Result};
use holdfast_objstore_base::units::BLOCK;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The metadata log's flushes are answered and not done; or the state's file answers that it is stable, and stays in memory.
pub struct Unflushed {
    pub inner: Arc<dyn Disk>,
    pub bug: Bug,
}

impl Disk for Unflushed {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        let file = self.inner.open(path, how)?;
        Ok(match self.bug {
            Bug::AckBeforeFlush if path.parent().is_some_and(|p| p.ends_with("wal")) => Arc::new(UnflushedFile(file)),
            Bug::PurgeBeforeCheckpoint if path.ends_with("state.redb") => Arc::new(MemoryFile::over(file)?),
            _ => file,
        })
    }
    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        self.inner.read_small(path)
    }
    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        self.inner.write_small(path, data, mode)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }
    fn space(&self, path: &Path) -> Result<DiskSpace> {
        self.inner.space(path)
    }
}

struct UnflushedFile(Arc<dyn File>);

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

/// What is written stays in memory, over what the file held when it was opened.
struct MemoryFile {
    file: Arc<dyn File>,
    len: Mutex<u64>,
    blocks: Mutex<BTreeMap<u64, Bytes>>,
}

impl MemoryFile {
    fn over(file: Arc<dyn File>) -> Result<Self> {
        Ok(Self { len: Mutex::new(file.len()?), file, blocks: Mutex::default() })
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> Result<u64> {
        Ok(*self.len.lock())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        *self.len.lock() = len;
        self.blocks.lock().retain(|at, _| *at < len);
        Ok(())
    }
    fn read_at(&self, offset: u64, mut buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        Box::pin(async move {
            for (i, out) in buf.chunks_mut(BLOCK).enumerate() {
                let at = offset + (i * BLOCK) as u64;
                let written = self.blocks.lock().get(&at).cloned();
                match written {
                    Some(bytes) => out.copy_from_slice(&bytes),
                    None if at < self.file.len()? => out.copy_from_slice(&self.file.read_at(at, AlignedBuf::zeroed(BLOCK)).await?),
                    None => out.fill(0),
                }
            }
            Ok(buf)
        })
    }
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let mut at = offset;
        for block in parts.iter().flat_map(|p| p.chunks(BLOCK)) {
            self.blocks.lock().insert(at, Bytes::copy_from_slice(block));
            at += block.len() as u64;
        }
        let mut len = self.len.lock();
        *len = (*len).max(at);
        Box::pin(std::future::ready(Ok(())))
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn domain(&self) -> DomainId {
        self.file.domain()
    }
}
