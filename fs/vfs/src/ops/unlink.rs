//! unlink and rmdir.
//!
//! What always holds: a file that is open keeps its data until its last handle goes; one that is not, and has no name left, is not written back.

use super::check_name;
use crate::inode::Inode;
use crate::session::unexpected;
use crate::types::{NodeId, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, Reply};
use std::sync::Arc;

impl Vfs {
    pub async fn unlink(&self, parent: NodeId, name: Bytes) -> Result<()> {
        self.metrics().vfs_ops.inc();
        check_name(&name)?;
        let dir = self.in_dir(parent)?;
        let s = self.session().await?;
        match self.submit(&s, Command::Unlink { dir: dir.dir.ino, name }).await? {
            Reply::Unlinked { ino, nlink } => self.lost_name(ino, nlink),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    pub async fn rmdir(&self, parent: NodeId, name: Bytes) -> Result<()> {
        self.metrics().vfs_ops.inc();
        check_name(&name)?;
        let dir = self.in_dir(parent)?;
        let s = self.session().await?;
        match self.submit(&s, Command::Rmdir { dir: dir.dir.ino, name }).await? {
            Reply::Unlinked { ino, nlink } => self.lost_name(ino, nlink),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    /// An inode lost a name.
    pub(crate) fn lost_name(&self, ino: InodeId, nlink: u32) {
        let Some(inode) = self.inodes.get(&ino).map(|i| i.clone()) else { return };
        {
            let mut st = inode.state.lock();
            let now = self.now();
            if let Some(a) = &mut st.attr {
                a.nlink = nlink;
                a.ctime = a.ctime.max(now);
            }
        }
        self.drop_nameless(&inode);
    }

    /// An inode without a name that neither a handle nor the kernel knows can never be read again: its dirty data need not be written.
    /// While the kernel knows it, somebody who found the name just before it went may still open it.
    pub(crate) fn drop_nameless(&self, inode: &Arc<Inode>) {
        let mut st = inode.state.lock();
        if st.opens == 0 && st.lookups == 0 && st.attr.as_ref().is_some_and(|a| a.nlink == 0) {
            st.pages.truncate(0);
            st.unpublished.truncate(0);
            st.attr_published = st.attr_changes;
            st.clear_suid = false;
        }
    }
}
