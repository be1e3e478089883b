//! What clients asked and were told, in the one order in which it happened.
//!
//! What always holds: every call and every answer has a ticket of its own, and tickets grow; a call whose answer nobody heard
//! (the process ended first) has none. What a life ended with is seen by the audit of the next one.

use crate::content::WriteId;
use holdfast_objstore_proto::InodeId;
use std::collections::BTreeMap;

/// A moment of the run.
pub type Ticket = u64;

/// Index into [`crate::plan::PATHS`].
pub type Path = usize;

/// What a client asked. Places and lengths are in cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// O_CREAT | O_EXCL.
    Create {
        path: Path,
    },
    Unlink {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
    },
    /// A second name for an inode.
    Link {
        ino: InodeId,
        to: Path,
    },
    Lookup {
        path: Path,
    },
    /// A PUT of `cells` cells; `ino` is the inode it brings.
    Put {
        path: Path,
        ino: InodeId,
        cells: u32,
        id: WriteId,
    },
    Delete {
        path: Path,
    },
    Write {
        ino: InodeId,
        handle: u64,
        at: u32,
        cells: u32,
        id: WriteId,
        sync: bool,
    },
    Truncate {
        ino: InodeId,
        cells: u32,
    },
    Read {
        ino: InodeId,
        at: u32,
        cells: u32,
    },
    /// Fills in its inode's size.
    Stat {
        ino: InodeId,
    },
    Fsync {
        ino: InodeId,
        handle: u64,
    },
    Close {
        ino: InodeId,
    },
}

/// What it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The inode a name leads to, or led to.
    Inode(Option<InodeId>),
    NotFound,
    Exists,
    /// The writes seen in the cells read, as far as the file goes.
    Cells(Vec<WriteId>),
    /// Size in cells.
    Size(u32),
    /// Bytes nobody wrote there.
    Wrong(String),
    /// It may have happened or not: an I/O error, an eviction.
    Unsure(String),
    /// Refused, and nothing changed.
    Refused(String),
}

#[derive(Debug, Clone)]
pub struct Event {
    /// Mounts are numbered from 0; the gateway is the last.
    pub client: usize,
    pub called: Ticket,
    /// `None`: nobody was told.
    pub answered: Option<(Ticket, Answer)>,
    pub op: Op,
}

impl Event {
    /// When it was certainly over; for what nobody was told of, never.
    pub fn over(&self) -> Ticket {
        match &self.answered {
            Some((_, Answer::Unsure(_))) | None => Ticket::MAX,
            Some((t, _)) => *t,
        }
    }
    pub fn answer(&self) -> Option<&Answer> {
        self.answered.as_ref().map(|a| &a.1)
    }
    pub fn is_done(&self) -> bool {
        matches!(self.answer(), Some(Answer::Done))
    }
}

/// A file as an audit found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// By cell.
    pub cells: Vec<WriteId>,
}

/// Everything there is, read when nothing else runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    pub names: BTreeMap<Path, InodeId>,
    pub files: BTreeMap<InodeId, Found>,
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// In order.
    Stopped,
    /// The process was killed: what it wrote is there.
    Killed,
    /// The power went: what was not flushed may be gone.
    PowerCut,
}

/// One life of the process, between two starts.
#[derive(Debug, Clone)]
pub struct Life {
    /// What it began with.
    pub begin: Audit,
    pub events: Vec<Event>,
    pub end: End,
    /// Mounts that were evicted: their unsynced writes may be lost.
    pub evicted: Vec<usize>,
    /// No device was lost or hung, so no write failed.
    pub calm: bool,
    /// The newest command that was applied when it began, and when it ended.
    pub log: (u64, u64),
}
