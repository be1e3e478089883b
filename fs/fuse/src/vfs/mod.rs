//! The mount proper: our operations as calls of `fs/vfs`.
//!
//! What it is: decode → vfs → reply, nothing else. What always holds: the errno of every vfs error is chosen here, in one table.
//! What it leaves out: extended attributes and copy_file_range (ENOSYS: the kernel stops asking, and says EOPNOTSUPP or copies itself),
//! locks (never asked for, so the kernel keeps them).

mod dirs;
mod translate;

use crate::filesystem::{Answer, Context, Filesystem, Forget};
use crate::op::{self, Op};
use crate::reply::{Parts, Reply};
use holdfast_fs_vfs::{self as fs, Caller, CreateArgs, HandleId, MknodArgs, NodeId, OpenFlags, ReadArgs, RenameArgs, Vfs, WriteArgs};
use holdfast_objstore_proto::meta::Kind;
use std::sync::Arc;
use translate::{attr, entry, errno, opened, setattr_args};

/// A vfs, as a binding sees it.
pub struct VfsAdapter {
    vfs: Arc<Vfs>,
}

impl VfsAdapter {
    pub fn new(vfs: Arc<Vfs>) -> Self {
        Self { vfs }
    }
}

fn node(n: op::NodeId) -> NodeId {
    NodeId(n.0)
}

fn handle(h: op::Handle) -> HandleId {
    HandleId(h.0)
}

/// A result as a reply.
fn reply<T>(result: fs::Result<T>, make: impl FnOnce(T) -> Reply) -> Reply {
    match result {
        Ok(value) => make(value),
        Err(e) => Reply::Err(errno(e)),
    }
}

fn empty(result: fs::Result<()>) -> Reply {
    reply(result, |()| Reply::Empty)
}

fn later<'a>(work: impl Future<Output = Reply> + Send + 'a) -> Answer<'a> {
    Answer::Later(Box::pin(work))
}

impl Filesystem for VfsAdapter {
    fn handle(&self, c: Context, op: Op) -> Answer<'_> {
        match op {
            Op::Read(o) => self.read(o),
            Op::Write(o) => self.write(o),
            Op::Fsync(_) | Op::Flush(_) | Op::Open(_) | Op::Release(_) | Op::Fallocate(_) | Op::Lseek(_) => self.on_file(op),
            Op::Opendir(_) | Op::Readdir(_) | Op::Readdirplus(_) | Op::Releasedir(_) | Op::Fsyncdir(_) => self.on_dir(op),
            other => self.on_name(c, other),
        }
    }

    fn forget(&self, items: &[Forget]) {
        let nodes: Vec<(NodeId, u64)> = items.iter().map(|f| (node(f.node), f.lookups)).collect();
        self.vfs.forget(&nodes);
    }
}

impl VfsAdapter {
    fn read(&self, o: op::Read) -> Answer<'_> {
        let args = ReadArgs { node: node(o.ino), handle: handle(o.handle), offset: o.offset, len: o.size };
        later(async move { reply(self.vfs.read(args).await, |parts| Reply::Data(Parts::from_vec(parts))) })
    }

    fn write(&self, o: op::Write) -> Answer<'_> {
        let args = WriteArgs {
            node: node(o.ino),
            handle: handle(o.handle),
            offset: o.offset,
            data: o.data,
            direct: o.flags & libc::O_DIRECT != 0,
            // O_SYNC holds the bit of O_DSYNC.
            sync: o.flags & libc::O_DSYNC != 0,
            kill_suidgid: o.kill_suidgid,
            from_cache: o.cached,
        };
        later(async move { reply(self.vfs.write(args).await, Reply::Written) })
    }

    fn on_file(&self, op: Op) -> Answer<'_> {
        let vfs = &*self.vfs;
        match op {
            Op::Fsync(o) => later(async move { empty(vfs.fsync(handle(o.handle), o.datasync).await) }),
            Op::Flush(o) => later(async move { empty(vfs.flush(handle(o.handle)).await) }),
            Op::Open(o) => later(async move {
                let flags = OpenFlags { flags: o.flags, kill_suidgid: o.kill_suidgid };
                reply(vfs.open(node(o.ino), flags).await, |r| Reply::Opened(opened(&r)))
            }),
            Op::Release(o) => {
                vfs.release(handle(o.handle));
                Answer::Ready(Reply::Empty)
            }
            Op::Fallocate(o) => later(async move { empty(vfs.fallocate(handle(o.handle), o.mode as i32, o.offset, o.len).await) }),
            Op::Lseek(o) => {
                let seek = match o.whence as i32 {
                    libc::SEEK_DATA => fs::Seek::Data,
                    libc::SEEK_HOLE => fs::Seek::Hole,
                    _ => return Answer::Ready(Reply::Err(libc::EINVAL)),
                };
                later(async move { reply(vfs.lseek(handle(o.handle), o.offset, seek).await, Reply::Offset) })
            }
            _ => Answer::Ready(Reply::Err(libc::ENOSYS)),
        }
    }

    fn on_name(&self, c: Context, op: Op) -> Answer<'_> {
        let vfs = &*self.vfs;
        let caller = Caller { uid: c.uid, gid: c.gid, pid: c.pid };
        match op {
            Op::Lookup(o) => later(async move {
                reply(vfs.lookup(caller, node(o.parent), o.name).await, |r| match r {
                    fs::LookupReply::Found(e) => Reply::Entry(entry(&e)),
                    fs::LookupReply::Absent { entry_valid } => Reply::Absent(entry_valid),
                })
            }),
            Op::Getattr(o) => {
                later(
                    async move { reply(vfs.getattr(node(o.ino), o.handle.map(handle)).await, |r| Reply::Attr(attr(&r.attr), r.attr_valid)) },
                )
            }
            Op::Setattr(o) => later(async move {
                reply(vfs.setattr(caller, node(o.ino), setattr_args(&o)).await, |r| Reply::Attr(attr(&r.attr), r.attr_valid))
            }),
            Op::Create(o) => later(async move {
                let open = OpenFlags { flags: o.flags, kill_suidgid: o.kill_suidgid };
                let args = CreateArgs { parent: node(o.parent), name: o.name, mode: o.mode & 0o7777, open };
                reply(vfs.create(caller, args).await, |r| Reply::Created(entry(&r.entry), opened(&r.open)))
            }),
            Op::Mknod(o) => {
                let Some(kind) = Kind::from_mode(o.mode) else { return Answer::Ready(Reply::Err(libc::EINVAL)) };
                self.make(caller, MknodArgs { parent: node(o.parent), name: o.name, kind, mode: o.mode & 0o7777, rdev: o.rdev })
            }
            Op::Mkdir(o) => {
                self.make(caller, MknodArgs { parent: node(o.parent), name: o.name, kind: Kind::Dir, mode: o.mode & 0o7777, rdev: 0 })
            }
            Op::Symlink(o) => {
                later(async move { reply(vfs.symlink(caller, node(o.parent), o.name, o.target).await, |e| Reply::Entry(entry(&e))) })
            }
            Op::Readlink(o) => later(async move { reply(vfs.readlink(node(o.ino)).await, Reply::data) }),
            Op::Link(o) => {
                later(async move { reply(vfs.link(node(o.ino), node(o.new_parent), o.new_name).await, |e| Reply::Entry(entry(&e))) })
            }
            Op::Unlink(o) => later(async move { empty(vfs.unlink(node(o.parent), o.name).await) }),
            Op::Rmdir(o) => later(async move { empty(vfs.rmdir(node(o.parent), o.name).await) }),
            Op::Rename(o) => later(async move {
                let args = RenameArgs {
                    parent: node(o.parent),
                    name: o.name,
                    new_parent: node(o.new_parent),
                    new_name: o.new_name,
                    flags: o.flags,
                };
                empty(vfs.rename(args).await)
            }),
            Op::Statfs(_) => Answer::Ready(Reply::Statfs(translate::statfs(&vfs.statfs()))),
            _ => Answer::Ready(Reply::Err(libc::ENOSYS)),
        }
    }

    fn make(&self, caller: Caller, args: MknodArgs) -> Answer<'_> {
        later(async move { reply(self.vfs.mknod(caller, args).await, |e| Reply::Entry(entry(&e))) })
    }
}
