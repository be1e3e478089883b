//! After an eviction: everything unpublished is lost and says so once per handle; caches are dropped; a new session takes over.
//!
//! What always holds: nothing of the old session is used again: no grant, no id, no unpublished stripe; never a silent resume.

use crate::session::{Events, Session};
use crate::types::Error;
use crate::vfs::Vfs;
use holdfast_objstore_base::failpoint;
use std::sync::Arc;
use std::time::Duration;

const RECONNECT: Duration = Duration::from_millis(100);

impl Vfs {
    /// The session of this generation is over. Never blocks.
    pub(crate) fn evicted(&self, generation: u64) {
        let old = self.session.lock().clone();
        if old.generation != generation || !old.end() {
            return;
        }
        self.metrics().vfs_evictions.inc();
        failpoint::reached("vfs.evicted");
        tracing::warn!(session = %old.id, "session evicted: unpublished data is lost");
        let mut inodes: Vec<_> = self.inodes.iter().map(|i| i.clone()).collect();
        // In an order that does not depend on the table's.
        inodes.sort_unstable_by_key(|i| i.ino);
        for inode in inodes {
            let lost = !inode.state.lock().is_clean();
            if lost {
                self.record_error(&old, &inode, Error::Io);
            }
            let mut st = inode.state.lock();
            self.bury(st.discard());
            st.lease.reset();
            (st.gate, st.write_gate) = (None, None);
            inode.changed.notify_waiters();
        }
        let Some(me) = self.me.upgrade() else { return };
        if !self.is_stopping() {
            self.runtime.spawn(async move { me.reconnect(generation + 1).await });
        }
    }

    async fn reconnect(&self, generation: u64) {
        let mut nodes: Vec<_> = self.inodes.iter().map(|i| i.ino).collect();
        nodes.sort_unstable();
        self.notify.inc_epoch().await;
        for ino in nodes {
            self.notify.inval_inode(self.node_of(ino), 0, 0).await;
        }
        let session = loop {
            let events = Arc::new(Events::default());
            match self.service.connect(&self.config.client, true, events.clone()).await {
                Ok(meta) => {
                    events.attach(self.me.clone(), generation);
                    break Arc::new(Session::new(meta, generation));
                }
                Err(e) => {
                    tracing::warn!(error = %e, "cannot reconnect yet");
                    tokio::time::sleep(RECONNECT).await;
                }
            }
        };
        // Inodes without a name lived only by the old session's handles.
        let mut handles: Vec<_> = self.handles.iter().map(|h| (*h.key(), h.clone())).collect();
        handles.sort_unstable_by_key(|h| h.0);
        let mut counted = Vec::new();
        for (id, handle) in handles {
            match session.meta.opened(handle.inode.ino).await {
                Ok(()) => counted.push((id, handle)),
                Err(_) => {
                    failpoint::reached("vfs.handle_lost");
                    handle.lose()
                }
            }
        }
        {
            let mut current = self.session.lock();
            for (id, handle) in counted {
                // Closed since it was counted: its end went to the old session.
                match self.handles.contains_key(&id) {
                    true => handle.count_in(generation),
                    false => session.meta.closed(handle.inode.ino),
                }
            }
            *current = session;
        }
        self.session_changed.notify_waiters();
    }
}
