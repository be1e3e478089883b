//! Setting a file's size: part of the inode's numbering.
//!
//! What always holds: what lies beyond the new size is gone from every layer here before metadata hears of it, so that nothing written before can
//! come back when the file grows again.

use crate::acquire::Mode;
use crate::inode::{Inode, without_suid};
use crate::ops::write::FILE_BYTES_MAX;
use crate::types::{Error, Result};
use crate::vfs::Vfs;
use holdfast_meta_client::{MetaError, Use};
use holdfast_objstore_proto::meta::{AttrChange, Command, Reply, TimeNs};
use std::sync::Arc;

/// Tries against others who publish to the same file.
const TRIES: usize = 1000;

/// The size is settled, whatever came of it. A map read meanwhile may be of before.
struct Truncating<'a> {
    inode: &'a Inode,
    size: u64,
    committed: bool,
}

impl Drop for Truncating<'_> {
    fn drop(&mut self) {
        let mut st = self.inode.state.lock();
        // Still marked: the grant under which it began is held. Otherwise nobody knows whose map this is.
        match st.truncating.take() {
            Some(_) if self.committed => st.map.truncate(self.size),
            _ => st.map.forget(),
        }
    }
}

impl Vfs {
    pub(crate) async fn truncate(&self, inode: &Arc<Inode>, size: u64, kill_suidgid: bool) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        let now = self.now();
        let had = loop {
            if let Some(mode) = self.truncate_once(inode, size, now).await? {
                break mode;
            }
        };
        if kill_suidgid && without_suid(had) != had {
            self.change_attr(inode, AttrChange { mode: Some(without_suid(had)), ctime: Some(now), ..Default::default() }).await?;
        }
        Ok(())
    }

    /// Answers the mode. `None`: a grant came while the size was to be set without one, begin again under it.
    async fn truncate_once(&self, inode: &Arc<Inode>, size: u64, now: TimeNs) -> Result<Option<u32>> {
        let mode = self.hold(inode, Use::Write).await?;
        let s = self.session().await?;
        let _order = inode.order.lock().await;
        let mut truncating = Truncating { inode, size, committed: false };
        let mut number = None;
        if let Mode::Held = mode {
            let mut st = inode.state.lock();
            let st = &mut *st;
            if let Some(a) = &mut st.attr {
                if size < a.size {
                    st.pages.truncate(size);
                    st.unpublished.truncate(size);
                    st.map.truncate(size);
                }
                (a.size, a.mtime, a.ctime) = (size, now, now);
                st.reserved_end = size;
                st.truncating = Some(size);
                number = Some(a.number + 1);
            }
        }
        for _ in 0..TRIES {
            let next = match number.take() {
                Some(n) => n,
                None => {
                    let _granting = self.granting();
                    let (attr, grant) = s.meta.getattr(inode.ino).await.map_err(|e| self.meta_error(&s, e))?;
                    if self.granted(&s, inode, &attr, grant, Use::Read) && matches!(mode, Mode::Through(_)) {
                        return Ok(None);
                    }
                    attr.number + 1
                }
            };
            match self.submit_raw(&s, Command::Truncate { ino: inode.ino, number: next, size, mtime: now }).await {
                Ok(Reply::Attr(attr)) => {
                    self.learned(&s, inode, &attr);
                    truncating.committed = true;
                    return Ok(Some(attr.mode));
                }
                Ok(other) => return Err(crate::session::unexpected(other)),
                Err(MetaError::PublishRefused(_)) => tokio::task::yield_now().await,
                Err(e) => return Err(self.meta_error(&s, e)),
            }
        }
        Err(Error::Io)
    }
}
