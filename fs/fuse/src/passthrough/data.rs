//! Open files: read, write, sync.

use super::handles::Opened as File;
use super::{Passthrough, sys};
use crate::filesystem::Answer;
use crate::flags;
use crate::op::{self, Create, Fallocate, Fsync, Lseek, NodeId, Open};
use crate::pool::Lent;
use crate::reply::{Opened, Reply};
use bytes::Bytes;
use holdfast_objstore_base::buf::{AlignedBuf, is_aligned};
use holdfast_objstore_base::disk::{Disk, DiskError, Open as How};
use holdfast_objstore_base::exec::in_hand;
use holdfast_objstore_base::units::BLOCK;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// Open flags that mean the same on the backing file. Appending is left to the kernel's offsets: this mount is alone.
const PASSED: i32 = libc::O_ACCMODE | libc::O_TRUNC | libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC | libc::O_NOATIME;

/// A buffer to read into: of the pool, or of its own.
enum ReadBuf {
    Pooled(Lent),
    Own(AlignedBuf),
}

impl Passthrough {
    fn opened(&self, fd: OwnedFd, open_flags: i32) -> Opened {
        let direct = open_flags & libc::O_DIRECT != 0;
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        // Without it (a read-only file, say) direct calls block, as buffered ones do.
        let ring = if direct { self.disk.open(&path, How::Existing).ok() } else { None };
        let handle = self.handles.insert(File { fd, ring });
        let how = if direct { flags::FOPEN_DIRECT_IO | flags::FOPEN_PARALLEL_DIRECT_WRITES } else { flags::FOPEN_KEEP_CACHE };
        Opened { handle, flags: how }
    }

    pub(super) fn open(&self, o: &Open) -> io::Result<Reply> {
        let node = self.nodes.fd(o.ino)?;
        let fd = sys::reopen(node.as_raw_fd(), o.flags & PASSED)?;
        Ok(Reply::Opened(self.opened(fd, o.flags)))
    }

    pub(super) fn create(&self, c: &crate::Context, o: &Create) -> io::Result<Reply> {
        let dir = self.nodes.fd(o.parent)?;
        let name = sys::name(&o.name)?;
        let how = o.flags & PASSED | libc::O_CREAT | libc::O_NOFOLLOW | o.flags & libc::O_EXCL;
        let fd = sys::open_at(dir.as_raw_fd(), &name, how, o.mode & 0o7777)?;
        self.give(&dir, fd.as_raw_fd(), c)?;
        let entry = self.nodes.adopt(sys::reopen(fd.as_raw_fd(), libc::O_PATH)?)?;
        Ok(Reply::Created(entry, self.opened(fd, o.flags)))
    }

    fn read_buf(&self, len: usize) -> ReadBuf {
        match self.reads.take() {
            Some(lent) if len <= lent.len() => ReadBuf::Pooled(lent),
            _ => ReadBuf::Own(AlignedBuf::zeroed(len)),
        }
    }

    pub(super) fn read(&self, o: op::Read) -> Answer<'_> {
        let file = match self.handles.get(o.handle) {
            Ok(f) => f,
            Err(e) => return Answer::Ready(e.into()),
        };
        let len = o.size as usize;
        let direct = len.is_multiple_of(BLOCK) && o.offset.is_multiple_of(BLOCK as u64);
        if in_hand() > 1 && direct && file.ring.is_some() {
            let buf = self.read_buf(len);
            return Answer::Later(Box::pin(read_ring(file, o.offset, len, buf)));
        }
        Answer::Ready(read_now(&file, o.offset, len, self.read_buf(len)).unwrap_or_else(Reply::from))
    }

    pub(super) fn write(&self, o: op::Write) -> Answer<'_> {
        let file = match self.handles.get(o.handle) {
            Ok(f) => f,
            Err(e) => return Answer::Ready(e.into()),
        };
        if o.offset.checked_add(o.data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Answer::Ready(Reply::Err(libc::EFBIG));
        }
        if in_hand() > 1 && file.ring.is_some() && is_aligned(&o.data) && o.offset.is_multiple_of(BLOCK as u64) {
            return Answer::Later(Box::pin(write_ring(file, o.offset, o.data)));
        }
        let written = sys::pwrite(file.raw(), &o.data, o.offset);
        Answer::Ready(written.map_or_else(Reply::from, |n| Reply::Written(n as u32)))
    }

    pub(super) fn fsync(&self, o: Fsync) -> Answer<'_> {
        let file = match self.handles.get(o.handle) {
            Ok(f) => f,
            Err(e) => return Answer::Ready(e.into()),
        };
        let sync = move |f: &File| sys::sync(f.raw(), o.datasync).map_or_else(Reply::from, |()| Reply::Empty);
        if in_hand() <= 1 {
            return Answer::Ready(sync(&file));
        }
        // The flushes of many files overlap on threads, as they would in io_uring's own.
        Answer::Later(Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || sync(&file)).await;
            done.unwrap_or(Reply::Err(libc::EIO))
        }))
    }

    pub(super) fn fallocate(&self, o: &Fallocate) -> io::Result<Reply> {
        let file = self.handles.get(o.handle)?;
        // SAFETY: no memory is involved.
        let rc = unsafe { libc::fallocate(file.raw(), o.mode as i32, o.offset as i64, o.len as i64) };
        sys::check(i64::from(rc)).map(|_| Reply::Empty)
    }

    pub(super) fn lseek(&self, o: &Lseek) -> io::Result<Reply> {
        let file = self.handles.get(o.handle)?;
        // SAFETY: no memory is involved.
        let at = sys::check(unsafe { libc::lseek(file.raw(), o.offset as i64, o.whence as i32) })?;
        Ok(Reply::Offset(at as u64))
    }

    pub(super) fn fsyncdir(&self, o: &Fsync) -> io::Result<Reply> {
        let dir = self.handles.get(o.handle)?;
        sys::sync(dir.raw(), o.datasync).map(|()| Reply::Empty)
    }

    /// Gives a new file to whoever asked for it, as the backing filesystem would have had they asked it.
    pub(super) fn give(&self, dir: &OwnedFd, fd: i32, c: &crate::Context) -> io::Result<()> {
        if (c.uid, c.gid) == (0, 0) {
            return Ok(());
        }
        let inherited = sys::stat(dir.as_raw_fd())?.st_mode & libc::S_ISGID != 0;
        let gid = if inherited { u32::MAX } else { c.gid };
        // SAFETY: an empty C string; `u32::MAX` leaves the group alone.
        let rc = unsafe { libc::fchownat(fd, c"".as_ptr(), c.uid, gid, libc::AT_EMPTY_PATH) };
        sys::check(i64::from(rc)).map(drop)
    }

    /// A descriptor for attribute calls: the open one if there is one.
    pub(super) fn any_fd(&self, node: NodeId, handle: Option<op::Handle>) -> io::Result<Target> {
        match handle {
            Some(h) => Ok(Target::Open(self.handles.get(h)?)),
            None => Ok(Target::Path(self.nodes.fd(node)?)),
        }
    }
}

/// An open file, or an `O_PATH` descriptor, which some calls only take through `/proc`.
pub(super) enum Target {
    Open(Arc<File>),
    Path(Arc<OwnedFd>),
}

impl Target {
    pub fn raw(&self) -> i32 {
        match self {
            Target::Open(f) => f.raw(),
            Target::Path(f) => f.as_raw_fd(),
        }
    }
}

fn read_now(file: &File, offset: u64, len: usize, buf: ReadBuf) -> io::Result<Reply> {
    Ok(match buf {
        ReadBuf::Pooled(mut b) => {
            let n = sys::pread(file.raw(), &mut b[..len], offset)?;
            Reply::data(b.freeze().slice(..n))
        }
        ReadBuf::Own(mut b) => {
            let n = sys::pread(file.raw(), &mut b[..len], offset)?;
            Reply::data(b.freeze().slice(..n))
        }
    })
}

async fn read_ring(file: Arc<File>, offset: u64, len: usize, buf: ReadBuf) -> Reply {
    let Some(ring) = &file.ring else { return Reply::Err(libc::EBADF) };
    let (mut inner, lent) = match buf {
        ReadBuf::Pooled(mut lent) => (lent.take_out(), Some(lent)),
        ReadBuf::Own(b) => (b, None),
    };
    inner.set_len(len);
    match (ring.read_at(offset, inner).await, lent) {
        (Ok(b), Some(mut lent)) => {
            lent.put_back(b);
            Reply::data(lent.freeze().slice(..len))
        }
        (Ok(b), None) => Reply::data(b.freeze()),
        // The end of the file lies in the range: the plain call says how much there is.
        (Err(DiskError::Short { .. }), _) => {
            read_now(&file, offset, len, ReadBuf::Own(AlignedBuf::zeroed(len))).unwrap_or_else(Reply::from)
        }
        (Err(e), _) => Reply::Err(e.errno()),
    }
}

async fn write_ring(file: Arc<File>, offset: u64, data: Bytes) -> Reply {
    let Some(ring) = &file.ring else { return Reply::Err(libc::EBADF) };
    let len = data.len() as u32;
    match ring.write_at(offset, vec![data]).await {
        Ok(()) => Reply::Written(len),
        Err(e) => Reply::Err(e.errno()),
    }
}
