//! redb's storage over `base`'s door to files.
//!
//! What it is: a [`StorageBackend`] that turns redb's reads and writes at any offset into whole blocks, writing through.
//! What always holds: no byte is kept here, so what redb synced is what the device has. The door's futures are driven
//! only on threads that poll nothing else: a call from a runtime's thread (a cold read below `apply` or a lookup) hops to the
//! reader thread, because a file may complete on a ring that the very runtime would have to poll. Where blocking is to be done on
//! the spot (simulated files, which complete when polled) there is no such thread.
//! What it leaves out: caching (redb's page cache does it) and locks (the folder has one owner).

use super::pace::{PIECE_BYTES, Pace};
use holdfast_meta_log::Blocking;
use holdfast_objstore_base::buf::{AlignedBuf, is_aligned};
use holdfast_objstore_base::disk::{DiskError, File};
use holdfast_objstore_base::units::{BLOCK, block_up};
use parking_lot::Mutex;
use redb::StorageBackend;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;

thread_local! {
    static PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// Declares that this thread runs no futures of anyone else, so it may block on a door.
pub(crate) fn mark_plain_thread() {
    PLAIN.with(|p| p.set(true));
}

type Job = Box<dyn FnOnce() + Send>;

/// The block-aligned file under redb.
pub(crate) struct FileBackend {
    file: Arc<dyn File>,
    /// Writes of part of a block read it first; two of them must not cross.
    partial: Mutex<()>,
    /// To the reader thread, if there is to be one; it ends when this is dropped.
    jobs: Option<Mutex<mpsc::Sender<Job>>>,
    pace: Arc<Pace>,
}

impl std::fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileBackend({})", self.file.path().display())
    }
}

fn io_error(e: DiskError) -> io::Error {
    io::Error::other(e.to_string())
}

impl FileBackend {
    pub(super) fn new(file: Arc<dyn File>, blocking: Blocking, pace: Arc<Pace>) -> io::Result<Self> {
        let jobs = match blocking {
            Blocking::Here => None,
            Blocking::Pool => Some(Mutex::new(reader_thread()?)),
        };
        Ok(Self { file, partial: Mutex::new(()), jobs, pace })
    }

    /// Runs `work` where it may block: here, or on the reader thread.
    fn on_plain_thread<T: Send + 'static>(&self, work: impl FnOnce(&dyn File) -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let Some(jobs) = self.jobs.as_ref().filter(|_| !PLAIN.with(Cell::get)) else {
            return work(&*self.file);
        };
        let (tell, told) = mpsc::sync_channel(1);
        let file = self.file.clone();
        let job: Job = Box::new(move || {
            // The one who asked waits below, so this cannot fail.
            let _ = tell.send(work(&*file));
        });
        jobs.lock().send(job).map_err(|_| io::Error::other("the state's reader thread has ended"))?;
        told.recv().map_err(|_| io::Error::other("the state's reader thread has ended"))?
    }
}

fn reader_thread() -> io::Result<mpsc::Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("state-io".into()).spawn(move || {
        mark_plain_thread();
        while let Ok(job) = queue.recv() {
            job();
        }
    })?;
    Ok(jobs)
}

/// Reads `len` bytes at any offset.
pub(super) fn read_any(file: &dyn File, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let start = offset / BLOCK as u64 * BLOCK as u64;
    let whole = block_up(offset + len as u64) - start;
    let buf = AlignedBuf::zeroed(whole as usize);
    futures::executor::block_on(file.read_at(start, buf)).map_err(io_error)
}

/// Writes at any offset, reading what shares the first and last block.
fn write_any(file: &dyn File, offset: u64, data: &[u8]) -> io::Result<()> {
    let start = offset / BLOCK as u64 * BLOCK as u64;
    let lead = (offset - start) as usize;
    let whole = (block_up(offset + data.len() as u64) - start) as usize;
    let block = if lead == 0 && whole == data.len() {
        AlignedBuf::copy_of(data)
    } else {
        let mut old = futures::executor::block_on(file.read_at(start, AlignedBuf::zeroed(whole))).map_err(io_error)?;
        old[lead..lead + data.len()].copy_from_slice(data);
        old
    };
    let bytes = block.freeze();
    debug_assert!(is_aligned(&bytes));
    futures::executor::block_on(file.write_at(start, vec![bytes])).map_err(io_error)
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len().map_err(io_error)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let len = out.len();
        let got = self.on_plain_thread(move |f| read_any(f, offset, len))?;
        let lead = (offset % BLOCK as u64) as usize;
        out.copy_from_slice(&got[lead..lead + len]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // redb's pages are blocks, so its lengths are too; should they ever not be, a longer file is still right.
        self.file.set_len(block_up(len)).map_err(io_error)
    }

    fn sync_data(&self) -> io::Result<()> {
        // Also the length and block map: redb grows its file between syncs.
        self.on_plain_thread(|f| futures::executor::block_on(f.flush_all()).map_err(io_error))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let partial = !offset.is_multiple_of(BLOCK as u64) || !data.len().is_multiple_of(BLOCK);
        let _one_at_a_time = partial.then(|| self.partial.lock());
        if self.jobs.is_none() || PLAIN.with(Cell::get) {
            for (n, piece) in data.chunks(PIECE_BYTES).enumerate() {
                write_any(&*self.file, offset + (n * PIECE_BYTES) as u64, piece)?;
                self.pace.wrote(piece.len());
            }
            return Ok(());
        }
        let data = data.to_vec();
        self.on_plain_thread(move |f| write_any(f, offset, &data))
    }
}
