//! What a power cut or a killed process leaves behind.

use super::disk::SimDisk;
use super::rng::Rng;
use super::state::{Cell, Inode, Node, State, apply};
use crate::units::BLOCK;
use std::collections::BTreeMap;

impl SimDisk {
    /// The disk as a power cut now could leave it, chosen by `seed`. This one goes on as it was: one moment can be tried with many
    /// seeds. End it with [`SimDisk::cut_now`] so that what still runs on it fails.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let old = self.shared.state.lock();
        let mut rng = Rng::new(seed);
        let mut names = old.stable_names.clone();
        for change in &old.unsynced {
            if rng.coin() && applies(&names, change) {
                apply(&mut names, change);
            }
        }
        let mut new = State::new(seed);
        for node in names.values() {
            let Node::File(id) = node else { continue };
            let inode = torn(&old.inodes[id], &mut rng);
            new.allocated += inode.cells.len() as u64;
            new.inodes.insert(*id, inode);
        }
        new.stable_names = names.clone();
        new.names = names;
        SimDisk::from_state(carry(&old, new), self.shared.options)
    }

    /// The disk after the process died and another starts: everything written is there, nothing more is stable than was.
    pub fn kill(&self) -> SimDisk {
        let old = self.shared.state.lock();
        let mut new = State::new(old.ops);
        new.inodes = old.inodes.clone();
        new.names = old.names.clone();
        new.stable_names = old.stable_names.clone();
        new.unsynced = old.unsynced.clone();
        new.allocated = old.allocated;
        SimDisk::from_state(carry(&old, new), self.shared.options)
    }
}

/// What survives any end: numbering and the size of the device. Faults do not.
fn carry(old: &State, mut new: State) -> State {
    new.next_inode = old.next_inode;
    new.next_write = old.next_write;
    new.faults.capacity = old.faults.capacity;
    new
}

/// Whether a change still makes sense after earlier ones were lost: a rename needs its source.
fn applies(names: &BTreeMap<std::path::PathBuf, Node>, change: &[(std::path::PathBuf, Option<Node>)]) -> bool {
    match change {
        [(from, None), (_, Some(node))] => names.get(from) == Some(node),
        _ => true,
    }
}

fn torn(old: &Inode, rng: &mut Rng) -> Inode {
    let len = if old.len != old.stable_len && rng.coin() { old.len } else { old.stable_len };
    let mut cells = BTreeMap::new();
    for (at, cell) in &old.cells {
        let pick = rng_pick(cell, rng);
        if let Some(block) = pick
            && *at < len.div_ceil(BLOCK as u64)
        {
            cells.insert(*at, Cell { stable: Some(block), versions: Vec::new() });
        }
    }
    Inode { len, stable_len: len, cells, mode: old.mode, ..Inode::default() }
}

fn rng_pick(cell: &Cell, rng: &mut Rng) -> Option<super::state::Block> {
    if cell.versions.is_empty() {
        return cell.stable.clone();
    }
    match rng.below(cell.versions.len() as u64 + 1) {
        0 => cell.stable.clone(),
        n => Some(cell.versions[n as usize - 1].1.clone()),
    }
}
