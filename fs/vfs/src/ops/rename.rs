//! rename, with NOREPLACE and EXCHANGE; every other flag is refused.

use super::check_name;
use crate::session::unexpected;
use crate::types::{Error, RenameArgs, Result};
use crate::vfs::Vfs;
use holdfast_objstore_proto::meta::{Command, RenameMode, Reply};

impl Vfs {
    pub async fn rename(&self, a: RenameArgs) -> Result<()> {
        self.metrics().vfs_ops.inc();
        check_name(&a.name)?;
        check_name(&a.new_name)?;
        let mode = match a.flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Error::Invalid),
        };
        let from_dir = self.in_dir(a.parent)?;
        let to_dir = self.in_dir(a.new_parent)?;
        let s = self.session().await?;
        let rename = Command::Rename { from_dir: from_dir.dir.ino, from: a.name, to_dir: to_dir.dir.ino, to: a.new_name, mode };
        match self.submit(&s, rename).await? {
            Reply::Renamed { moved, replaced } => {
                let now = self.now();
                if let Some(inode) = self.inodes.get(&moved).map(|i| i.clone())
                    && let Some(own) = &mut inode.state.lock().attr
                {
                    own.ctime = own.ctime.max(now);
                }
                if let Some((ino, nlink)) = replaced {
                    self.lost_name(ino, nlink);
                }
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }
}
