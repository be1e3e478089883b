//! link: another name for a file.

use super::check_name;
use crate::types::{EntryReply, Error, NodeId, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_meta_client::Use;
use holdfast_objstore_proto::meta::{Command, Kind};

impl Vfs {
    pub async fn link(&self, node: NodeId, new_parent: NodeId, new_name: Bytes) -> Result<EntryReply> {
        self.metrics().vfs_ops.inc();
        check_name(&new_name)?;
        let inode = self.inode(node)?;
        if inode.kind == Kind::Dir {
            return Err(Error::NotPermitted);
        }
        let dir = self.in_dir(new_parent)?;
        let s = self.session().await?;
        let attr = self.submit_attr(&s, Command::Link { dir: dir.dir.ino, name: new_name.clone(), ino: inode.ino }).await?;
        self.learned(&s, &inode, &attr);
        let inode = self.looked_up(attr.ino, attr.kind);
        let (attr, entry_valid) = self.named(&s, &dir.dir, &new_name, &inode, attr, Use::Read).await;
        Ok(self.entry_of(&inode, &attr, entry_valid))
    }
}
