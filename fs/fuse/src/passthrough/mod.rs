//! A directory, passed through: the most that any filesystem can reach on this path with this transport.
//!
//! What it is: the `pass` rung of the bench. Every operation becomes the system call of the same name on a backing directory; direct
//! reads and writes go from and to the request's own pages. What always holds: alone, a request is served by the blocking call at
//! once; with more in hand, direct I/O goes through the thread's ring (`base::real`) and fdatasync to the runtime's
//! blocking threads. The kernel may cache names and attributes for an hour: the backing directory must not be changed from outside.
//! What it leaves out: extended attributes, locks, users other than through `default_permissions`.

mod data;
mod dirs;
mod handles;
mod names;
mod nodes;
mod sys;

use crate::filesystem::{Answer, Context, Filesystem, Forget};
use crate::op::Op;
use crate::pool::Pool;
use crate::reply::Reply;
use handles::Handles;
use holdfast_objstore_base::real::RealDisk;
use nodes::Nodes;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may cache what is said here.
const VALID: Duration = Duration::from_secs(3600);
/// Bytes of a read buffer: the largest READ.
const READ_BYTES: usize = 1 << 20;
/// Read buffers in use at once; beyond them, reads allocate.
const READS_MAX: usize = 64;
/// Read buffers kept.
const READS_KEPT: usize = 32;

/// See the module.
pub struct Passthrough {
    nodes: Nodes,
    handles: Handles,
    reads: Arc<Pool>,
    disk: RealDisk,
}

impl Passthrough {
    /// Passes `backing` through, which must be a directory. Raises the process's limit of open files to its hard limit, since
    /// every node the kernel knows holds one.
    pub fn new(backing: PathBuf) -> io::Result<Self> {
        sys::raise_open_files();
        let root = sys::open_at(libc::AT_FDCWD, &sys::cstring(&backing)?, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        Ok(Self {
            nodes: Nodes::new(root)?,
            handles: Handles::default(),
            reads: Pool::new(READ_BYTES, READS_MAX, READS_KEPT),
            disk: RealDisk::new(),
        })
    }

    fn simple(&self, c: &Context, op: Op) -> io::Result<Reply> {
        match op {
            Op::Lookup(o) => self.lookup(&o),
            Op::Getattr(o) => self.getattr(&o),
            Op::Setattr(o) => self.setattr(&o),
            Op::Readlink(o) => self.readlink(&o),
            Op::Symlink(o) => self.symlink(c, &o),
            Op::Mknod(o) => self.mknod(c, &o),
            Op::Mkdir(o) => self.mkdir(c, &o),
            Op::Unlink(o) => self.unlink(o.parent, &o.name, 0),
            Op::Rmdir(o) => self.unlink(o.parent, &o.name, libc::AT_REMOVEDIR),
            Op::Rename(o) => self.rename(&o),
            Op::Link(o) => self.link(&o),
            Op::Open(o) => self.open(&o),
            Op::Create(o) => self.create(c, &o),
            Op::Release(o) => {
                self.handles.remove(o.handle);
                Ok(Reply::Empty)
            }
            // Nothing is buffered here: a close has nothing to report.
            Op::Flush(_) => Ok(Reply::Empty),
            Op::Fsyncdir(o) => self.fsyncdir(&o),
            Op::Opendir(o) => self.opendir(&o),
            Op::Readdir(o) => self.readdir(&o),
            Op::Readdirplus(o) => self.readdirplus(&o),
            Op::Releasedir(o) => {
                self.handles.remove(o.handle);
                Ok(Reply::Empty)
            }
            Op::Statfs(o) => self.statfs(&o),
            Op::Fallocate(o) => self.fallocate(&o),
            Op::Lseek(o) => self.lseek(&o),
            _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
    }
}

impl Filesystem for Passthrough {
    fn handle(&self, context: Context, op: Op) -> Answer<'_> {
        match op {
            Op::Read(o) => self.read(o),
            Op::Write(o) => self.write(o),
            Op::Fsync(o) => self.fsync(o),
            other => Answer::Ready(self.simple(&context, other).unwrap_or_else(Reply::from)),
        }
    }

    fn forget(&self, items: &[Forget]) {
        self.nodes.forget(items);
    }
}
