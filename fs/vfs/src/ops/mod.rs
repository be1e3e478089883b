//! The operations, one file each (or one per family that shares its rules).

mod attr;
mod dir;
mod forget;
mod fsync;
mod link;
mod lookup;
mod make;
mod open;
mod read;
mod rename;
mod seek;
mod statfs;
mod truncate;
mod unlink;
mod write;

use crate::inode::Inode;
use crate::types::{Error, NodeId, Result};
use crate::vfs::Vfs;
use holdfast_objstore_proto::meta::Kind;
use std::sync::Arc;

/// Bytes of a name in a tree, at most.
pub(crate) const NAME_MAX: usize = 255;

pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => Err(Error::Invalid),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// An operation of ours under way in a directory: keeps the inode in the table.
pub(crate) struct DirOp<'a> {
    vfs: &'a Vfs,
    pub dir: Arc<Inode>,
}

impl Vfs {
    pub(crate) fn in_dir(&self, node: NodeId) -> Result<DirOp<'_>> {
        self.in_dir_inode(self.inode(node)?)
    }

    pub(crate) fn in_dir_inode(&self, dir: Arc<Inode>) -> Result<DirOp<'_>> {
        if dir.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        dir.state.lock().dir_ops += 1;
        Ok(DirOp { vfs: self, dir })
    }
}

impl Drop for DirOp<'_> {
    fn drop(&mut self) {
        let forgotten = {
            let mut st = self.dir.state.lock();
            st.dir_ops -= 1;
            st.dir_ops == 0 && st.lookups == 0 && st.opens == 0
        };
        if forgotten {
            self.vfs.reap(&self.dir);
        }
    }
}
