//! Room kept back for the state's file, so that a checkpoint ends well on a device that others have filled.
//!
//! What always holds: a write that meets a full device takes from the ballast and is made again, so the state meets `ENOSPC` only when
//! all of it is spent; while some of it is, commands that make the state grow are refused, and what frees room goes on. It is made
//! whole again as soon as the device has twice as much free. It is files of zeroes beside the state's, never read, removed one by one.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{self, Disk, DomainId, File, Open, Result};
use holdfast_objstore_base::failpoint;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of each of its files.
const STEP: u64 = 1 << 20;

pub(crate) struct Ballast {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Files there should be.
    whole: u64,
    held: AtomicU64,
    filling: AtomicBool,
    /// One removal at a time.
    giving: Mutex<()>,
}

impl Ballast {
    /// Makes it, or what there is room for.
    pub async fn open(disk: Arc<dyn Disk>, dir: &Path, bytes: u64) -> Result<Arc<Self>> {
        let whole = bytes.div_ceil(STEP);
        let mut held = 0;
        // One that a crash cut short is made anew, with those after it.
        while held < whole && is_whole(&*disk, &dir.join(name(held)))? {
            held += 1;
        }
        let held = AtomicU64::new(held);
        let this = Self { disk, dir: dir.to_owned(), whole, held, filling: AtomicBool::new(false), giving: Mutex::new(()) };
        this.fill().await?;
        Ok(Arc::new(this))
    }

    /// Whether some of it was needed and is not back.
    pub fn spent(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.whole
    }

    /// Gives up a part; false: there is none left.
    fn give(&self) -> bool {
        let _one = self.giving.lock();
        let Some(left) = self.held.load(Ordering::Relaxed).checked_sub(1) else { return false };
        if self.disk.remove(&self.dir.join(name(left))).is_err() {
            return false;
        }
        if left + 1 == self.whole {
            failpoint::reached("meta.ballast_given");
            tracing::warn!(dir = %self.dir.display(), "the device of the metadata is full: what makes it grow is refused until there is room");
        }
        self.held.store(left, Ordering::Relaxed);
        true
    }

    async fn fill(&self) -> Result<()> {
        let missing = self.whole - self.held.load(Ordering::Relaxed);
        if missing == 0 || self.disk.space(&self.dir)?.free < 2 * missing * STEP {
            return Ok(());
        }
        while self.spent() {
            let n = self.held.load(Ordering::Relaxed);
            let path = self.dir.join(name(n));
            let file = self.disk.open(&path, Open::Create)?;
            let written = match disk::write_zeroes(&*file, 0, STEP).await {
                // It takes its room only once it is stable, and so is its name.
                Ok(()) => file.flush().await.and_then(|()| self.disk.sync_dir(&self.dir)),
                failed => failed,
            };
            match written {
                Ok(()) => self.held.store(n + 1, Ordering::Relaxed),
                // Somebody was faster.
                Err(e) if e.is_no_space() => return self.disk.remove(&path),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Makes it whole again when the device has the room. In the background of whoever polls it; only one at a time does anything.
    pub async fn refill(&self) {
        if self.spent() && !self.filling.swap(true, Ordering::AcqRel) {
            if let Err(e) = self.fill().await {
                tracing::warn!(error = %e, "the ballast could not be made whole");
            }
            self.filling.store(false, Ordering::Release);
        }
    }
}

fn is_whole(disk: &dyn Disk, path: &Path) -> Result<bool> {
    Ok(disk.exists(path) && disk.open(path, Open::Existing)?.len()? == STEP)
}

fn name(n: u64) -> String {
    format!("ballast.{n}")
}

/// A file whose writes may take from the ballast.
pub(crate) struct Cushioned {
    pub file: Arc<dyn File>,
    pub ballast: Arc<Ballast>,
}

impl File for Cushioned {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, Result<AlignedBuf>> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            loop {
                match self.file.write_at(offset, parts.clone()).await {
                    Err(e) if e.is_no_space() && self.ballast.give() => {}
                    done => return done,
                }
            }
        })
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        self.file.flush()
    }
    fn flush_all(&self) -> BoxFuture<'_, Result<()>> {
        self.file.flush_all()
    }
    fn domain(&self) -> DomainId {
        self.file.domain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_base::sim::{Options, SimDisk};

    #[tokio::test]
    async fn writes_on_a_full_device_take_from_the_ballast_and_it_comes_back() {
        let _reached = holdfast_objstore_base::failpoint::must_reach(&["meta.ballast_given"]);
        let sim = SimDisk::with(1, Options { overlap: false, ..Options::default() });
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let dir = Path::new("/meta");
        disk.create_dir_all(dir).unwrap();
        let ballast = Ballast::open(disk.clone(), dir, 2 << 20).await.unwrap();
        let file = disk.open(&dir.join("state"), Open::Create).unwrap();
        file.set_len(8 << 20).unwrap();
        let file = Cushioned { file, ballast: ballast.clone() };
        let block = || vec![AlignedBuf::zeroed(1 << 20).freeze()];
        file.write_at(0, block()).await.unwrap();
        assert!(!ballast.spent());
        sim.set_capacity(Some((3 << 20) + 8192));
        file.write_at(1 << 20, block()).await.unwrap();
        file.write_at(2 << 20, block()).await.unwrap();
        assert!(ballast.spent());
        ballast.refill().await;
        assert!(ballast.spent(), "there is no room");
        assert!(file.write_at(3 << 20, block()).await.is_err_and(|e| e.is_no_space()), "all is spent");
        sim.set_capacity(None);
        ballast.refill().await;
        assert!(!ballast.spent());
    }

    #[tokio::test]
    async fn what_a_power_cut_leaves_of_it_is_made_whole() {
        let dir = Path::new("/meta");
        let whole =
            |disk: &SimDisk| (0..4).filter(|n| disk.read_small(&dir.join(name(*n))).unwrap().is_some_and(|b| b.len() == 1 << 20)).count();
        for seed in 0..20 {
            let sim = SimDisk::with(seed, Options { overlap: false, ..Options::default() });
            sim.create_dir_all(dir).unwrap();
            sim.sync_dir(Path::new("/")).unwrap();
            drop(Ballast::open(Arc::new(sim.clone()), dir, 4 << 20).await.unwrap());
            let cut = sim.crash(seed);
            assert_eq!(whole(&cut), 4, "what was held is stable");
            // One of them is cut short, the others have to be told apart from it.
            cut.open(&dir.join(name(seed % 4)), Open::Existing).unwrap().set_len(4096).unwrap();
            let ballast = Ballast::open(Arc::new(cut.clone()), dir, 4 << 20).await.unwrap();
            assert_eq!((whole(&cut), ballast.spent()), (4, false));
        }
    }
}
