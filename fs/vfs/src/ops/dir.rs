//! readdir and readdirplus, by stable cookies: `.` is 1, `..` is 2, names follow in metadata's order.
//!
//! What always holds: nothing is remembered between calls, so a reader may come back to any cookie at any time, whatever was added or removed.

use crate::session::Session;
use crate::types::{DirItem, EntryReply, Error, HandleId, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_meta_client::{Grant, Use};
use holdfast_objstore_proto::meta::{Attr, Kind};
use std::time::Duration;

/// Entries asked of metadata at once: about what one reply of the kernel's smallest size holds.
const BATCH: usize = 128;
const BATCH_PLUS: usize = 32;

impl Vfs {
    /// Offers entries with cookies above `after` to `fill` until it answers false, or they end.
    pub async fn readdir(&self, id: HandleId, after: u64, fill: &mut (dyn FnMut(&DirItem) -> bool + Send)) -> Result<()> {
        self.list(id, after, false, fill).await
    }

    /// The same with what a lookup of each would answer. Entries that `fill` takes count as looked up, but `.` and `..` do not.
    pub async fn readdirplus(&self, id: HandleId, after: u64, fill: &mut (dyn FnMut(&DirItem) -> bool + Send)) -> Result<()> {
        self.list(id, after, true, fill).await
    }

    /// An entry's attributes are worth a grant: whoever lists them looks at them next.
    async fn entered_by_list(&self, s: &Session, attr: Attr, entry_valid: Duration) -> EntryReply {
        let inode = self.looked_up(attr.ino, attr.kind);
        let held = inode.state.lock().lease.is_held();
        let (attr, grant) = match !held && !entry_valid.is_zero() {
            // What it cannot have now, it may ask for later.
            true => s.meta.getattr(attr.ino).await.unwrap_or((attr, Grant::Through)),
            false => (attr, Grant::Through),
        };
        self.granted(s, &inode, &attr, grant, Use::Read);
        self.entry_of(&inode, &attr, entry_valid)
    }

    async fn list(&self, id: HandleId, mut after: u64, plus: bool, fill: &mut (dyn FnMut(&DirItem) -> bool + Send)) -> Result<()> {
        self.metrics().vfs_ops.inc();
        let handle = self.handle(id)?;
        let dir = self.in_dir_inode(handle.inode.clone())?;
        let s = self.session().await?;
        let batch = if plus { BATCH_PLUS } else { BATCH };
        for (cookie, name) in [(1, "."), (2, "..")] {
            if after < cookie {
                let ino = self
                    .dot(&s, dir.dir.ino, name.as_bytes())
                    .await
                    .or_else(|e| if e == Error::Stale { Ok(dir.dir.ino) } else { Err(e) })?;
                let item = DirItem {
                    node: self.node_of(ino),
                    name: Bytes::from_static(name.as_bytes()),
                    kind: Kind::Dir,
                    next: cookie,
                    entry: None,
                };
                if !fill(&item) {
                    return Ok(());
                }
                after = cookie;
            }
        }
        loop {
            let _granting = self.granting();
            let (entries, grant) = s.meta.readdir(dir.dir.ino, after, batch).await.map_err(|e| self.meta_error(&s, e))?;
            if entries.is_empty() {
                return Ok(());
            }
            for (e, attr) in entries {
                after = e.cookie;
                let mut item = DirItem { node: self.node_of(e.ino), name: e.name.clone(), kind: e.kind, next: e.cookie, entry: None };
                if plus {
                    let entry_valid = self.name_valid(&s, &dir.dir, &e.name, Some(grant));
                    // Counted before it is offered, so that it cannot go meanwhile.
                    item.entry = Some(self.entered_by_list(&s, attr, entry_valid).await);
                }
                if !fill(&item) {
                    if plus {
                        self.forget(&[(item.node, 1)]);
                    }
                    return Ok(());
                }
            }
        }
    }
}
