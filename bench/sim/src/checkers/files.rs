//! What happened to each file in one life, as the checkers of contents need it.

use crate::content::WriteId;
use crate::history::{Answer, Event, Life, Op, Ticket};
use holdfast_objstore_proto::InodeId;
use std::collections::BTreeMap;

/// A change of a file's cells, or what it began with.
#[derive(Debug, Clone)]
pub struct Change {
    pub called: Ticket,
    /// When it was certainly there; never when it may be lost or was not heard of.
    pub over: Ticket,
    /// Whether it must survive the end of the life.
    pub durable: bool,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// The file as the life found it.
    Begin(Vec<WriteId>),
    Write {
        at: u32,
        cells: u32,
        id: WriteId,
    },
    Cut {
        cells: u32,
    },
}

impl Change {
    /// What it makes of a cell, if it touches it.
    pub fn cell(&self, n: u32) -> Option<WriteId> {
        match &self.what {
            What::Begin(cells) => Some(cells.get(n as usize).copied().unwrap_or(0)),
            What::Write { at, cells, id } => (*at..at + cells).contains(&n).then_some(*id),
            What::Cut { cells } => (n >= *cells).then_some(0),
        }
    }
}

#[derive(Debug, Default)]
pub struct File {
    pub changes: Vec<Change>,
    /// (called, answered, first cell, what was seen to the end of what was asked; zeroes past the file's end, who looked).
    pub reads: Vec<(Ticket, Ticket, u32, Vec<WriteId>, usize)>,
    /// Who wrote what.
    pub writers: BTreeMap<WriteId, usize>,
    /// (called, answered, cells).
    pub sizes: Vec<(Ticket, Ticket, u32)>,
}

pub fn ino_of(op: &Op) -> Option<InodeId> {
    match op {
        Op::Write { ino, .. } | Op::Truncate { ino, .. } | Op::Read { ino, .. } | Op::Put { ino, .. } => Some(*ino),
        Op::Stat { ino } | Op::Fsync { ino, .. } | Op::Close { ino } => Some(*ino),
        Op::Create { .. } | Op::Unlink { .. } | Op::Rename { .. } | Op::Lookup { .. } | Op::Delete { .. } | Op::Link { .. } => None,
    }
}

/// Whether a client heard of trouble with an inode.
fn troubled(life: &Life, client: usize, ino: InodeId) -> bool {
    life.evicted.contains(&client)
        || life.events.iter().any(|e| e.client == client && ino_of(&e.op) == Some(ino) && matches!(e.answer(), Some(Answer::Unsure(_))))
}

/// Whether a sync that was answered covers a write.
fn synced(life: &Life, write: &Event, ino: InodeId, by: u64) -> bool {
    life.events.iter().any(|e| match &e.op {
        Op::Fsync { ino: i, handle } => {
            *i == ino && e.client == write.client && e.is_done() && e.called > write.over() && (*handle == by || life.calm)
        }
        _ => false,
    })
}

/// The files of a life by inode.
pub fn of(life: &Life) -> BTreeMap<InodeId, File> {
    let mut files: BTreeMap<InodeId, File> = BTreeMap::new();
    for (ino, found) in &life.begin.files {
        let what = What::Begin(found.cells.clone());
        files.entry(*ino).or_default().changes.push(Change { called: 0, over: 0, durable: true, what });
    }
    for e in &life.events {
        let Some(ino) = ino_of(&e.op) else { continue };
        let file = files.entry(ino).or_default();
        if file.changes.is_empty() {
            // Made in this life.
            file.changes.push(Change { called: 0, over: 0, durable: true, what: What::Begin(Vec::new()) });
        }
        let answered = e.answered.as_ref().map_or(Ticket::MAX, |a| a.0);
        match (&e.op, e.answer()) {
            (_, Some(Answer::Refused(_))) => {}
            (Op::Put { cells, id, .. }, _) => {
                let what = What::Write { at: 0, cells: *cells, id: *id };
                file.changes.push(Change { called: e.called, over: e.over(), durable: e.is_done(), what });
            }
            (Op::Write { handle, at, cells, id, sync, .. }, _) => {
                let durable = e.is_done() && (*sync || !troubled(life, e.client, ino) && synced(life, e, ino, *handle));
                let over = if durable || !troubled(life, e.client, ino) { e.over() } else { Ticket::MAX };
                file.writers.insert(*id, e.client);
                file.changes.push(Change { called: e.called, over, durable, what: What::Write { at: *at, cells: *cells, id: *id } });
            }
            (Op::Truncate { cells, .. }, _) => {
                let over = if troubled(life, e.client, ino) { Ticket::MAX } else { e.over() };
                file.changes.push(Change { called: e.called, over, durable: false, what: What::Cut { cells: *cells } });
            }
            (Op::Read { at, cells, .. }, Some(Answer::Cells(seen))) => {
                let mut seen = seen.clone();
                seen.resize(*cells as usize, 0);
                file.reads.push((e.called, answered, *at, seen, e.client));
            }
            (Op::Stat { .. }, Some(Answer::Size(cells))) => file.sizes.push((e.called, answered, *cells)),
            _ => {}
        }
    }
    files
}

/// Whether a cell may be `seen` by a look between `called` and `answered`: some change made it so and began before the answer,
/// and nothing that counts as certain came wholly between that change and the look.
pub fn may_see(file: &File, cell: u32, seen: WriteId, called: Ticket, answered: Ticket, certain: impl Fn(&Change) -> bool) -> bool {
    let hides = |old: &Change, new: &Change| new.cell(cell).is_some() && certain(new) && old.over < new.called && new.over < called;
    let makes = |c: &&Change| c.cell(cell) == Some(seen) && c.called < answered;
    file.changes.iter().filter(makes).any(|c| !file.changes.iter().any(|new| hides(c, new)))
}

/// The sizes a look may see: an error names what was expected.
pub fn may_be_long(file: &File, cells: u32, called: Ticket, answered: Ticket, certain: impl Fn(&Change) -> bool) -> Result<(), String> {
    let sets = |c: &Change| match &c.what {
        What::Begin(cells) => Some(cells.len() as u32),
        What::Cut { cells } => Some(*cells),
        What::Write { .. } => None,
    };
    let end = |c: &Change| match &c.what {
        What::Write { at, cells, .. } if *cells > 0 => Some(at + cells),
        _ => None,
    };
    let mut expected = Vec::new();
    for base in file.changes.iter().filter(|c| sets(c).is_some() && c.called < answered) {
        let later = |c: &&Change| sets(c).is_some() && certain(c) && base.over < c.called && c.over < called;
        if file.changes.iter().any(|c| later(&c)) {
            continue;
        }
        let from = sets(base).unwrap_or(0);
        let sure = |c: &&Change| certain(c) && c.called > base.over && c.over < called;
        let least = file.changes.iter().filter(sure).filter_map(end).fold(from, u32::max);
        let most = file.changes.iter().filter(|c| c.called < answered && c.over > base.called).filter_map(end).fold(from, u32::max);
        if (least..=most).contains(&cells) {
            return Ok(());
        }
        expected.push(format!("{least}..={most}"));
    }
    Err(format!("{cells} cells long, expected one of {expected:?}"))
}
