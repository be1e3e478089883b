//! create, mknod (with mkdir) and symlink: new inodes under new names, durable when answered.

use super::check_name;
use crate::acquire::Mode;
use crate::inode::Inode;
use crate::session::Session;
use crate::types::{Caller, CreateArgs, CreateReply, EntryReply, Error, LookupReply, MknodArgs, NodeId, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_meta_client::Use;
use holdfast_objstore_proto::meta::{Attr, Command, Kind, Owner};
use std::sync::Arc;

/// Bytes of a symlink's target, at most.
const TARGET_MAX: usize = 4095;

/// What is to be made.
struct New {
    kind: Kind,
    mode: u32,
    rdev: u32,
    target: Bytes,
    /// What it will be used for at once.
    using: Use,
}

impl Vfs {
    /// Makes a regular file and opens it; opens the one that is there unless O_EXCL says otherwise.
    pub async fn create(&self, caller: Caller, a: CreateArgs) -> Result<CreateReply> {
        self.metrics().vfs_ops.inc();
        let new = New { kind: Kind::File, mode: a.mode, rdev: 0, target: Bytes::new(), using: Use::Write };
        let made = match self.make(caller, a.parent, &a.name, new).await {
            Ok((inode, entry)) => {
                let open = self.open_inode(&inode, a.open.flags, false).await;
                return self.opened_or_forgotten(entry, open);
            }
            Err(e) => e,
        };
        if made != Error::Exists || a.open.flags & libc::O_EXCL != 0 {
            return Err(made);
        }
        // Another door made it after the kernel looked.
        match self.lookup(caller, a.parent, a.name).await? {
            LookupReply::Found(entry) => {
                let open = self.open(entry.attr.node, a.open).await;
                self.opened_or_forgotten(entry, open)
            }
            LookupReply::Absent { .. } => Err(Error::NotFound),
        }
    }

    fn opened_or_forgotten(&self, entry: EntryReply, open: Result<crate::types::OpenReply>) -> Result<CreateReply> {
        match open {
            Ok(open) => Ok(CreateReply { entry, open }),
            Err(e) => {
                self.forget(&[(entry.attr.node, 1)]);
                Err(e)
            }
        }
    }

    /// Makes anything but a symlink, without opening it.
    pub async fn mknod(&self, caller: Caller, a: MknodArgs) -> Result<EntryReply> {
        self.metrics().vfs_ops.inc();
        if a.kind == Kind::Symlink {
            return Err(Error::Invalid);
        }
        let new = New { kind: a.kind, mode: a.mode, rdev: a.rdev, target: Bytes::new(), using: Use::Read };
        Ok(self.make(caller, a.parent, &a.name, new).await?.1)
    }

    pub async fn symlink(&self, caller: Caller, parent: NodeId, name: Bytes, target: Bytes) -> Result<EntryReply> {
        self.metrics().vfs_ops.inc();
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > TARGET_MAX {
            return Err(Error::NameTooLong);
        }
        let new = New { kind: Kind::Symlink, mode: 0o777, rdev: 0, target, using: Use::Read };
        Ok(self.make(caller, parent, &name, new).await?.1)
    }

    pub async fn readlink(&self, node: NodeId) -> Result<Bytes> {
        self.metrics().vfs_ops.inc();
        let s = self.session().await?;
        s.meta.readlink(self.ino_of(node)).await.map_err(|e| self.meta_error(&s, e))
    }

    async fn make(&self, caller: Caller, parent: NodeId, name: &Bytes, new: New) -> Result<(Arc<Inode>, EntryReply)> {
        check_name(name)?;
        let dir = self.in_dir(parent)?;
        let s = self.session().await?;
        let ino = s.ids.inode().await.map_err(|e| self.meta_error(&s, e))?;
        let create = Command::Create {
            dir: dir.dir.ino,
            name: name.clone(),
            ino,
            kind: new.kind,
            mode: new.mode & 0o7777,
            owner: Owner { uid: caller.uid, gid: caller.gid },
            rdev: new.rdev,
            target: new.target,
        };
        let attr = self.submit_attr(&s, create).await?;
        let inode = self.looked_up(attr.ino, attr.kind);
        let (attr, entry_valid) = self.named(&s, &dir.dir, name, &inode, attr, new.using).await;
        Ok((inode.clone(), self.entry_of(&inode, &attr, entry_valid)))
    }

    /// Grants for a name this session has just made. Without them the reply just may not be kept.
    pub(crate) async fn named(
        &self,
        s: &Session,
        dir: &Inode,
        name: &Bytes,
        inode: &Arc<Inode>,
        attr: Attr,
        using: Use,
    ) -> (Attr, std::time::Duration) {
        let attr = match self.hold(inode, using).await {
            Ok(Mode::Through(newer)) => newer,
            _ => attr,
        };
        (attr, self.name_valid(s, dir, name, None))
    }
}
