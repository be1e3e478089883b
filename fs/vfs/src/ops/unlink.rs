//! unlink and rmdir.
//!
//! What always holds: a file that is open, on whichever mount, keeps its data until its last handle goes.
//! What it leaves out: what becomes of data that was not written when the last name went (forgotten).

use super::check_name;
use crate::session::unexpected;
use crate::types::{NodeId, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, Reply};

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
    }
}
