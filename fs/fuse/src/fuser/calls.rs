//! fuser's callbacks as our operations.

use super::Adapter;
use crate::filesystem::Forget;
use crate::op::{self, Handle, NodeId, Op, SetTime, Time};
use ::fuser as lib;
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

fn name(n: &OsStr) -> Bytes {
    Bytes::copy_from_slice(n.as_bytes())
}

fn stamp(t: SystemTime) -> Time {
    match t.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(d) => Time { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(e) => {
            let d = e.duration();
            let back = i64::from(d.subsec_nanos() > 0);
            Time { secs: -(d.as_secs() as i64) - back, nanos: (1_000_000_000 - d.subsec_nanos()) % 1_000_000_000 }
        }
    }
}

fn set_time(t: lib::TimeOrNow) -> SetTime {
    match t {
        lib::TimeOrNow::SpecificTime(t) => SetTime::At(stamp(t)),
        lib::TimeOrNow::Now => SetTime::Now,
    }
}

fn node(n: lib::INodeNo) -> NodeId {
    NodeId(n.0)
}

fn handle(h: lib::FileHandle) -> Handle {
    Handle(h.0)
}

fn owner(o: lib::LockOwner) -> op::LockOwner {
    op::LockOwner(o.0)
}

impl lib::Filesystem for Adapter {
    fn init(&mut self, _: &lib::Request, config: &mut lib::KernelConfig) -> io::Result<()> {
        Adapter::init(self, config);
        Ok(())
    }

    fn lookup(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, reply: lib::ReplyEntry) {
        self.drive(r, Op::Lookup(op::Lookup { parent: node(parent), name: name(n) }), reply);
    }

    fn forget(&self, _: &lib::Request, ino: lib::INodeNo, lookups: u64) {
        self.filesystem.forget(&[Forget { node: node(ino), lookups }]);
    }

    fn getattr(&self, r: &lib::Request, ino: lib::INodeNo, fh: Option<lib::FileHandle>, reply: lib::ReplyAttr) {
        self.drive(r, Op::Getattr(op::Getattr { ino: node(ino), handle: fh.map(handle) }), reply);
    }

    fn setattr(
        &self,
        r: &lib::Request,
        ino: lib::INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<lib::TimeOrNow>,
        mtime: Option<lib::TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<lib::FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<lib::BsdFileFlags>,
        reply: lib::ReplyAttr,
    ) {
        let op = op::Setattr {
            ino: node(ino),
            handle: fh.map(handle),
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(stamp),
            kill_suidgid: false,
        };
        self.drive(r, Op::Setattr(op), reply);
    }

    fn readlink(&self, r: &lib::Request, ino: lib::INodeNo, reply: lib::ReplyData) {
        self.drive(r, Op::Readlink(op::Readlink { ino: node(ino) }), reply);
    }

    fn mknod(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, mode: u32, umask: u32, rdev: u32, reply: lib::ReplyEntry) {
        self.drive(r, Op::Mknod(op::Mknod { parent: node(parent), name: name(n), mode, rdev, umask }), reply);
    }

    fn mkdir(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, mode: u32, umask: u32, reply: lib::ReplyEntry) {
        self.drive(r, Op::Mkdir(op::Mkdir { parent: node(parent), name: name(n), mode, umask }), reply);
    }

    fn unlink(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Unlink(op::Unlink { parent: node(parent), name: name(n) }), reply);
    }

    fn rmdir(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Rmdir(op::Rmdir { parent: node(parent), name: name(n) }), reply);
    }

    fn symlink(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, target: &Path, reply: lib::ReplyEntry) {
        let op = op::Symlink { parent: node(parent), name: name(n), target: name(target.as_os_str()) };
        self.drive(r, Op::Symlink(op), reply);
    }

    fn rename(
        &self,
        r: &lib::Request,
        parent: lib::INodeNo,
        n: &OsStr,
        new_parent: lib::INodeNo,
        new_n: &OsStr,
        flags: lib::RenameFlags,
        reply: lib::ReplyEmpty,
    ) {
        let op =
            op::Rename { parent: node(parent), name: name(n), new_parent: node(new_parent), new_name: name(new_n), flags: flags.bits() };
        self.drive(r, Op::Rename(op), reply);
    }

    fn link(&self, r: &lib::Request, ino: lib::INodeNo, new_parent: lib::INodeNo, new_n: &OsStr, reply: lib::ReplyEntry) {
        self.drive(r, Op::Link(op::Link { ino: node(ino), new_parent: node(new_parent), new_name: name(new_n) }), reply);
    }

    fn open(&self, r: &lib::Request, ino: lib::INodeNo, flags: lib::OpenFlags, reply: lib::ReplyOpen) {
        self.drive(r, Op::Open(op::Open { ino: node(ino), flags: flags.0, kill_suidgid: false }), reply);
    }

    fn read(
        &self,
        r: &lib::Request,
        ino: lib::INodeNo,
        fh: lib::FileHandle,
        offset: u64,
        size: u32,
        flags: lib::OpenFlags,
        lock_owner: Option<lib::LockOwner>,
        reply: lib::ReplyData,
    ) {
        let op = op::Read { ino: node(ino), handle: handle(fh), offset, size, flags: flags.0, lock_owner: lock_owner.map(owner) };
        self.drive(r, Op::Read(op), reply);
    }

    fn write(
        &self,
        r: &lib::Request,
        ino: lib::INodeNo,
        fh: lib::FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: lib::WriteFlags,
        flags: lib::OpenFlags,
        lock_owner: Option<lib::LockOwner>,
        reply: lib::ReplyWrite,
    ) {
        let op = op::Write {
            ino: node(ino),
            handle: handle(fh),
            offset,
            data: AlignedBuf::copy_of(data).freeze(),
            flags: flags.0,
            cached: write_flags.contains(lib::WriteFlags::FUSE_WRITE_CACHE),
            kill_suidgid: write_flags.contains(lib::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            lock_owner: lock_owner.map(owner),
        };
        self.drive(r, Op::Write(op), reply);
    }

    fn flush(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, lock_owner: lib::LockOwner, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Flush(op::Flush { ino: node(ino), handle: handle(fh), lock_owner: owner(lock_owner) }), reply);
    }

    fn release(
        &self,
        r: &lib::Request,
        ino: lib::INodeNo,
        fh: lib::FileHandle,
        flags: lib::OpenFlags,
        lock_owner: Option<lib::LockOwner>,
        _flush: bool,
        reply: lib::ReplyEmpty,
    ) {
        let op = op::Release { ino: node(ino), handle: handle(fh), flags: flags.0, flock_owner: lock_owner.map(owner) };
        self.drive(r, Op::Release(op), reply);
    }

    fn fsync(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, datasync: bool, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Fsync(op::Fsync { ino: node(ino), handle: handle(fh), datasync }), reply);
    }

    fn opendir(&self, r: &lib::Request, ino: lib::INodeNo, flags: lib::OpenFlags, reply: lib::ReplyOpen) {
        self.drive(r, Op::Opendir(op::Opendir { ino: node(ino), flags: flags.0 }), reply);
    }

    fn readdir(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, offset: u64, reply: lib::ReplyDirectory) {
        // fuser does not say how much was asked for; a page is the least the kernel asks.
        self.drive(r, Op::Readdir(op::Readdir { ino: node(ino), handle: handle(fh), cookie: offset, size: 4096 }), reply);
    }

    fn readdirplus(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, offset: u64, reply: lib::ReplyDirectoryPlus) {
        self.drive(r, Op::Readdirplus(op::Readdir { ino: node(ino), handle: handle(fh), cookie: offset, size: 4096 }), reply);
    }

    fn releasedir(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, _flags: lib::OpenFlags, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Releasedir(op::Releasedir { ino: node(ino), handle: handle(fh) }), reply);
    }

    fn fsyncdir(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, datasync: bool, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Fsyncdir(op::Fsync { ino: node(ino), handle: handle(fh), datasync }), reply);
    }

    fn statfs(&self, r: &lib::Request, ino: lib::INodeNo, reply: lib::ReplyStatfs) {
        self.drive(r, Op::Statfs(op::Statfs { ino: node(ino) }), reply);
    }

    fn setxattr(&self, r: &lib::Request, ino: lib::INodeNo, n: &OsStr, value: &[u8], flags: i32, _position: u32, reply: lib::ReplyEmpty) {
        let op = op::Setxattr { ino: node(ino), name: name(n), value: Bytes::copy_from_slice(value), flags };
        self.drive(r, Op::Setxattr(op), reply);
    }

    fn getxattr(&self, r: &lib::Request, ino: lib::INodeNo, n: &OsStr, size: u32, reply: lib::ReplyXattr) {
        self.drive(r, Op::Getxattr(op::Getxattr { ino: node(ino), name: name(n), size }), reply);
    }

    fn listxattr(&self, r: &lib::Request, ino: lib::INodeNo, size: u32, reply: lib::ReplyXattr) {
        self.drive(r, Op::Listxattr(op::Listxattr { ino: node(ino), size }), reply);
    }

    fn removexattr(&self, r: &lib::Request, ino: lib::INodeNo, n: &OsStr, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Removexattr(op::Removexattr { ino: node(ino), name: name(n) }), reply);
    }

    fn access(&self, r: &lib::Request, ino: lib::INodeNo, mask: lib::AccessFlags, reply: lib::ReplyEmpty) {
        self.drive(r, Op::Access(op::Access { ino: node(ino), mask: mask.bits() as u32 }), reply);
    }

    fn create(&self, r: &lib::Request, parent: lib::INodeNo, n: &OsStr, mode: u32, umask: u32, flags: i32, reply: lib::ReplyCreate) {
        let op = op::Create { parent: node(parent), name: name(n), flags, mode, umask, kill_suidgid: false };
        self.drive(r, Op::Create(op), reply);
    }

    fn fallocate(
        &self,
        r: &lib::Request,
        ino: lib::INodeNo,
        fh: lib::FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: lib::ReplyEmpty,
    ) {
        let op = op::Fallocate { ino: node(ino), handle: handle(fh), offset, len: length, mode: mode as u32 };
        self.drive(r, Op::Fallocate(op), reply);
    }

    fn lseek(&self, r: &lib::Request, ino: lib::INodeNo, fh: lib::FileHandle, offset: i64, whence: i32, reply: lib::ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(lib::Errno::EINVAL) };
        let op = op::Lseek { ino: node(ino), handle: handle(fh), offset, whence: whence as u32 };
        self.drive(r, Op::Lseek(op), reply);
    }

    fn copy_file_range(
        &self,
        r: &lib::Request,
        ino_in: lib::INodeNo,
        fh_in: lib::FileHandle,
        offset_in: u64,
        ino_out: lib::INodeNo,
        fh_out: lib::FileHandle,
        offset_out: u64,
        len: u64,
        flags: lib::CopyFileRangeFlags,
        reply: lib::ReplyWrite,
    ) {
        let op = op::CopyFileRange {
            from: node(ino_in),
            from_handle: handle(fh_in),
            from_offset: offset_in,
            to: node(ino_out),
            to_handle: handle(fh_out),
            to_offset: offset_out,
            len,
            flags: flags.bits(),
        };
        self.drive(r, Op::CopyFileRange(op), reply);
    }
}
