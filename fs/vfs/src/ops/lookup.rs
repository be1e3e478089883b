//! lookup: one name in a directory.

use super::NAME_MAX;
use crate::inode::Inode;
use crate::session::Session;
use crate::types::{Caller, EntryReply, Error, LookupReply, NodeId, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_meta_client::{Grant, Use};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::Attr;
use std::sync::Arc;
use std::time::Duration;

/// Names remembered per directory for kernels without epochs; names beyond it are not kept by the kernel.
const NAMES_MAX: usize = 4096;

impl Vfs {
    pub async fn lookup(&self, _caller: Caller, parent: NodeId, name: Bytes) -> Result<LookupReply> {
        self.metrics().vfs_ops.inc();
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let dir = self.in_dir(parent)?;
        let s = self.session().await?;
        self.has_epochs().await;
        let _granting = self.granting();
        if matches!(&name[..], b"." | b"..") {
            let ino = self.dot(&s, dir.dir.ino, &name).await?;
            let (attr, grant) = s.meta.getattr(ino).await.map_err(|e| self.meta_error(&s, e))?;
            return Ok(LookupReply::Found(self.entered(&s, &attr, grant, Duration::ZERO)));
        }
        let looked = s.meta.lookup(dir.dir.ino, name.clone()).await.map_err(|e| self.meta_error(&s, e))?;
        let entry_valid = self.name_valid(&s, &dir.dir, &name, Some(looked.dir_grant));
        Ok(match looked.entry {
            Some(e) => LookupReply::Found(self.entered(&s, &e.attr, looked.grant, entry_valid)),
            None => LookupReply::Absent { entry_valid },
        })
    }

    /// The inode of `.` or `..`; a mount ends at its root.
    pub(crate) async fn dot(&self, s: &Session, dir: InodeId, name: &[u8]) -> Result<InodeId> {
        if name == b"." || dir == self.bucket.root {
            return Ok(dir);
        }
        s.meta.parent(dir).await.map_err(|e| self.meta_error(s, e))
    }

    /// Counts a lookup and answers as lookup does.
    pub(crate) fn entered(&self, s: &Session, attr: &Attr, grant: Grant, entry_valid: Duration) -> EntryReply {
        let inode = self.looked_up(attr.ino, attr.kind);
        self.granted(s, &inode, attr, grant, Use::Read);
        self.entry_of(&inode, attr, entry_valid)
    }

    pub(crate) fn entry_of(&self, inode: &Arc<Inode>, committed: &Attr, entry_valid: Duration) -> EntryReply {
        let (attr, attr_valid) = self.attr_of(inode, committed);
        EntryReply { attr, attr_valid, entry_valid }
    }

    /// How long the kernel may keep a name of `dir`: as long as a recall can take it out again.
    pub(crate) fn name_valid(&self, s: &Session, dir: &Inode, name: &Bytes, grant: Option<Grant>) -> Duration {
        let mut st = dir.state.lock();
        if !self.is_current(s) {
            return Duration::ZERO;
        }
        if let Some(grant) = grant {
            if let Some(stamp) = self.recent.lock().seen(dir.ino) {
                st.lease.seen_recall(stamp);
            }
            st.lease.grant(grant, Use::Read);
        }
        if !st.lease.may_cache() {
            return Duration::ZERO;
        }
        if self.epochs_missing() && !st.names.contains(name) {
            if st.names.len() >= NAMES_MAX {
                return Duration::ZERO;
            }
            st.names.insert(name.clone());
        }
        self.config.valid
    }
}
