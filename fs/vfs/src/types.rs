//! Arguments and replies of the operations, and the two small traits round them. No FUSE in here: the adapter translates.
//!
//! What always holds: offsets and lengths are bytes, times are nanoseconds since the epoch, names are one path component.
//! What it leaves out: errno (the adapter chooses it from [`Error`]) and wire layout.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{Kind, TimeNs};
use std::time::Duration;

/// A node as the kernel knows it. 1 is the root of the mounted bucket; every other is its inode's number. Never reused, so the
/// generation is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// The root of the mount.
pub const ROOT: NodeId = NodeId(1);

/// An open file or directory (`fh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// Who asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// Named by what went wrong; the adapter maps each to one errno (named in brackets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// [ENOENT]
    #[error("no such entry")]
    NotFound,
    /// [ESTALE]
    #[error("the inode is gone")]
    Stale,
    /// [EEXIST]
    #[error("entry exists")]
    Exists,
    /// [ENOTDIR]
    #[error("not a directory")]
    NotDir,
    /// [EISDIR]
    #[error("is a directory")]
    IsDir,
    /// [ENOTEMPTY]
    #[error("directory is not empty")]
    NotEmpty,
    /// [EINVAL]
    #[error("invalid argument")]
    Invalid,
    /// [ENAMETOOLONG]
    #[error("name too long")]
    NameTooLong,
    /// [EPERM]
    #[error("operation not permitted")]
    NotPermitted,
    /// [EMLINK]
    #[error("too many links")]
    TooManyLinks,
    /// [ENOSPC]
    #[error("no space")]
    NoSpace,
    /// [EFBIG]
    #[error("file too large")]
    FileTooLarge,
    /// [EBADF]
    #[error("no such handle, or not open for this")]
    BadHandle,
    /// [ENXIO] lseek past the last data.
    #[error("no data or hole there")]
    NoSuchOffset,
    /// [EOPNOTSUPP]
    #[error("not supported")]
    NotSupported,
    /// [ENOSYS] The kernel stops asking.
    #[error("not implemented")]
    NotImplemented,
    /// [EIO] Data or metadata could not be read, written or made durable; the log says why.
    #[error("input or output error")]
    Io,
}

pub type Result<T> = std::result::Result<T, Error>;

/// `struct stat` without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAttr {
    /// The node, which is also `st_ino`.
    pub node: NodeId,
    pub kind: Kind,
    /// Permission bits, suid, sgid, sticky: `& 0o7777`. The file type is `kind.mode_bits()`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: TimeNs,
    pub mtime: TimeNs,
    pub ctime: TimeNs,
    pub btime: TimeNs,
}

/// Preferred I/O size, for `st_blksize`.
pub const BLKSIZE: u32 = 4096;

/// Attributes and how long the kernel may keep them (zero: not at all).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttrReply {
    pub attr: FileAttr,
    pub attr_valid: Duration,
}

/// A name's inode. Counts as one lookup of `attr.node`, to be given back with `forget`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryReply {
    pub attr: FileAttr,
    pub attr_valid: Duration,
    /// How long the kernel may keep the name.
    pub entry_valid: Duration,
}

/// The answer to a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupReply {
    Found(EntryReply),
    /// No such name, which the kernel may remember for `entry_valid` (a reply with node 0); ENOENT when that is zero.
    Absent {
        entry_valid: Duration,
    },
}

/// An open file or directory and how the kernel is to treat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReply {
    pub handle: HandleId,
    /// FOPEN_DIRECT_IO: opened with O_DIRECT, or while the file is shared.
    pub direct_io: bool,
    /// FOPEN_KEEP_CACHE: pages the kernel has are good.
    pub keep_cache: bool,
    /// FOPEN_PARALLEL_DIRECT_WRITES (only with `direct_io`).
    pub parallel_direct_writes: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateReply {
    pub entry: EntryReply,
    pub open: OpenReply,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(TimeNs),
}

/// setattr: what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct SetAttrArgs {
    /// `& 0o7777`.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Truncate or extend.
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<TimeNs>,
    /// FATTR_FH: ftruncate.
    pub handle: Option<HandleId>,
    /// FATTR_KILL_SUIDGID: clear suid, and sgid of an executable, with a truncation.
    pub kill_suidgid: bool,
}

/// open, and the open half of create.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenFlags {
    /// `O_*` as open(2) has them.
    pub flags: i32,
    /// FUSE_OPEN_KILL_SUIDGID, with O_TRUNC.
    pub kill_suidgid: bool,
}

/// create.
#[derive(Debug, Clone)]
pub struct CreateArgs {
    pub parent: NodeId,
    pub name: Bytes,
    /// Permission bits after the umask.
    pub mode: u32,
    pub open: OpenFlags,
}

/// mknod (and mkdir, with `Kind::Dir`).
#[derive(Debug, Clone)]
pub struct MknodArgs {
    pub parent: NodeId,
    pub name: Bytes,
    pub kind: Kind,
    pub mode: u32,
    pub rdev: u32,
}

/// rename, with the `RENAME_*` flags of renameat2(2): NOREPLACE and EXCHANGE, one at most; others are `Invalid`.
#[derive(Debug, Clone)]
pub struct RenameArgs {
    pub parent: NodeId,
    pub name: Bytes,
    pub new_parent: NodeId,
    pub new_name: Bytes,
    pub flags: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct ReadArgs {
    pub node: NodeId,
    pub handle: HandleId,
    pub offset: u64,
    pub len: u32,
}

/// write. Aligned payloads of direct writes go to the devices as they are, without a copy.
#[derive(Debug, Clone)]
pub struct WriteArgs {
    pub node: NodeId,
    pub handle: HandleId,
    pub offset: u64,
    pub data: Bytes,
    /// The request's open flags have O_DIRECT: reply when the write quorum's devices have the bytes.
    pub direct: bool,
    /// The request's open flags have O_SYNC or O_DSYNC: durable and published before the reply.
    pub sync: bool,
    /// FUSE_WRITE_KILL_SUIDGID.
    pub kill_suidgid: bool,
    /// FUSE_WRITE_CACHE: the kernel writes back a mapped page. Never waits for a recall; `handle` may be any handle of the node.
    pub from_cache: bool,
}

/// A directory entry. `next` is the cookie a reader passes to go on after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirItem {
    pub node: NodeId,
    pub name: Bytes,
    pub kind: Kind,
    pub next: u64,
    /// readdirplus, except for `.` and `..`: as a lookup would answer.
    pub entry: Option<EntryReply>,
}

/// statfs, in units of `bsize` bytes of what a user can store after the code's overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    pub bsize: u32,
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    /// Inodes are not limited: a round number that is never used up.
    pub files: u64,
    pub ffree: u64,
    pub namelen: u32,
}

/// What lseek looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    Data,
    Hole,
}

/// Takes things out of the kernel's caches. Implemented by the binding, on a thread of its own that serves no request.
pub trait KernelNotify: Send + Sync + 'static {
    /// FUSE_NOTIFY_INVAL_INODE. `offset < 0`: attributes only. Otherwise also pages of `[offset, offset + len)`, `len` 0: to the end;
    /// dirty mapped pages come back as WRITEs before it completes.
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> BoxFuture<'static, ()>;
    /// FUSE_NOTIFY_INVAL_ENTRY. Takes the directory's lock in the kernel.
    fn inval_entry(&self, parent: NodeId, name: Bytes) -> BoxFuture<'static, ()>;
    /// FUSE_NOTIFY_INC_EPOCH: every name the kernel has is looked up anew. False when kernel or binding lack it.
    fn inc_epoch(&self) -> BoxFuture<'static, bool>;
}

/// For a vfs without a kernel above it.
pub struct NoKernel;

impl KernelNotify for NoKernel {
    fn inval_inode(&self, _: NodeId, _: i64, _: i64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    fn inval_entry(&self, _: NodeId, _: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    fn inc_epoch(&self) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// Limits and times, fixed at connect.
#[derive(Debug, Clone)]
pub struct Config {
    /// Names the session in `status`.
    pub client: String,
    /// How long the kernel may keep names and attributes under a grant.
    pub valid: Duration,
    /// Dirty data older than this is written; what is written and unpublished for this long is published.
    pub dirty_age: Duration,
    /// Dirty and in-flight bytes of one inode above which its writers wait: bounds how long a recall takes.
    pub inode_dirty_bytes_max: u64,
    /// Stripes in flight from buffered writes.
    pub stripes_in_flight_max: usize,
    /// Unpublished extents of one inode above which a publish starts; at eight times as many its writers wait.
    pub pending_extents_max: usize,
    /// How long a write waits for OSDs before EIO.
    pub unavailable_wait: Duration,
    /// How long readers may go on with a stripe that was superseded before it was published.
    pub delete_grace: Duration,
    /// Read-ahead of one handle, at most.
    pub readahead_bytes_max: u64,
    /// Extents of committed maps kept in memory over all inodes (about 128 bytes each).
    pub map_extents_max: usize,
    /// Bytes kept with those maps because no OSD has them yet.
    pub inline_cache_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            client: "mount".into(),
            valid: Duration::from_secs(3600),
            dirty_age: Duration::from_secs(5),
            inode_dirty_bytes_max: 64 << 20,
            stripes_in_flight_max: 8,
            pending_extents_max: 1024,
            unavailable_wait: Duration::from_secs(30),
            delete_grace: Duration::from_secs(2),
            readahead_bytes_max: 8 << 20,
            map_extents_max: 256 << 10,
            inline_cache_bytes_max: 4 << 20,
        }
    }
}
