//! Inodes as readers see them.

use super::TimeNs;
use crate::{BucketId, InodeId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    File = 1,
    Dir = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    CharDev = 6,
    BlockDev = 7,
}

impl Kind {
    /// The file-type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => 0o100_000,
            Kind::Dir => 0o040_000,
            Kind::Symlink => 0o120_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
            Kind::CharDev => 0o020_000,
            Kind::BlockDev => 0o060_000,
        }
    }
    pub fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170_000 {
            0o100_000 | 0 => Kind::File,
            0o040_000 => Kind::Dir,
            0o120_000 => Kind::Symlink,
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            0o020_000 => Kind::CharDev,
            0o060_000 => Kind::BlockDev,
            _ => return None,
        })
    }
}

/// An inode's attributes. A committed copy; a holder of EXCL may have newer ones in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    pub ino: InodeId,
    pub bucket: BucketId,
    pub kind: Kind,
    /// Permission bits with suid, sgid and sticky: `mode & 0o7777`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub nlink: u32,
    /// Bytes; for a directory the number of entries, for a symlink the length of its target.
    pub size: u64,
    /// Bytes of file data mapped to stripes (for `st_blocks`).
    pub mapped: u64,
    pub atime: TimeNs,
    pub mtime: TimeNs,
    pub ctime: TimeNs,
    pub btime: TimeNs,
    /// Raised by every change of data, attributes or (for a directory) names.
    pub change: u64,
    /// Number of the last Publish or truncate applied to this inode; the next must carry one more.
    pub number: u64,
}

/// Which attributes a SetAttr changes; `None` leaves one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttrChange {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<TimeNs>,
    pub mtime: Option<TimeNs>,
    pub ctime: Option<TimeNs>,
}

/// What S3 keeps with an object beside its bytes. A change of data through a mount drops it all but `headers`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Without quotes: MD5 hex for a PUT, `<hex>-<parts>` for multipart. `None`: made from the inode and its change counter.
    pub etag: Option<String>,
    /// Header name (lower case) and value: content-type, cache-control, x-amz-meta-* and their like.
    pub headers: Vec<(String, String)>,
    /// Algorithm name (`CRC32`, `SHA256` …) and its base64 value.
    pub checksums: Vec<(String, String)>,
    /// Sizes of the parts of a multipart object, in order.
    pub parts: Vec<u64>,
}
