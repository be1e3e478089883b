//! Our replies as fuser's.

use crate::dirbuf::parse;
use crate::reply::{Attr, Parts, Reply};
use crate::wire::AttrWire;
use ::fuser as lib;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

/// A fuser reply that takes one of ours; a kind that does not fit becomes EIO.
pub(super) trait Answered: Send + 'static {
    fn answer(self, reply: Reply);
}

fn errno(reply: &Reply) -> lib::Errno {
    match reply {
        Reply::Err(e) if *e > 0 => lib::Errno::from_i32(*e),
        Reply::Absent(_) => lib::Errno::ENOENT,
        _ => lib::Errno::EIO,
    }
}

fn time(secs: i64, nanos: u32) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let base = if secs < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    base.and_then(|t| t.checked_add(Duration::new(0, nanos))).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn kind(mode: u32) -> lib::FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => lib::FileType::Directory,
        libc::S_IFLNK => lib::FileType::Symlink,
        libc::S_IFIFO => lib::FileType::NamedPipe,
        libc::S_IFSOCK => lib::FileType::Socket,
        libc::S_IFCHR => lib::FileType::CharDevice,
        libc::S_IFBLK => lib::FileType::BlockDevice,
        _ => lib::FileType::RegularFile,
    }
}

/// fuser takes a node's id from its attributes.
fn attr(node: u64, a: &Attr) -> lib::FileAttr {
    let t = |t: crate::op::Time| time(t.secs, t.nanos);
    lib::FileAttr {
        ino: lib::INodeNo(node),
        size: a.size,
        blocks: a.blocks,
        atime: t(a.atime),
        mtime: t(a.mtime),
        ctime: t(a.ctime),
        crtime: t(a.ctime),
        kind: kind(a.mode),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: a.blksize,
        flags: 0,
    }
}

fn from_wire(node: u64, w: &AttrWire) -> lib::FileAttr {
    let t = |secs: u64, nanos| crate::op::Time { secs: secs as i64, nanos };
    let a = Attr {
        ino: w.ino,
        size: w.size,
        blocks: w.blocks,
        atime: t(w.atime, w.atimensec),
        mtime: t(w.mtime, w.mtimensec),
        ctime: t(w.ctime, w.ctimensec),
        mode: w.mode,
        nlink: w.nlink,
        uid: w.uid,
        gid: w.gid,
        rdev: w.rdev,
        blksize: w.blksize,
    };
    attr(node, &a)
}

fn joined(parts: &Parts) -> Cow<'_, [u8]> {
    match &parts[..] {
        [] => Cow::Borrowed(&[]),
        [one] => Cow::Borrowed(one),
        many => Cow::Owned(many.concat()),
    }
}

impl Answered for lib::ReplyEmpty {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Empty => self.ok(),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyEntry {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Entry(e) => self.entry_with_ttls(&e.attr_valid, &e.entry_valid, &attr(e.node.0, &e.attr), lib::Generation(e.generation)),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyAttr {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Attr(a, valid) => self.attr(&valid, &attr(a.ino, &a)),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyOpen {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Opened(o) => self.opened(lib::FileHandle(o.handle.0), lib::FopenFlags::from_bits_truncate(o.flags)),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyCreate {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Created(e, o) => {
                // fuser sends one time for name and attributes: the shorter is safe.
                let valid = e.attr_valid.min(e.entry_valid);
                let flags = lib::FopenFlags::from_bits_truncate(o.flags);
                self.created(&valid, &attr(e.node.0, &e.attr), lib::Generation(e.generation), lib::FileHandle(o.handle.0), flags);
            }
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyData {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Data(parts) => self.data(&joined(&parts)),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyWrite {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Written(n) => self.written(n),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyStatfs {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Statfs(s) => self.statfs(s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.name_max, s.frsize),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyXattr {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::XattrSize(n) => self.size(n),
            Reply::Data(parts) => self.data(&joined(&parts)),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyLseek {
    fn answer(self, reply: Reply) {
        match reply {
            Reply::Offset(n) => self.offset(n as i64),
            r => self.error(errno(&r)),
        }
    }
}

impl Answered for lib::ReplyDirectory {
    fn answer(mut self, reply: Reply) {
        let Reply::Dir(body) = reply else { return self.error(errno(&reply)) };
        for e in parse(body, false) {
            // Built to the size the kernel asked for, so it fits.
            if self.add(lib::INodeNo(e.ino), e.cookie, kind(e.kind << 12), OsStr::from_bytes(&e.name)) {
                break;
            }
        }
        self.ok();
    }
}

impl Answered for lib::ReplyDirectoryPlus {
    fn answer(mut self, reply: Reply) {
        let Reply::DirPlus(body) = reply else { return self.error(errno(&reply)) };
        for e in parse(body, true) {
            let Some(p) = e.plus else { break };
            let valid = Duration::new(p.attr_valid, p.attr_valid_nsec.min(999_999_999));
            // fuser has one number for entry and node. The kernel never links `.` and `..`; for others 0 is "not looked up".
            let dots = matches!(&e.name[..], b"." | b"..");
            let node = if dots { e.ino } else { p.nodeid };
            let a = from_wire(node, &p.attr);
            if self.add(lib::INodeNo(node), e.cookie, OsStr::from_bytes(&e.name), &valid, &a, lib::Generation(p.generation)) {
                break;
            }
        }
        self.ok();
    }
}
