//! An open file of the machine: which way each call goes, continuing short ones, flushing through its domain.
//!
//! What always holds: a call goes in place when this thread has at most one request in hand and nothing in its ring, or has no
//! ring; else through the ring, as do long calls that no request waits for. A flush runs detached: dropping the future that led it changes nothing for the others.
//! What it leaves out: opening ([`super::disk`]).

use super::disk::skip_flush;
use super::ring::{self, Ring};
use super::sys;
use crate::BoxFuture;
use crate::buf::{AlignedBuf, is_aligned};
use crate::disk::{DiskError, DomainId, File, Result};
use crate::exec;
use crate::flush::{FlushGroup, Running, Turn};
use crate::metrics::Metrics;
use crate::units::BLOCK;
use bytes::Bytes;
use io_uring::{opcode, squeue, types};
use std::future::poll_fn;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What lives as long as any call on the file.
pub(super) struct Handle {
    pub file: std::fs::File,
    pub path: PathBuf,
    pub group: Arc<FlushGroup>,
    pub metrics: Metrics,
    /// Length as last seen: a write beyond it changes what only the file's own flush makes stable.
    pub len: AtomicU64,
    /// Counts changes of the length or the block map ...
    pub grown: AtomicU64,
    /// ... and how many of them this file's own fsync has made stable.
    pub grown_stable: AtomicU64,
    /// See `RealDisk::never_in_place`.
    pub ring_only: Arc<AtomicBool>,
}

/// An open file.
pub(super) struct RealFile(pub Arc<Handle>);

/// Vectors into memory that travels beside them in the same [`Cargo`].
pub(super) struct Vectors(Vec<libc::iovec>);
// SAFETY: the pointers are only handed to the kernel, and what they point to is owned by the same cargo.
unsafe impl Send for Vectors {}

/// What a call in the ring owns.
pub(super) enum Cargo {
    Read(#[expect(dead_code, reason = "keeps the descriptor open")] Arc<Handle>, AlignedBuf),
    Write(#[expect(dead_code, reason = "keeps the descriptor open")] Arc<Handle>, Vec<Bytes>, Vectors),
    Sync(Arc<Handle>),
    Flush(Arc<Handle>, Running),
}

impl Cargo {
    /// The end of a call whose future is gone. Hands back the next call to make, if there is one.
    pub fn ended(self, result: i32) -> Option<(squeue::Entry, Cargo)> {
        match self {
            Cargo::Read(..) | Cargo::Write(..) => None,
            Cargo::Sync(handle) => {
                handle.synced(result);
                None
            }
            // Never made: dropping the duty lets a waiter lead.
            Cargo::Flush(_, running) if result == -libc::ECANCELED => {
                drop(running);
                None
            }
            Cargo::Flush(handle, running) => {
                let next = running.finish_and_go_on(handle.outcome(result))?;
                handle.metrics.flushes.inc();
                handle.metrics.ring_ops.inc();
                Some((handle.fdatasync_entry(), Cargo::Flush(handle, next)))
            }
        }
    }

    /// Gives up the memory for good, because the kernel may still use it.
    pub fn leak(self) {
        match self {
            Cargo::Flush(handle, running) => {
                drop(running);
                std::mem::forget(handle);
            }
            other => std::mem::forget(other),
        }
    }
}

impl Handle {
    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn fdatasync_entry(&self) -> squeue::Entry {
        opcode::Fsync::new(types::Fd(self.fd())).flags(types::FsyncFlags::DATASYNC).build()
    }

    fn outcome(&self, result: i32) -> std::result::Result<(), String> {
        if result >= 0 {
            return Ok(());
        }
        self.metrics.errors.inc();
        let e = std::io::Error::from_raw_os_error(-result);
        tracing::error!(path = %self.path.display(), error = %e, "flush failed; its flush domain is out of service");
        Err(format!("flush of {}: {e}", self.path.display()))
    }

    /// The end of this file's own fsync: a failure is final for the domain.
    fn synced(&self, result: i32) {
        if result != -libc::ECANCELED
            && let Err(why) = self.outcome(result)
        {
            self.group.poison(why);
        }
    }

    fn error(&self, call: &'static str, result: i32) -> DiskError {
        self.metrics.errors.inc();
        DiskError::Io { call, path: self.path.clone(), errno: -result }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.group.poisoned().map_or(Ok(()), |why| Err(DiskError::Poisoned { path: self.path.clone(), why }))
    }
}

/// Bytes from which a call that no request waits for must not hold up its thread.
const BULK_BYTES: usize = 64 << 10;

/// The ring to use now, or `None` for a call in place. `bulky`: it may take long; with no request in hand it is background
/// work (zero-fill, a checkpoint), and the next request should find the thread free.
fn route(h: &Handle, bulky: bool) -> Option<Arc<Ring>> {
    let hands = exec::in_hand();
    let ring_only = h.ring_only.load(Ordering::Relaxed);
    let ring = ring::current().filter(|r| ring_only || hands > 1 || (hands == 0 && bulky) || !r.idle());
    match ring {
        Some(_) => h.metrics.ring_ops.inc(),
        None => h.metrics.blocking_ops.inc(),
    };
    ring
}

fn lost() -> ! {
    unreachable!("a ring keeps cargo only when it answers EIO")
}

impl RealFile {
    async fn read(&self, offset: u64, mut buf: AlignedBuf) -> Result<AlignedBuf> {
        let h = &self.0;
        let want = buf.len();
        if !want.is_multiple_of(BLOCK) || !offset.is_multiple_of(BLOCK as u64) {
            return Err(h.error("read", -libc::EINVAL));
        }
        h.metrics.reads.inc();
        h.metrics.read_bytes.inc_by(want as u64);
        let (mut got, mut in_place) = (0, false);
        while got < want {
            let at = offset + got as u64;
            let result = match route(h, want >= BULK_BYTES).filter(|_| !in_place) {
                None => sys::pread(h.fd(), &mut buf[got..], at),
                Some(ring) => {
                    let rest = &mut buf[got..];
                    let len = rest.len().min(sys::CALL_BYTES_MAX) as u32;
                    let entry = opcode::Read::new(types::Fd(h.fd()), rest.as_mut_ptr(), len).offset(at).build();
                    let (result, cargo) = match ring.call(entry, Cargo::Read(h.clone(), buf)) {
                        Ok(call) => call.await,
                        Err(cargo) => (-libc::ECANCELED, Some(cargo)),
                    };
                    let Some(cargo) = cargo else { return Err(h.error("read", result)) };
                    let Cargo::Read(_, back) = cargo else { lost() };
                    buf = back;
                    result
                }
            };
            match result {
                0 => return Err(DiskError::Short { path: h.path.clone(), offset, got, want }),
                n if n > 0 => {
                    got += n as usize;
                    // Direct I/O stops within a block only at the end of the file.
                    if got < want && !got.is_multiple_of(BLOCK) {
                        return Err(DiskError::Short { path: h.path.clone(), offset, got, want });
                    }
                }
                e if e == -libc::EINTR => {}
                e if (e == -libc::EAGAIN || e == -libc::ECANCELED) && !in_place => in_place = true,
                e => return Err(h.error("read", e)),
            }
        }
        Ok(buf)
    }

    async fn write(&self, offset: u64, mut parts: Vec<Bytes>) -> Result<()> {
        let h = &self.0;
        h.check()?;
        let want: usize = parts.iter().map(Bytes::len).sum();
        if !offset.is_multiple_of(BLOCK as u64) || !parts.iter().all(|p| p.is_empty() || is_aligned(p)) {
            return Err(h.error("write", -libc::EINVAL));
        }
        h.metrics.writes.inc();
        h.metrics.write_bytes.inc_by(want as u64);
        let end = offset + want as u64;
        if end > h.len.load(Ordering::Relaxed) {
            h.grown.fetch_add(1, Ordering::AcqRel);
            h.len.fetch_max(end, Ordering::Relaxed);
        }
        let mut iov = Vectors(Vec::with_capacity(parts.len().min(sys::PARTS_MAX)));
        let (mut done, mut in_place) = (0, false);
        while done < want {
            let at = offset + done as u64;
            sys::vectors(&parts, done, &mut iov.0);
            let result = match route(h, want >= BULK_BYTES).filter(|_| !in_place) {
                None => sys::pwritev(h.fd(), &iov.0, at),
                Some(ring) => {
                    let fd = types::Fd(h.fd());
                    // One part needs no vectors: the kernel then has nothing to copy in.
                    let entry = match iov.0.as_slice() {
                        [one] => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(at).build(),
                        many => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32).offset(at).build(),
                    };
                    let (result, cargo) = match ring.call(entry, Cargo::Write(h.clone(), parts, iov)) {
                        Ok(call) => call.await,
                        Err(cargo) => (-libc::ECANCELED, Some(cargo)),
                    };
                    let Some(cargo) = cargo else { return Err(h.error("write", result)) };
                    let Cargo::Write(_, p, v) = cargo else { lost() };
                    (parts, iov) = (p, v);
                    result
                }
            };
            match result {
                0 => return Err(h.error("write", -libc::EIO)),
                n if n > 0 => done += n as usize,
                e if e == -libc::EINTR => {}
                e if (e == -libc::EAGAIN || e == -libc::ECANCELED) && !in_place => in_place = true,
                e => return Err(h.error("write", e)),
            }
        }
        h.group.wrote();
        Ok(())
    }

    async fn flush_domain(&self) -> Result<()> {
        let h = &self.0;
        h.check()?;
        let mut ticket = h.group.ticket_for_written();
        loop {
            let running = match poll_fn(|cx| ticket.poll_turn(cx)).await {
                Turn::Served(Ok(())) => return Ok(()),
                Turn::Served(Err(why)) => return Err(DiskError::Poisoned { path: h.path.clone(), why }),
                Turn::Lead(running) => running,
            };
            if skip_flush() {
                running.finish(Ok(()));
                continue;
            }
            h.metrics.flushes.inc();
            match route(h, false) {
                None => running.finish(h.outcome(sys::fdatasync(h.fd()))),
                Some(ring) => {
                    // A ring that died just now drops the duty, and this loop takes it up again in place.
                    drop(ring.call_detached(h.fdatasync_entry(), Cargo::Flush(h.clone(), running)));
                }
            }
        }
    }

    async fn sync(&self) -> Result<()> {
        let h = &self.0;
        h.check()?;
        let grown = h.grown.load(Ordering::Acquire);
        if skip_flush() {
            return Ok(());
        }
        h.metrics.flushes.inc();
        let mut result = -libc::ECANCELED;
        if let Some(ring) = route(h, true) {
            let entry = opcode::Fsync::new(types::Fd(h.fd())).build();
            if let Ok(call) = ring.call(entry, Cargo::Sync(h.clone())) {
                result = call.await.0;
            }
        }
        if matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN) {
            result = sys::fsync(h.fd());
        }
        h.synced(result);
        if result < 0 {
            return Err(DiskError::Io { call: "fsync", path: h.path.clone(), errno: -result });
        }
        h.grown_stable.fetch_max(grown, Ordering::AcqRel);
        Ok(())
    }
}

impl File for RealFile {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn len(&self) -> Result<u64> {
        let meta = self.0.file.metadata().map_err(|e| super::disk::io("stat", &self.0.path, e))?;
        if meta.is_file() {
            return Ok(meta.len());
        }
        // A block device: its size is where seeking to the end arrives.
        use std::io::{Seek, SeekFrom};
        (&self.0.file).seek(SeekFrom::End(0)).map_err(|e| super::disk::io("seek", &self.0.path, e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.0.check()?;
        self.0.grown.fetch_add(1, Ordering::AcqRel);
        self.0.file.set_len(len).map_err(|e| super::disk::io("truncate", &self.0.path, e))?;
        self.0.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        Box::pin(self.read(offset, buf))
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(offset, parts))
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // A shared flush may go through another file's descriptor, which leaves this one's new length behind.
            if self.0.grown.load(Ordering::Acquire) > self.0.grown_stable.load(Ordering::Acquire) {
                return self.sync().await;
            }
            self.flush_domain().await
        })
    }

    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.sync())
    }

    fn domain(&self) -> DomainId {
        self.0.group.id()
    }
}
