//! A file of the simulated disk.
//!
//! What always holds: a write is two steps with polls between (the power may go, or the future be dropped, after the
//! first; a dropped write still completes). A flush covers the writes complete when it starts, and ends some polls later;
//! whoever waits for it drives it.

use super::disk::{Shared, fail};
use super::state::{Block, Flight, State, block_of, zero};
use crate::BoxFuture;
use crate::buf::{AlignedBuf, is_aligned};
use crate::disk::{DiskError, DomainId, File, Result};
use crate::flush::{FlushGroup, Ticket, Turn};
use crate::units::BLOCK;
use bytes::Bytes;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) struct SimFile {
    pub shared: Arc<Shared>,
    pub path: PathBuf,
    pub id: u64,
    /// Key of the flush domain.
    pub key: PathBuf,
    pub group: Arc<FlushGroup>,
}

/// The rest of a write that has begun.
struct Rest<'a> {
    file: &'a SimFile,
    number: u64,
    blocks: Vec<(u64, Block)>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        let mut s = self.file.shared.state.lock();
        if s.faults.cut {
            return;
        }
        for (at, block) in self.blocks.drain(..) {
            s.put(self.file.id, at, self.number, block);
        }
        s.in_flight.remove(&self.number);
    }
}

/// Whether the fault counted down by `counter` strikes now.
fn strikes(counter: &mut Option<(u64, i32)>) -> Option<i32> {
    match counter {
        Some((n, errno)) if *n <= 1 => {
            let errno = *errno;
            *counter = None;
            Some(errno)
        }
        Some((n, _)) => {
            *n -= 1;
            None
        }
        None => None,
    }
}

async fn polls(mut n: u64) {
    poll_fn(|cx| {
        if n == 0 {
            return Poll::Ready(());
        }
        n -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl SimFile {
    fn error(&self, call: &'static str, errno: i32) -> DiskError {
        self.shared.metrics.errors.inc();
        fail(call, &self.path, errno)
    }

    fn check(&self) -> Result<()> {
        self.group.poisoned().map_or(Ok(()), |why| Err(DiskError::Poisoned { path: self.path.clone(), why }))
    }

    fn lag(&self, s: &mut State) -> u64 {
        if self.shared.options.overlap { s.rng.below(4) } else { 0 }
    }

    async fn read(&self, offset: u64, mut buf: AlignedBuf) -> Result<AlignedBuf> {
        let want = buf.len();
        if !want.is_multiple_of(BLOCK) || !offset.is_multiple_of(BLOCK as u64) {
            return Err(self.error("read", libc::EINVAL));
        }
        self.shared.metrics.reads.inc();
        self.shared.metrics.read_bytes.inc_by(want as u64);
        let lag = self.lag(&mut self.shared.state.lock());
        polls(lag).await;
        let mut s = self.shared.state.lock();
        if s.faults.cut {
            return Err(self.error("read", libc::EIO));
        }
        if let Some(errno) = strikes(&mut s.faults.read_in) {
            return Err(self.error("read", errno));
        }
        let Some(inode) = s.inodes.get(&self.id) else { return Err(self.error("read", libc::EIO)) };
        let got = inode.len.saturating_sub(offset).min(want as u64) as usize;
        if got < want {
            return Err(DiskError::Short { path: self.path.clone(), offset, got, want });
        }
        let first = offset / BLOCK as u64;
        for (i, out) in buf.chunks_mut(BLOCK).enumerate() {
            match inode.cells.get(&(first + i as u64)) {
                Some(cell) => out.copy_from_slice(&cell.now()[..]),
                None => out.fill(0),
            }
        }
        Ok(buf)
    }

    async fn write(&self, offset: u64, parts: Vec<Bytes>) -> Result<()> {
        self.check()?;
        if !offset.is_multiple_of(BLOCK as u64) || !parts.iter().all(|p| p.is_empty() || is_aligned(p)) {
            return Err(self.error("write", libc::EINVAL));
        }
        let m = &self.shared.metrics;
        m.writes.inc();
        m.write_bytes.inc_by(parts.iter().map(|p| p.len() as u64).sum());
        let first = offset / BLOCK as u64;
        let mut blocks: Vec<(u64, Block)> = Vec::new();
        for block in parts.iter().flat_map(|p| p.chunks(BLOCK)) {
            blocks.push((first + blocks.len() as u64, block_of(block)));
        }
        let (lag, rest) = {
            let mut s = self.shared.state.lock();
            s.step().map_err(|e| self.error("write", e))?;
            if let Some(errno) = strikes(&mut s.faults.write_in) {
                return Err(self.error("write", errno));
            }
            if let Some(capacity) = s.faults.capacity {
                let cells = s.inodes.get(&self.id).map(|i| &i.cells);
                let fresh = blocks.iter().filter(|(at, _)| !cells.is_some_and(|c| c.contains_key(at))).count() as u64;
                if fresh > 0 && (s.allocated + fresh) * BLOCK as u64 > capacity {
                    return Err(self.error("write", libc::ENOSPC));
                }
            }
            let number = s.next_write;
            s.next_write += 1;
            s.in_flight.insert(number);
            // Some of the blocks, not always the first ones, arrive ahead of the others.
            let ahead = if self.shared.options.overlap { s.rng.below(blocks.len() as u64 + 1) as usize } else { 0 };
            if s.rng.coin() {
                blocks.reverse();
            }
            let later = blocks.split_off(ahead);
            for (at, block) in blocks {
                s.put(self.id, at, number, block);
            }
            (self.lag(&mut s), Rest { file: self, number, blocks: later })
        };
        polls(lag).await;
        let cut = self.shared.state.lock().step();
        drop(rest);
        cut.map_err(|e| self.error("write", e))
    }

    /// `own`: also the length and the block map.
    async fn wait_for_flush(&self, own: bool) -> Result<()> {
        self.check()?;
        let mut ticket = {
            let mut s = self.shared.state.lock();
            if own || s.inodes.get(&self.id).is_some_and(|i| i.grown != i.stable_grown) {
                s.domains.get_mut(&self.key).expect("made at open").asked.insert(self.id);
            }
            self.group.ticket()
        };
        poll_fn(|cx| self.poll_flush(&mut ticket, cx)).await
    }

    fn poll_flush(&self, ticket: &mut Ticket, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            match ticket.poll_turn(cx) {
                Poll::Ready(Turn::Served(Ok(()))) => return Poll::Ready(Ok(())),
                Poll::Ready(Turn::Served(Err(why))) => {
                    return Poll::Ready(Err(DiskError::Poisoned { path: self.path.clone(), why }));
                }
                Poll::Ready(Turn::Lead(running)) => {
                    let mut s = self.shared.state.lock();
                    let countdown = 1 + self.lag(&mut s) as u32;
                    let blocks = s.cover(&self.key, self.shared.options.domain_per_dir);
                    let asked = std::mem::take(&mut s.domains.get_mut(&self.key).expect("made at open").asked);
                    let own = asked.into_iter().filter_map(|id| s.inodes.get(&id).map(|i| (id, (i.len, i.grown)))).collect();
                    let domain = s.domains.get_mut(&self.key).expect("made at open");
                    domain.flight = Some(Flight { running, countdown, blocks, own });
                    domain.flushes += 1;
                    self.shared.metrics.flushes.inc();
                }
                Poll::Pending => {
                    let Some(ended) = self.drive(cx) else { return Poll::Pending };
                    ended();
                }
            }
        }
    }

    /// Moves the flight one poll on; hands back its end, to be run without the lock.
    fn drive(&self, cx: &mut Context<'_>) -> Option<impl FnOnce() + use<>> {
        let mut s = self.shared.state.lock();
        let hold = s.faults.hold;
        let domain = s.domains.get_mut(&self.key).expect("made at open");
        if hold {
            domain.held.push(cx.waker().clone());
            return None;
        }
        cx.waker().wake_by_ref();
        let flight = domain.flight.as_mut()?;
        if flight.countdown > 1 {
            flight.countdown -= 1;
            return None;
        }
        let flight = domain.flight.take()?;
        let outcome = match s.step().err().or_else(|| strikes(&mut s.faults.flush_in)) {
            Some(errno) => {
                self.shared.metrics.errors.inc();
                Err(format!("flush of {}: {}", self.path.display(), std::io::Error::from_raw_os_error(errno)))
            }
            None => {
                if !s.faults.lying {
                    s.settle(&flight.blocks, &flight.own);
                }
                Ok(())
            }
        };
        Some(move || flight.running.finish(outcome))
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        let s = self.shared.state.lock();
        s.inodes.get(&self.id).map(|i| i.len).ok_or_else(|| fail("stat", &self.path, libc::EIO))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check()?;
        let mut s = self.shared.state.lock();
        s.step().map_err(|e| self.error("truncate", e))?;
        let number = s.next_write;
        s.next_write += 1;
        let Some(inode) = s.inodes.get_mut(&self.id) else { return Err(fail("truncate", &self.path, libc::EIO)) };
        // What is cut off reads as zeroes if the file grows again.
        for (at, cell) in inode.cells.range_mut(len.div_ceil(BLOCK as u64)..) {
            cell.versions.push((number, zero()));
            inode.dirty.insert(*at);
        }
        if !len.is_multiple_of(BLOCK as u64)
            && let Some(cell) = inode.cells.get_mut(&(len / BLOCK as u64))
        {
            let mut last = *cell.now();
            last[(len % BLOCK as u64) as usize..].fill(0);
            cell.versions.push((number, block_of(&last)));
            inode.dirty.insert(len / BLOCK as u64);
        }
        inode.len = len;
        inode.grown += 1;
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        Box::pin(self.read(offset, buf))
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(offset, parts))
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.wait_for_flush(false))
    }

    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.wait_for_flush(true))
    }

    fn domain(&self) -> DomainId {
        self.group.id()
    }
}
