//! A file of a device: what is done with it is traced, counted and takes time.

use super::{Device, Fate, Power};
use crate::trace::Trace;
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{DiskError, DomainId, File, Result};
use holdfast_objstore_base::units::BLOCK;
use std::path::Path;
use std::sync::Arc;

/// The metadata state's file: whoever reads it blocks.
const STATE_FILE: &str = "state.redb";

pub(crate) struct SeenFile(Arc<Inner>);

struct Inner {
    file: Arc<dyn File>,
    device: Arc<Device>,
    power: Arc<Power>,
    trace: Arc<Trace>,
    /// Its callers block.
    blocking: bool,
}

impl SeenFile {
    pub fn over(file: Arc<dyn File>, device: Arc<Device>, power: Arc<Power>, trace: Arc<Trace>) -> Arc<dyn File> {
        let blocking = file.path().ends_with(STATE_FILE);
        Arc::new(Self(Arc::new(Inner { file, device, power, trace, blocking })))
    }
}

/// The first bytes of the parts.
fn first(parts: Vec<Bytes>, mut bytes: usize) -> Vec<Bytes> {
    let mut kept = Vec::new();
    for part in parts {
        let n = part.len().min(bytes);
        bytes -= n;
        if n > 0 {
            kept.push(part.slice(..n));
        }
    }
    kept
}

impl Inner {
    async fn begin(&self, what: &str, offset: u64, len: usize) {
        self.trace.note(format_args!("{what} {} +{offset} {len}", self.file.path().display()));
        self.power.step();
        if !self.blocking {
            self.device.wait().await;
        }
    }

    fn end<T>(&self, what: &str, result: Result<T>) -> Result<T> {
        self.power.step();
        if let Err(e) = &result {
            self.trace.note(format_args!("{what} d{}: {e}", self.device.number));
        }
        result
    }

    /// Runs where it is polled; on a task when it takes time, so that it goes on when nobody waits any more.
    async fn carried<T: Send + 'static>(self: Arc<Self>, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        if self.blocking {
            return work.await;
        }
        match tokio::spawn(work).await {
            Ok(done) => done,
            Err(_) => Err(DiskError::Io { call: "wait", path: self.file.path().to_path_buf(), errno: libc::EIO }),
        }
    }
}

impl File for SeenFile {
    fn path(&self) -> &Path {
        self.0.file.path()
    }
    fn len(&self) -> Result<u64> {
        self.0.file.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.trace.note(format_args!("set_len {} {len}", self.path().display()));
        self.0.power.step();
        self.0.file.set_len(len)
    }
    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        Box::pin(async move {
            self.0.begin("read", offset, buf.len()).await;
            let elsewhere = offset + self.0.device.misreads() * BLOCK as u64;
            let there = elsewhere + buf.len() as u64 <= self.0.file.len().unwrap_or(0);
            let got = self.0.file.read_at(if there && !self.0.blocking { elsewhere } else { offset }, buf).await;
            self.0.end("read", got)
        })
    }
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let this = self.0.clone();
        Box::pin(self.0.clone().carried(async move {
            this.begin("write", offset, parts.iter().map(Bytes::len).sum()).await;
            let fate = if this.blocking { Fate::Done } else { this.device.fate() };
            let done = match fate {
                Fate::Done => this.file.write_at(offset, parts).await,
                Fate::Lost => Ok(()),
                Fate::Short(mille) => {
                    let blocks = parts.iter().map(Bytes::len).sum::<usize>() / BLOCK;
                    let kept = first(parts, blocks * mille as usize / 1000 * BLOCK);
                    if kept.is_empty() { Ok(()) } else { this.file.write_at(offset, kept).await }
                }
                Fate::Astray(blocks) => this.file.write_at(offset + blocks * BLOCK as u64, parts).await,
            };
            this.end("write", done)
        }))
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.0.begin("flush", 0, 0).await;
            let done = self.0.file.flush().await;
            self.0.end("flush", done)
        })
    }
    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.0.begin("flush_all", 0, 0).await;
            let done = self.0.file.flush_all().await;
            self.0.end("flush_all", done)
        })
    }
    fn domain(&self) -> DomainId {
        self.0.file.domain()
    }
}
