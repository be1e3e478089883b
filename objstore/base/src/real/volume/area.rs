//! A large file of a volume: runs of units, read and written through the device's one descriptor.
//!
//! What always holds: what a file grows by is zeroed before the file has it, so no byte of a former owner is ever seen; one flush
//! domain for all files of a device. What it leaves out: writes in flight while their file is removed or cut; nobody does that.

use super::Volume;
use super::header::UNIT;
use super::units::Run;
use crate::BoxFuture;
use crate::buf::{AlignedBuf, is_aligned};
use crate::disk::{DiskError, DomainId, File, Result};
use crate::units::BLOCK;
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a file lies. Shared by all who have it open.
#[derive(Default)]
pub struct Shape {
    layout: Mutex<Layout>,
    /// Held while the file grows or shrinks.
    resizing: Mutex<()>,
    /// The volume's count of changes when this file's length or runs last changed.
    pub changed: AtomicU64,
}

#[derive(Default)]
struct Layout {
    len: u64,
    runs: Vec<Run>,
    removed: bool,
}

impl Shape {
    pub fn new(len: u64, runs: Vec<Run>) -> Arc<Shape> {
        Arc::new(Shape { layout: Mutex::new(Layout { len, runs, removed: false }), ..Shape::default() })
    }
    pub fn stored(&self) -> (u64, Vec<Run>) {
        let l = self.layout.lock();
        (l.len, l.runs.clone())
    }
    /// Takes everything from the file; whoever has it open gets `ENOENT` from now on.
    pub fn remove(&self) -> Vec<Run> {
        let mut l = self.layout.lock();
        (l.len, l.removed) = (0, true);
        std::mem::take(&mut l.runs)
    }
}

impl Layout {
    fn units(&self) -> u64 {
        self.runs.iter().map(|r| r.count as u64).sum()
    }
    /// Where the byte at `offset` lies: its unit, the bytes into it, and how many bytes follow in one piece.
    fn find(&self, offset: u64) -> Option<(u32, u64, u64)> {
        let mut before = 0;
        for r in &self.runs {
            let bytes = r.count as u64 * UNIT;
            if offset < before + bytes {
                let within = offset - before;
                return Some((r.first + (within / UNIT) as u32, within % UNIT, bytes - within));
            }
            before += bytes;
        }
        None
    }
    fn add(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last) if last.first + last.count == run.first => last.count += run.count,
            _ => self.runs.push(run),
        }
    }
}

/// An open file of a volume.
pub struct Area {
    pub volume: Arc<Volume>,
    pub shape: Arc<Shape>,
    pub path: PathBuf,
}

impl Area {
    fn error(&self, call: &'static str, errno: i32) -> DiskError {
        DiskError::Io { call, path: self.path.clone(), errno }
    }

    /// The device's offset of a byte of the file, and how many bytes follow in one piece.
    fn at(&self, call: &'static str, offset: u64) -> Result<(u64, usize)> {
        let found = self.shape.layout.lock().find(offset);
        let (unit, within, bytes) = found.ok_or_else(|| self.error(call, libc::EIO))?;
        Ok((self.volume.header.unit_at(unit) + within, bytes as usize))
    }

    fn known_len(&self, call: &'static str) -> Result<u64> {
        let l = self.shape.layout.lock();
        if l.removed { Err(self.error(call, libc::ENOENT)) } else { Ok(l.len) }
    }

    /// Makes the file at least `to` bytes long. Blocks.
    fn grow(&self, to: u64) -> Result<()> {
        let _one = self.shape.resizing.lock();
        let len = self.known_len("write")?;
        if to <= len {
            return Ok(());
        }
        let have = self.shape.layout.lock().units();
        let lacking = u32::try_from(to.div_ceil(UNIT).saturating_sub(have)).map_err(|_| self.error("write", libc::ENOSPC))?;
        let taken = self.volume.take(lacking).ok_or_else(|| self.error("write", libc::ENOSPC))?;
        let mut grown = Layout { len: 0, runs: self.shape.layout.lock().runs.clone(), removed: false };
        taken.iter().for_each(|r| grown.add(*r));
        let mut at = len;
        while at < to {
            let (unit, within, bytes) = grown.find(at).expect("as many units as the length needs");
            let n = bytes.min(to - at);
            if let Err(e) = self.volume.zero(self.volume.header.unit_at(unit) + within, n) {
                self.volume.give_back(taken);
                return Err(super::io("zero", &self.path, e));
            }
            at += n;
        }
        {
            let mut l = self.shape.layout.lock();
            l.runs = grown.runs;
            l.len = to;
        }
        self.shape.changed.store(self.volume.changed(Vec::new(), true), Ordering::Release);
        Ok(())
    }

    fn shrink(&self, to: u64) -> Result<()> {
        let _one = self.shape.resizing.lock();
        let mut freed = Vec::new();
        {
            let mut l = self.shape.layout.lock();
            let mut surplus = l.units() - to.div_ceil(UNIT);
            while surplus > 0 {
                let Some(last) = l.runs.last_mut() else { break };
                let n = surplus.min(last.count as u64) as u32;
                last.count -= n;
                freed.push(Run { first: last.first + last.count, count: n });
                surplus -= n as u64;
                if last.count == 0 {
                    l.runs.pop();
                }
            }
            l.len = to;
        }
        self.shape.changed.store(self.volume.changed(freed, false), Ordering::Release);
        Ok(())
    }

    async fn read(&self, offset: u64, mut buf: AlignedBuf) -> Result<AlignedBuf> {
        let want = buf.len();
        if !want.is_multiple_of(BLOCK) || !offset.is_multiple_of(BLOCK as u64) {
            return Err(self.error("read", libc::EINVAL));
        }
        let len = self.known_len("read")?;
        if offset + want as u64 > len {
            let got = len.saturating_sub(offset) as usize;
            return Err(DiskError::Short { path: self.path.clone(), offset, got, want });
        }
        if want == 0 {
            return Ok(buf);
        }
        let (at, n) = self.at("read", offset)?;
        if n >= want {
            return self.volume.raw.read_at(at, buf).await;
        }
        let mut done = 0;
        while done < want {
            let (at, n) = self.at("read", offset + done as u64)?;
            let n = n.min(want - done);
            let part = self.volume.raw.read_at(at, AlignedBuf::zeroed(n)).await?;
            buf[done..done + n].copy_from_slice(&part);
            done += n;
        }
        Ok(buf)
    }

    async fn write(&self, offset: u64, mut parts: Vec<Bytes>) -> Result<()> {
        let want: usize = parts.iter().map(Bytes::len).sum();
        if !offset.is_multiple_of(BLOCK as u64) || !parts.iter().all(|p| p.is_empty() || is_aligned(p)) {
            return Err(self.error("write", libc::EINVAL));
        }
        let end = offset.checked_add(want as u64).ok_or_else(|| self.error("write", libc::EFBIG))?;
        if end > self.known_len("write")? {
            self.grow(end)?;
        }
        let mut done = 0;
        while done < want {
            let (at, n) = self.at("write", offset + done as u64)?;
            let n = n.min(want - done);
            let rest = if n < want - done { split_off(&mut parts, n) } else { Vec::new() };
            self.volume.raw.write_at(at, parts).await?;
            parts = rest;
            done += n;
        }
        Ok(())
    }
}

/// Leaves `n` bytes in `parts`; what is behind them is answered.
fn split_off(parts: &mut [Bytes], mut n: usize) -> Vec<Bytes> {
    let mut rest = Vec::new();
    for p in parts.iter_mut() {
        rest.push(p.split_off(n.min(p.len())));
        n -= p.len();
    }
    rest
}

impl File for Area {
    fn path(&self) -> &Path {
        &self.path
    }
    fn len(&self) -> Result<u64> {
        self.known_len("stat")
    }
    fn set_len(&self, len: u64) -> Result<()> {
        if !len.is_multiple_of(BLOCK as u64) {
            return Err(self.error("truncate", libc::EINVAL));
        }
        let now = self.known_len("truncate")?;
        if len > now {
            self.grow(len)
        } else if len < now {
            self.shrink(len)
        } else {
            Ok(())
        }
    }
    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        Box::pin(self.read(offset, buf))
    }
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(offset, parts))
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.volume.raw.flush().await?;
            // A length that the directory on the device does not have yet.
            if self.shape.changed.load(Ordering::Acquire) > self.volume.stable() {
                return self.volume.commit();
            }
            Ok(())
        })
    }
    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.volume.raw.flush().await?;
            self.volume.commit()
        })
    }
    fn domain(&self) -> DomainId {
        self.volume.raw.domain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_in_its_run() {
        let mut l = Layout::default();
        for r in [Run { first: 5, count: 2 }, Run { first: 7, count: 1 }, Run { first: 1, count: 1 }] {
            l.add(r);
        }
        assert_eq!((l.runs.len(), l.units()), (2, 4));
        assert_eq!(l.find(0), Some((5, 0, 3 * UNIT)));
        assert_eq!(l.find(2 * UNIT + 9), Some((7, 9, UNIT - 9)));
        assert_eq!(l.find(3 * UNIT), Some((1, 0, UNIT)));
        assert_eq!(l.find(4 * UNIT), None);
    }

    #[test]
    fn parts_are_cut_where_a_piece_ends() {
        let mut parts = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defg"), Bytes::new(), Bytes::from_static(b"h")];
        let rest = split_off(&mut parts, 5);
        assert_eq!((parts.concat(), rest.concat()), (b"abcde".to_vec(), b"fgh".to_vec()));
    }
}
