//! An inode's record.

use holdfast_objstore_proto::meta::{Attr, Kind, Name, TimeNs};
use holdfast_objstore_proto::{BucketId, InodeId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    pub bucket: BucketId,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub nlink: u32,
    pub size: u64,
    /// Bytes of all its chunk maps, those beyond a cut included until they are reaped.
    pub mapped: u64,
    pub atime: TimeNs,
    pub mtime: TimeNs,
    pub ctime: TimeNs,
    pub btime: TimeNs,
    pub change: u64,
    pub number: u64,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    File {
        /// Disjoint, ascending: chunk ranges whose maps died in a truncation and are not yet all reaped.
        cuts: Vec<Cut>,
        /// The hidden orphan that stands for the cuts.
        tail: Option<InodeId>,
        /// The reaper has begun: the inode is gone for everyone else.
        reaping: bool,
    },
    Dir {
        /// Itself for a root.
        parent: InodeId,
        next_cookie: u64,
        /// Made (or changed) through a mount: it does not vanish with its last key.
        explicit: bool,
        /// Root of a flat bucket: names are whole keys.
        flat: bool,
    },
    Symlink {
        target: Name,
    },
    Fifo,
    Socket,
    CharDev,
    BlockDev,
}

/// Chunk maps in `from..to` that were born at or before inode number `number` are dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub from: u32,
    pub to: u32,
    pub number: u64,
}

impl Body {
    pub fn file() -> Body {
        Body::File { cuts: Vec::new(), tail: None, reaping: false }
    }
    /// First cookie of a directory: 1 and 2 are `.` and `..`.
    pub fn dir(parent: InodeId, explicit: bool, flat: bool) -> Body {
        Body::Dir { parent, next_cookie: 3, explicit, flat }
    }
}

impl Inode {
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::File { .. } => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink { .. } => Kind::Symlink,
            Body::Fifo => Kind::Fifo,
            Body::Socket => Kind::Socket,
            Body::CharDev => Kind::CharDev,
            Body::BlockDev => Kind::BlockDev,
        }
    }
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }
    pub fn reaping(&self) -> bool {
        matches!(self.body, Body::File { reaping: true, .. })
    }
    pub fn cuts(&self) -> &[Cut] {
        match &self.body {
            Body::File { cuts, .. } => cuts,
            _ => &[],
        }
    }
    /// Whether a chunk map born at `born` died in a truncation.
    pub fn dead(&self, chunk: u32, born: u64) -> bool {
        self.cuts().iter().any(|c| c.from <= chunk && chunk < c.to && born <= c.number)
    }
    pub fn attr(&self, ino: InodeId) -> Attr {
        // What a cut killed is not the file's any more, though it is still counted; how much of it there is, only reaping tells.
        let mapped = if self.cuts().is_empty() { self.mapped } else { self.mapped.min(self.size.saturating_add(4095) & !4095) };
        Attr {
            ino,
            bucket: self.bucket,
            kind: self.kind(),
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            nlink: self.nlink,
            size: self.size,
            mapped,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            change: self.change,
            number: self.number,
        }
    }
    /// Stamps a change of attributes.
    pub fn changed(&mut self, now: TimeNs) {
        self.ctime = self.ctime.max(now);
        self.change += 1;
    }
}
