//! Operations, as a filesystem sees them: one structure each.
//!
//! What always holds: names are never empty, hold no zero byte or slash and are at most 255 bytes when they come from the
//! kernel; a name is its own small allocation and may be kept. [`Write::data`] shorter than 32 KiB is an allocation of its own;
//! longer, it is a slice of the receive buffer, which goes back to its pool when the last clone is dropped. Either
//! way it begins at a page-aligned address.
//! What it leaves out: FORGET, INTERRUPT, INIT and DESTROY, which are calls of their own on [`crate::Filesystem`].

use bytes::Bytes;
use std::fmt;

/// The kernel's number for a node: what a reply to LOOKUP named, until it is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The filesystem's number for an open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// Who owns a lock: opaque, per process or per open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// Seconds and nanoseconds since 1970-01-01 UTC; seconds may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    pub secs: i64,
    pub nanos: u32,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Time),
}

#[derive(Debug, Clone)]
pub struct Lookup {
    pub parent: NodeId,
    pub name: Bytes,
}

#[derive(Debug, Clone)]
pub struct Getattr {
    pub ino: NodeId,
    pub handle: Option<Handle>,
}

/// `None` leaves a field alone. `kill_suidgid`: clear suid, and sgid if group execution is allowed.
#[derive(Debug, Clone)]
pub struct Setattr {
    pub ino: NodeId,
    pub handle: Option<Handle>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<Time>,
    pub kill_suidgid: bool,
}

#[derive(Debug, Clone)]
pub struct Readlink {
    pub ino: NodeId,
}

#[derive(Debug, Clone)]
pub struct Symlink {
    pub parent: NodeId,
    pub name: Bytes,
    pub target: Bytes,
}

/// `mode` includes the file type; the umask has been applied (unless DONT_MASK was negotiated).
#[derive(Debug, Clone)]
pub struct Mknod {
    pub parent: NodeId,
    pub name: Bytes,
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
}

#[derive(Debug, Clone)]
pub struct Mkdir {
    pub parent: NodeId,
    pub name: Bytes,
    pub mode: u32,
    pub umask: u32,
}

#[derive(Debug, Clone)]
pub struct Unlink {
    pub parent: NodeId,
    pub name: Bytes,
}

#[derive(Debug, Clone)]
pub struct Rmdir {
    pub parent: NodeId,
    pub name: Bytes,
}

/// `flags` as renameat2(2): an unknown one must be refused.
#[derive(Debug, Clone)]
pub struct Rename {
    pub parent: NodeId,
    pub name: Bytes,
    pub new_parent: NodeId,
    pub new_name: Bytes,
    pub flags: u32,
}

#[derive(Debug, Clone)]
pub struct Link {
    pub ino: NodeId,
    pub new_parent: NodeId,
    pub new_name: Bytes,
}

/// `flags` as open(2), without O_CREAT, O_EXCL and O_NOCTTY.
#[derive(Debug, Clone)]
pub struct Open {
    pub ino: NodeId,
    pub flags: i32,
    pub kill_suidgid: bool,
}

#[derive(Debug, Clone)]
pub struct Create {
    pub parent: NodeId,
    pub name: Bytes,
    pub flags: i32,
    pub mode: u32,
    pub umask: u32,
    pub kill_suidgid: bool,
}

/// `flags`: the open flags of the file now (O_APPEND and O_DIRECT may have been changed by fcntl).
#[derive(Debug, Clone)]
pub struct Read {
    pub ino: NodeId,
    pub handle: Handle,
    pub offset: u64,
    pub size: u32,
    pub flags: i32,
    pub lock_owner: Option<LockOwner>,
}

/// `cached`: pushed out of the page cache (a shared mapping), so `handle` and the caller's ids are guesses.
#[derive(Debug, Clone)]
pub struct Write {
    pub ino: NodeId,
    pub handle: Handle,
    pub offset: u64,
    pub data: Bytes,
    pub flags: i32,
    pub cached: bool,
    pub kill_suidgid: bool,
    pub lock_owner: Option<LockOwner>,
}

#[derive(Debug, Clone)]
pub struct Statfs {
    pub ino: NodeId,
}

/// Once per open, after the last close; its error goes nowhere. `flock_owner`: drop this owner's flock.
#[derive(Debug, Clone)]
pub struct Release {
    pub ino: NodeId,
    pub handle: Handle,
    pub flags: i32,
    pub flock_owner: Option<LockOwner>,
}

/// Once per close(2); its error is close's.
#[derive(Debug, Clone)]
pub struct Flush {
    pub ino: NodeId,
    pub handle: Handle,
    pub lock_owner: LockOwner,
}

#[derive(Debug, Clone)]
pub struct Fsync {
    pub ino: NodeId,
    pub handle: Handle,
    pub datasync: bool,
}

#[derive(Debug, Clone)]
pub struct Opendir {
    pub ino: NodeId,
    pub flags: i32,
}

/// Of READDIR and READDIRPLUS: `cookie` is that of the last entry the caller has seen, 0 at first; `size` bytes may be answered.
#[derive(Debug, Clone)]
pub struct Readdir {
    pub ino: NodeId,
    pub handle: Handle,
    pub cookie: u64,
    pub size: u32,
}

#[derive(Debug, Clone)]
pub struct Releasedir {
    pub ino: NodeId,
    pub handle: Handle,
}

/// `flags`: XATTR_CREATE, XATTR_REPLACE.
#[derive(Debug, Clone)]
pub struct Setxattr {
    pub ino: NodeId,
    pub name: Bytes,
    pub value: Bytes,
    pub flags: i32,
}

/// `size` 0 asks how long the value is; otherwise more than `size` bytes is ERANGE.
#[derive(Debug, Clone)]
pub struct Getxattr {
    pub ino: NodeId,
    pub name: Bytes,
    pub size: u32,
}

/// As [`Getxattr`], for the names, each ended by a zero byte.
#[derive(Debug, Clone)]
pub struct Listxattr {
    pub ino: NodeId,
    pub size: u32,
}

#[derive(Debug, Clone)]
pub struct Removexattr {
    pub ino: NodeId,
    pub name: Bytes,
}

/// A lock of bytes `start..=end`; `kind` is F_RDLCK, F_WRLCK or F_UNLCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    pub start: u64,
    pub end: u64,
    pub kind: i32,
    pub pid: u32,
}

#[derive(Debug, Clone)]
pub struct Getlk {
    pub ino: NodeId,
    pub handle: Handle,
    pub owner: LockOwner,
    pub lock: Lock,
}

/// `wait`: block until it is granted, or interrupted. `flock`: flock(2), not fcntl(2).
#[derive(Debug, Clone)]
pub struct Setlk {
    pub ino: NodeId,
    pub handle: Handle,
    pub owner: LockOwner,
    pub lock: Lock,
    pub wait: bool,
    pub flock: bool,
}

/// Only without `default_permissions`.
#[derive(Debug, Clone)]
pub struct Access {
    pub ino: NodeId,
    pub mask: u32,
}

/// `mode` as fallocate(2): an unknown bit must be refused with EOPNOTSUPP.
#[derive(Debug, Clone)]
pub struct Fallocate {
    pub ino: NodeId,
    pub handle: Handle,
    pub offset: u64,
    pub len: u64,
    pub mode: u32,
}

/// `whence` is SEEK_DATA or SEEK_HOLE.
#[derive(Debug, Clone)]
pub struct Lseek {
    pub ino: NodeId,
    pub handle: Handle,
    pub offset: u64,
    pub whence: u32,
}

#[derive(Debug, Clone)]
pub struct CopyFileRange {
    pub from: NodeId,
    pub from_handle: Handle,
    pub from_offset: u64,
    pub to: NodeId,
    pub to_handle: Handle,
    pub to_offset: u64,
    pub len: u64,
    pub flags: u64,
}

/// One operation. Answer what you do not serve with ENOSYS: for many of them the kernel then stops asking.
#[derive(Debug, Clone)]
pub enum Op {
    Lookup(Lookup),
    Getattr(Getattr),
    Setattr(Setattr),
    Readlink(Readlink),
    Symlink(Symlink),
    Mknod(Mknod),
    Mkdir(Mkdir),
    Unlink(Unlink),
    Rmdir(Rmdir),
    Rename(Rename),
    Link(Link),
    Open(Open),
    Create(Create),
    Read(Read),
    Write(Write),
    Statfs(Statfs),
    Release(Release),
    Flush(Flush),
    Fsync(Fsync),
    Opendir(Opendir),
    Readdir(Readdir),
    Readdirplus(Readdir),
    Releasedir(Releasedir),
    Fsyncdir(Fsync),
    Setxattr(Setxattr),
    Getxattr(Getxattr),
    Listxattr(Listxattr),
    Removexattr(Removexattr),
    Getlk(Getlk),
    Setlk(Setlk),
    Access(Access),
    Fallocate(Fallocate),
    Lseek(Lseek),
    CopyFileRange(CopyFileRange),
}
