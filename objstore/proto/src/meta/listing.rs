//! What directory reads and S3 listings return.

use super::{Attr, Kind, Name, ObjectInfo, TimeNs};
use crate::{InodeId, UploadId};

/// A directory entry with its stable cookie: a reader that passes it as `after` sees what follows, whatever was
/// added or removed meanwhile. Cookies are never reused in a directory; 0 starts, 1 and 2 are kept for `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: Name,
    pub cookie: u64,
    pub kind: Kind,
    pub ino: InodeId,
}

/// A name, its inode's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub ino: InodeId,
    pub attr: Attr,
}

/// An S3 listing request. Bytes are keys of the bucket, in byte order.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub prefix: Name,
    pub delimiter: Option<Name>,
    /// Keys greater than this; a common prefix given here is skipped whole.
    pub after: Option<Name>,
    pub keys_max: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListItem {
    Object { key: Name, attr: Attr, info: ObjectInfo },
    CommonPrefix(Name),
}

#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// In byte order of full keys; a directory sorts as `name/`.
    pub items: Vec<ListItem>,
    /// Pass as `after` to go on; `None` at the end.
    pub next: Option<Name>,
    /// Names that S3 cannot show (not UTF-8, longer than 1,024 bytes as a path), skipped in this page.
    pub hidden: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub id: UploadId,
    pub key: Name,
    pub created: TimeNs,
    pub info: ObjectInfo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadPart {
    /// 1 to 10,000.
    pub number: u16,
    pub size: u64,
    pub etag: String,
    pub modified: TimeNs,
    pub checksums: Vec<(String, String)>,
}
