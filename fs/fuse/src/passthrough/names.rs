//! Names and attributes.

use super::data::Target;
use super::{Passthrough, VALID, sys};
use crate::filesystem::Context;
use crate::op::{Getattr, Link, Lookup, Mkdir, Mknod, NodeId, Readlink, Rename, SetTime, Setattr, Statfs, Symlink};
use crate::reply::{Reply, StatfsReply};
use bytes::Bytes;
use std::io;
use std::os::fd::AsRawFd;

impl Passthrough {
    pub(super) fn lookup(&self, o: &Lookup) -> io::Result<Reply> {
        match self.nodes.find(o.parent, &o.name) {
            Ok(e) => Ok(Reply::Entry(e)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Reply::Absent(VALID)),
            Err(e) => Err(e),
        }
    }

    fn attributes(&self, target: &Target) -> io::Result<Reply> {
        let st = sys::stat(target.raw())?;
        Ok(Reply::Attr(sys::attr(&st), VALID))
    }

    pub(super) fn getattr(&self, o: &Getattr) -> io::Result<Reply> {
        self.attributes(&self.any_fd(o.ino, o.handle)?)
    }

    pub(super) fn setattr(&self, o: &Setattr) -> io::Result<Reply> {
        let target = self.any_fd(o.ino, o.handle)?;
        let path = sys::proc_path(target.raw());
        if let Some(mode) = o.mode {
            // SAFETY: a C string.
            sys::check(i64::from(unsafe { libc::chmod(path.as_ptr(), mode & 0o7777) }))?;
        }
        if o.uid.is_some() || o.gid.is_some() {
            let (uid, gid) = (o.uid.unwrap_or(u32::MAX), o.gid.unwrap_or(u32::MAX));
            let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
            // SAFETY: an empty C string; `u32::MAX` leaves an owner alone.
            sys::check(i64::from(unsafe { libc::fchownat(target.raw(), c"".as_ptr(), uid, gid, flags) }))?;
        }
        if let Some(size) = o.size {
            // SAFETY: a C string, or no memory at all.
            let rc = unsafe {
                match &target {
                    Target::Open(f) => libc::ftruncate(f.raw(), size as i64),
                    Target::Path(_) => libc::truncate(path.as_ptr(), size as i64),
                }
            };
            sys::check(i64::from(rc))?;
        }
        if o.atime.is_some() || o.mtime.is_some() {
            let times = [time(o.atime), time(o.mtime)];
            // SAFETY: an empty C string, two times. The kernel's `utimensat` takes AT_EMPTY_PATH for any kind of file.
            sys::check(i64::from(unsafe { libc::utimensat(target.raw(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) }))?;
        }
        self.attributes(&target)
    }

    pub(super) fn readlink(&self, o: &Readlink) -> io::Result<Reply> {
        let fd = self.nodes.fd(o.ino)?;
        let mut buf = vec![0u8; libc::PATH_MAX as usize];
        // SAFETY: an empty C string and a buffer valid for writes of its length.
        let n = sys::check(unsafe { libc::readlinkat(fd.as_raw_fd(), c"".as_ptr(), buf.as_mut_ptr().cast(), buf.len()) } as i64)?;
        buf.truncate(n as usize);
        Ok(Reply::data(Bytes::from(buf)))
    }

    /// The entry of something just made, given to whoever asked for it.
    fn made(&self, c: &Context, parent: NodeId, name: &[u8]) -> io::Result<Reply> {
        let dir = self.nodes.fd(parent)?;
        let fd = sys::open_at(dir.as_raw_fd(), &sys::name(name)?, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        self.give(&dir, fd.as_raw_fd(), c)?;
        Ok(Reply::Entry(self.nodes.adopt(fd)?))
    }

    pub(super) fn symlink(&self, c: &Context, o: &Symlink) -> io::Result<Reply> {
        let (dir, name, target) = (self.nodes.fd(o.parent)?, sys::name(&o.name)?, sys::name(&o.target)?);
        // SAFETY: two C strings.
        sys::check(i64::from(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) }))?;
        self.made(c, o.parent, &o.name)
    }

    pub(super) fn mknod(&self, c: &Context, o: &Mknod) -> io::Result<Reply> {
        let (dir, name) = (self.nodes.fd(o.parent)?, sys::name(&o.name)?);
        // SAFETY: a C string.
        sys::check(i64::from(unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), o.mode, u64::from(o.rdev)) }))?;
        self.made(c, o.parent, &o.name)
    }

    pub(super) fn mkdir(&self, c: &Context, o: &Mkdir) -> io::Result<Reply> {
        let (dir, name) = (self.nodes.fd(o.parent)?, sys::name(&o.name)?);
        // SAFETY: a C string.
        sys::check(i64::from(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), o.mode & 0o7777) }))?;
        self.made(c, o.parent, &o.name)
    }

    /// Removes a name; with AT_REMOVEDIR, a directory's.
    pub(super) fn unlink(&self, parent: NodeId, name: &[u8], flags: i32) -> io::Result<Reply> {
        let (dir, name) = (self.nodes.fd(parent)?, sys::name(name)?);
        // SAFETY: a C string.
        sys::check(i64::from(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })).map(|_| Reply::Empty)
    }

    pub(super) fn rename(&self, o: &Rename) -> io::Result<Reply> {
        let (from, to) = (self.nodes.fd(o.parent)?, self.nodes.fd(o.new_parent)?);
        let (name, new_name) = (sys::name(&o.name)?, sys::name(&o.new_name)?);
        // SAFETY: two C strings. The backing filesystem refuses flags it does not know.
        let rc = unsafe { libc::renameat2(from.as_raw_fd(), name.as_ptr(), to.as_raw_fd(), new_name.as_ptr(), o.flags) };
        sys::check(i64::from(rc)).map(|_| Reply::Empty)
    }

    pub(super) fn link(&self, o: &Link) -> io::Result<Reply> {
        let (node, dir, name) = (self.nodes.fd(o.ino)?, self.nodes.fd(o.new_parent)?, sys::name(&o.new_name)?);
        let path = sys::proc_path(node.as_raw_fd());
        // SAFETY: two C strings.
        let rc = unsafe { libc::linkat(libc::AT_FDCWD, path.as_ptr(), dir.as_raw_fd(), name.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
        sys::check(i64::from(rc))?;
        Ok(Reply::Entry(self.nodes.find(o.new_parent, &o.new_name)?))
    }

    pub(super) fn statfs(&self, o: &Statfs) -> io::Result<Reply> {
        let fd = self.nodes.fd(o.ino)?;
        // SAFETY: plain data, for which zero is a valid value.
        let mut s: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: a valid place for the answer.
        sys::check(i64::from(unsafe { libc::fstatvfs(fd.as_raw_fd(), &mut s) }))?;
        Ok(Reply::Statfs(StatfsReply {
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            bsize: s.f_bsize as u32,
            frsize: s.f_frsize as u32,
            name_max: s.f_namemax as u32,
        }))
    }
}

fn time(t: Option<SetTime>) -> libc::timespec {
    match t {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        Some(SetTime::Now) => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some(SetTime::At(t)) => libc::timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) },
    }
}
