//! forget: the kernel drops nodes from its memory.

use crate::types::{NodeId, ROOT};
use crate::vfs::Vfs;

impl Vfs {
    /// Gives back lookups: (node, how many). What is still unpublished is written first, in the background.
    pub fn forget(&self, nodes: &[(NodeId, u64)]) {
        for &(node, n) in nodes {
            if node == ROOT {
                continue;
            }
            let Ok(inode) = self.inode(node) else { continue };
            let gone = {
                let mut st = inode.state.lock();
                st.lookups = st.lookups.saturating_sub(n);
                st.lookups == 0
            };
            if gone {
                self.reap(&inode);
            }
        }
    }
}
