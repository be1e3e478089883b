//! Flag words of the FUSE protocol, and which of them a mount asks for.

/// INIT: reads of one file may be in flight together.
pub const ASYNC_READ: u64 = 1 << 0;
/// INIT: fcntl locks come to the filesystem.
pub const POSIX_LOCKS: u64 = 1 << 1;
/// INIT: O_TRUNC comes with OPEN.
pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
/// INIT: writes larger than a page.
pub const BIG_WRITES: u64 = 1 << 5;
/// INIT: the filesystem applies the umask.
pub const DONT_MASK: u64 = 1 << 6;
/// INIT: flock locks come to the filesystem.
pub const FLOCK_LOCKS: u64 = 1 << 10;
/// INIT: READDIRPLUS is served.
pub const DO_READDIRPLUS: u64 = 1 << 13;
/// INIT: the kernel chooses between READDIR and READDIRPLUS.
pub const READDIRPLUS_AUTO: u64 = 1 << 14;
/// INIT: direct requests of one call may be in flight together.
pub const ASYNC_DIO: u64 = 1 << 15;
/// INIT: the kernel buffers writes and owns size and mtime. Never asked for on a shared mount.
pub const WRITEBACK_CACHE: u64 = 1 << 16;
/// INIT: lookups and directory reads of one directory may be in flight together.
pub const PARALLEL_DIROPS: u64 = 1 << 18;
/// INIT: `max_pages` of the reply counts.
pub const MAX_PAGES: u64 = 1 << 22;
/// INIT: targets of symbolic links are cached.
pub const CACHE_SYMLINKS: u64 = 1 << 23;
/// INIT: cached pages go only when the filesystem says so.
pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
/// INIT: the filesystem clears suid and sgid itself on write, truncate and chown. Without it, one GETXATTR per write.
pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
/// INIT: the flag word has a second half.
pub const INIT_EXT: u64 = 1 << 30;
/// INIT: files opened for direct I/O may be mapped.
pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
/// INIT: requests travel over io_uring.
pub const OVER_IO_URING: u64 = 1 << 41;

/// What a shared mount asks for; the kernel's offer limits it.
pub const WANTED: u64 = ASYNC_READ
    | ATOMIC_O_TRUNC
    | BIG_WRITES
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | ASYNC_DIO
    | PARALLEL_DIROPS
    | MAX_PAGES
    | CACHE_SYMLINKS
    | EXPLICIT_INVAL_DATA
    | HANDLE_KILLPRIV_V2
    | INIT_EXT
    | DIRECT_IO_ALLOW_MMAP;

/// OPEN reply: the page cache is passed by for this handle.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// OPEN reply: pages cached before stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// OPENDIR reply: names may be cached.
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// OPEN reply: direct writes of one file may be in flight together.
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// SETATTR: which fields count.
pub const FATTR_MODE: u32 = 1 << 0;
pub const FATTR_UID: u32 = 1 << 1;
pub const FATTR_GID: u32 = 1 << 2;
pub const FATTR_SIZE: u32 = 1 << 3;
pub const FATTR_ATIME: u32 = 1 << 4;
pub const FATTR_MTIME: u32 = 1 << 5;
pub const FATTR_FH: u32 = 1 << 6;
pub const FATTR_ATIME_NOW: u32 = 1 << 7;
pub const FATTR_MTIME_NOW: u32 = 1 << 8;
pub const FATTR_CTIME: u32 = 1 << 10;
pub const FATTR_KILL_SUIDGID: u32 = 1 << 11;

/// GETATTR: the handle counts.
pub const GETATTR_FH: u32 = 1 << 0;
/// OPEN: clear suid and sgid (with O_TRUNC).
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// WRITE: from the page cache; the handle is a guess.
pub const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: the lock owner counts.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// WRITE: clear suid and sgid.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// READ: the lock owner counts.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// FSYNC: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// RELEASE: also drop the owner's flock.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// LK: a flock, not a range lock.
pub const LK_FLOCK: u32 = 1 << 0;
