//! What the simulated disk holds: what processes see, what is stable, and every version between the two.

use super::rng::Rng;
use crate::flush::{FlushGroup, Running};
use crate::units::BLOCK;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::task::Waker;

/// One block's bytes, shared between versions and between copies of a disk.
pub(super) type Block = Arc<[u8; BLOCK]>;

static ZERO: LazyLock<Block> = LazyLock::new(|| Arc::new([0; BLOCK]));

pub(super) fn zero() -> Block {
    ZERO.clone()
}

pub(super) fn block_of(data: &[u8]) -> Block {
    let data: &[u8; BLOCK] = data.try_into().expect("whole blocks only");
    if data == &**ZERO { zero() } else { Arc::new(*data) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

/// A change of names that happens whole or not at all.
pub(super) type NameChange = Vec<(PathBuf, Option<Node>)>;

#[derive(Clone, Default)]
pub(super) struct Cell {
    /// Stable bytes; none while the block is a hole, or its first filling is not stable.
    pub stable: Option<Block>,
    /// Versions since, oldest first, each with the number of the write that made it.
    pub versions: Vec<(u64, Block)>,
}

impl Cell {
    pub fn now(&self) -> Block {
        self.versions.last().map(|v| v.1.clone()).or_else(|| self.stable.clone()).unwrap_or_else(zero)
    }
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    /// Bytes.
    pub len: u64,
    pub stable_len: u64,
    /// Changes of the length, and how many of them are stable: while they differ a flush is this file's own.
    pub grown: u64,
    pub stable_grown: u64,
    pub cells: BTreeMap<u64, Cell>,
    /// Cells with versions.
    pub dirty: BTreeSet<u64>,
    pub mode: u32,
}

/// Files whose own flush a flight is, each with its length and the number of its changes at the start.
pub(super) type Own = BTreeMap<u64, (u64, u64)>;

/// A flush on its way.
pub(super) struct Flight {
    pub running: Running,
    /// Polls of its waiters until it ends.
    pub countdown: u32,
    /// (inode, block, newest write covered).
    pub blocks: Vec<(u64, u64, u64)>,
    /// inode → (length, changes of it): files whose own flush this is.
    pub own: Own,
}

/// One flush domain.
pub(super) struct Domain {
    pub group: Arc<FlushGroup>,
    pub flight: Option<Flight>,
    /// Files whose own flush the next flight is.
    pub asked: BTreeSet<u64>,
    pub flushes: u64,
    /// Waiters to wake when held flushes are let go.
    pub held: Vec<Waker>,
}

#[derive(Default)]
pub(super) struct Faults {
    pub write_in: Option<(u64, i32)>,
    pub read_in: Option<(u64, i32)>,
    pub flush_in: Option<(u64, i32)>,
    /// Operations until the power goes.
    pub cut_in: Option<u64>,
    pub cut: bool,
    pub lying: bool,
    pub hold: bool,
    /// Bytes.
    pub capacity: Option<u64>,
}

pub(super) struct State {
    pub inodes: BTreeMap<u64, Inode>,
    pub names: BTreeMap<PathBuf, Node>,
    pub stable_names: BTreeMap<PathBuf, Node>,
    pub unsynced: Vec<NameChange>,
    pub next_inode: u64,
    pub next_write: u64,
    /// Writes begun and not completed.
    pub in_flight: BTreeSet<u64>,
    /// By folder, or one under the empty path.
    pub domains: BTreeMap<PathBuf, Domain>,
    pub faults: Faults,
    /// Blocks that hold bytes.
    pub allocated: u64,
    pub ops: u64,
    pub rng: Rng,
}

impl State {
    pub fn new(seed: u64) -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Dir), (PathBuf::new(), Node::Dir)]);
        Self {
            inodes: BTreeMap::new(),
            names: root.clone(),
            stable_names: root,
            unsynced: Vec::new(),
            next_inode: 1,
            next_write: 1,
            in_flight: BTreeSet::new(),
            domains: BTreeMap::new(),
            faults: Faults::default(),
            allocated: 0,
            ops: 0,
            rng: Rng::new(seed),
        }
    }

    /// Counts one step at which the power may go.
    pub fn step(&mut self) -> Result<(), i32> {
        if self.faults.cut {
            return Err(libc::EIO);
        }
        self.ops += 1;
        match &mut self.faults.cut_in {
            Some(0) => {
                self.faults.cut = true;
                Err(libc::EIO)
            }
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub fn file(&self, path: &Path) -> Option<u64> {
        match self.names.get(path) {
            Some(Node::File(id)) => Some(*id),
            _ => None,
        }
    }

    pub fn is_dir(&self, path: &Path) -> bool {
        self.names.get(path) == Some(&Node::Dir)
    }

    pub fn change_names(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.unsynced.push(change);
    }

    /// Applies one block of the write `number`.
    pub fn put(&mut self, id: u64, at: u64, number: u64, block: Block) {
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        let cell = inode.cells.entry(at).or_insert_with(|| {
            self.allocated += 1;
            Cell::default()
        });
        cell.versions.push((number, block));
        inode.dirty.insert(at);
        let end = (at + 1) * BLOCK as u64;
        if end > inode.len {
            inode.len = end;
            inode.grown += 1;
        }
    }

    /// What a flush that starts now covers.
    pub fn cover(&self, domain: &Path, per_dir: bool) -> Vec<(u64, u64, u64)> {
        let mut out = Vec::new();
        for (path, node) in &self.names {
            let Node::File(id) = node else { continue };
            if per_dir && path.parent() != Some(domain) {
                continue;
            }
            let Some(inode) = self.inodes.get(id) else { continue };
            for at in &inode.dirty {
                let whole = inode.cells[at].versions.iter().rev().find(|v| !self.in_flight.contains(&v.0));
                out.extend(whole.map(|v| (*id, *at, v.0)));
            }
        }
        out
    }

    /// Makes stable what a flush covered.
    pub fn settle(&mut self, blocks: &[(u64, u64, u64)], own: &Own) {
        for (id, at, number) in blocks {
            let Some(inode) = self.inodes.get_mut(id) else { continue };
            let Some(cell) = inode.cells.get_mut(at) else { continue };
            // The first filling of a hole is a change of the block map: only the file's own flush makes it stable.
            if cell.stable.is_none() && !own.contains_key(id) {
                continue;
            }
            if let Some(i) = cell.versions.iter().position(|v| v.0 == *number) {
                cell.stable = cell.versions.drain(..=i).next_back().map(|v| v.1);
            }
            if cell.versions.is_empty() {
                inode.dirty.remove(at);
            }
        }
        for (id, (len, grown)) in own {
            if let Some(inode) = self.inodes.get_mut(id) {
                (inode.stable_len, inode.stable_grown) = (*len, *grown);
            }
        }
    }
}

pub(super) fn apply(names: &mut BTreeMap<PathBuf, Node>, change: &NameChange) {
    for (path, node) in change {
        match node {
            Some(node) => names.insert(path.clone(), *node),
            None => names.remove(path),
        };
    }
}
