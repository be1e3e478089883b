//! Structures the kernel is sent.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! reply {
    ($(#[$doc:meta])* $name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
        pub struct $name { $(pub $field: $ty),* }
    };
}

reply! { /// Begins every reply and notification; `error` is 0 or a negative errno.
OutHeader { len: u32, error: i32, unique: u64 } }
reply! { /// Attributes of a node.
AttrWire { ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
    mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32 } }
reply! { /// LOOKUP, MKNOD, MKDIR, SYMLINK, LINK. A `nodeid` of 0 says "no such name" and may be cached.
EntryOut { nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32, attr: AttrWire } }
reply! { /// GETATTR, SETATTR.
AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrWire } }
reply! { /// OPEN, OPENDIR; follows an [`EntryOut`] for CREATE.
OpenOut { fh: u64, open_flags: u32, backing_id: u32 } }
reply! { /// WRITE, COPY_FILE_RANGE.
WriteOut { size: u32, padding: u32 } }
reply! { /// STATFS.
StatfsOut { blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6] } }
reply! { /// GETXATTR and LISTXATTR of size 0.
XattrSizeOut { size: u32, padding: u32 } }
reply! { /// GETLK.
LkOut { start: u64, end: u64, kind: u32, pid: u32 } }
reply! { /// LSEEK.
LseekOut { offset: u64 } }
reply! { /// INIT. `flags2` is the upper half of the flag word.
InitOut { major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16, max_write: u32,
    time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11] } }
reply! { /// Begins a directory entry: `name` follows, padded with zeroes to 8 bytes.
DirentHead { ino: u64, off: u64, namelen: u32, kind: u32 } }
reply! { /// NOTIFY_INVAL_INODE. A negative `off` drops attributes only; `len` 0 or less means to the end.
InvalInodeOut { ino: u64, off: i64, len: i64 } }
reply! { /// NOTIFY_INVAL_ENTRY; the name and a zero byte follow.
InvalEntryOut { parent: u64, namelen: u32, flags: u32 } }
