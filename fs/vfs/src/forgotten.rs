//! Inodes that neither the kernel nor a handle of this mount knows any more, and that still hold what was not published.
//!
//! What always holds: what such an inode holds is dropped only when the service says that the inode is gone. One without a name may be
//! open on another mount, or about to be opened by who found the name before it went: those see what was written here.
//! What it leaves out: when an inode leaves the table (`Vfs::reap`).

use crate::inode::{Inode, State};
use crate::vfs::Vfs;
use holdfast_meta_client::MetaError;
use std::sync::Arc;
use std::time::Duration;

/// Most files that lose their last name are gone for good a little later: what they hold is not worth writing before it is clear.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_MAX: u32 = 4;

fn is_known(st: &State) -> bool {
    st.lookups > 0 || st.opens > 0
}

impl Vfs {
    /// Publishes what the inode holds, or drops it when it is gone.
    pub(crate) async fn part_with(&self, inode: &Arc<Inode>) {
        let is_nameless = |st: &State| st.attr.as_ref().is_some_and(|a| a.nlink == 0);
        for _ in 0..LOOKS_MAX {
            let waits = {
                let st = inode.state.lock();
                is_nameless(&st) && !is_known(&st) && !st.is_clean()
            };
            if !waits || self.is_stopping() {
                break;
            }
            let Ok(s) = self.session().await else { break };
            match s.meta.getattr(inode.ino).await {
                Err(MetaError::Stale) => self.drop_gone(inode),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
        // Its own errors are recorded for whoever opens it next.
        let _ = self.sync_inode(inode).await;
        if inode.state.lock().is_clean() {
            self.reap(inode);
        }
    }

    /// The inode is no more: nobody can read what is held of it.
    fn drop_gone(&self, inode: &Inode) {
        let mut st = inode.state.lock();
        if !is_known(&st) {
            st.pages.truncate(0);
            st.unpublished.truncate(0);
            st.attr_published = st.attr_changes;
            st.clear_suid = false;
        }
    }
}
