//! Replies, as a filesystem gives them.

use crate::op::{Handle, Lock, NodeId, Time};
use bytes::Bytes;
use smallvec::SmallVec;
use std::time::Duration;

/// The runs of bytes that make up a READ reply, sent one after the other without being joined.
pub type Parts = SmallVec<[Bytes; 2]>;

/// Attributes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// `st_ino`; by habit, not by need, the node's id.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// File type and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Preferred I/O size, bytes.
    pub blksize: u32,
}

/// A name that was found or made. The kernel counts it as one lookup of `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub node: NodeId,
    /// (node, generation) is never used for two files in one mount's life.
    pub generation: u64,
    /// How long the name may be cached; 0 not at all.
    pub entry_valid: Duration,
    /// How long the attributes may be cached.
    pub attr_valid: Duration,
    pub attr: Attr,
}

/// How a file was opened: `flags` are of [`crate::flags`], `FOPEN_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    pub handle: Handle,
    pub flags: u32,
}

/// As statfs(2). `blocks` and its like count units of `frsize` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatfsReply {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub frsize: u32,
    pub name_max: u32,
}

/// The answer to an [`crate::Op`]. One of a kind that does not fit the operation is answered with EIO.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A positive errno.
    Err(i32),
    /// Done, nothing to say.
    Empty,
    /// LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    Entry(Entry),
    /// LOOKUP: there is no such name, and that may be cached for this long.
    Absent(Duration),
    /// GETATTR, SETATTR, with how long they may be cached.
    Attr(Attr, Duration),
    /// OPEN, OPENDIR.
    Opened(Opened),
    /// CREATE.
    Created(Entry, Opened),
    /// READ (shorter than asked: the file ends), READLINK, GETXATTR and LISTXATTR with a size.
    Data(Parts),
    /// READDIR, made by [`crate::DirBuffer`].
    Dir(Bytes),
    /// READDIRPLUS, made by [`crate::DirPlusBuffer`].
    DirPlus(Bytes),
    /// WRITE, COPY_FILE_RANGE: bytes.
    Written(u32),
    Statfs(StatfsReply),
    /// GETXATTR and LISTXATTR of size 0: bytes.
    XattrSize(u32),
    /// GETLK: the lock in the way, or the one asked for with kind F_UNLCK.
    Lock(Lock),
    /// LSEEK.
    Offset(u64),
}

impl Reply {
    /// A READ reply of one run.
    pub fn data(bytes: Bytes) -> Reply {
        let mut parts = Parts::new();
        parts.push(bytes);
        Reply::Data(parts)
    }
}

impl From<std::io::Error> for Reply {
    fn from(e: std::io::Error) -> Reply {
        Reply::Err(e.raw_os_error().unwrap_or(libc::EIO))
    }
}
