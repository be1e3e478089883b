//! Structures the kernel sends.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! request {
    ($(#[$doc:meta])* $name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
        pub struct $name { $(pub $field: $ty),* }
    };
}

request! { /// Begins every request; `len` counts the whole request, `total_extlen` its extensions in units of 8 bytes.
InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 } }
request! { /// INIT before 7.36.
InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 } }
request! { /// What INIT carries beyond [`InitIn`] since 7.36.
InitInExt { flags2: u32, unused: [u32; 11] } }
request! { /// FORGET.
ForgetIn { nlookup: u64 } }
request! { /// BATCH_FORGET: `count` of [`ForgetOne`] follow.
BatchForgetIn { count: u32, dummy: u32 } }
request! { /// One forgotten node.
ForgetOne { nodeid: u64, nlookup: u64 } }
request! { /// GETATTR.
GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 } }
request! { /// SETATTR; `valid` is made of `FATTR_*`.
SetattrIn { valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
    atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32 } }
request! { /// MKNOD; a name follows.
MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 } }
request! { /// MKDIR; a name follows.
MkdirIn { mode: u32, umask: u32 } }
request! { /// RENAME; two names follow.
RenameIn { newdir: u64 } }
request! { /// RENAME2; two names follow.
Rename2In { newdir: u64, flags: u32, padding: u32 } }
request! { /// LINK; a name follows.
LinkIn { oldnodeid: u64 } }
request! { /// OPEN, OPENDIR.
OpenIn { flags: u32, open_flags: u32 } }
request! { /// CREATE; a name follows.
CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 } }
request! { /// RELEASE, RELEASEDIR.
ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 } }
request! { /// FLUSH.
FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 } }
request! { /// READ, READDIR, READDIRPLUS.
ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 } }
request! { /// WRITE; `size` bytes follow.
WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 } }
request! { /// FSYNC, FSYNCDIR.
FsyncIn { fh: u64, fsync_flags: u32, padding: u32 } }
request! { /// SETXATTR (the form without `SETXATTR_EXT`); a name and `size` bytes follow.
SetxattrIn { size: u32, flags: u32 } }
request! { /// GETXATTR (a name follows), LISTXATTR. `size` 0 asks for the size.
GetxattrIn { size: u32, padding: u32 } }
request! { /// GETLK, SETLK, SETLKW. `start` and `end` are inclusive; `kind` is F_RDLCK, F_WRLCK or F_UNLCK.
LkIn { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32, lk_flags: u32, padding: u32 } }
request! { /// ACCESS.
AccessIn { mask: u32, padding: u32 } }
request! { /// INTERRUPT: the request to give up.
InterruptIn { unique: u64 } }
request! { /// FALLOCATE.
FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 } }
request! { /// LSEEK (only SEEK_DATA and SEEK_HOLE come).
LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 } }
request! { /// COPY_FILE_RANGE.
CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 } }
