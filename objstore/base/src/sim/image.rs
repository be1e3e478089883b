//! Looking at everything a simulated disk holds.

use super::disk::SimDisk;
use super::state::Node;
use std::path::Path;

impl SimDisk {
    /// Shows every name in order and, for files, every block that was written as a reader sees it: (path, block number, bytes).
    /// A name comes first, with no bytes.
    pub fn visit(&self, show: &mut dyn FnMut(&Path, u64, &[u8])) {
        let s = self.shared.state.lock();
        for (path, node) in &s.names {
            let Node::File(id) = node else {
                show(path, 0, &[]);
                continue;
            };
            let Some(inode) = s.inodes.get(id) else { continue };
            show(path, inode.len, &[]);
            for (at, cell) in &inode.cells {
                show(path, *at, &cell.now()[..]);
            }
        }
    }
}
