//! Taking a grant back from its holder, and waiting for it.
//!
//! What always holds: a recall that was begun ends: answered, or by the eviction of its holder at the deadline. It runs on its own,
//! so one who asked for it may lose interest.
//! What it leaves out: who is recalled when (`meta/core`'s `lease`).

use super::core::Core;
use super::grants::Blocked;
use holdfast_meta_client::Recall;
use holdfast_meta_core::lease::Hold;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::Name;
use std::sync::Arc;

impl Core {
    /// Does what `blocked` says and waits until it is worth asking again.
    pub(crate) async fn unblock(self: &Arc<Self>, blocked: Blocked) {
        // A dropped sender means the service has failed: the caller finds out when it asks again.
        let _ = self.begin(blocked).await;
    }

    /// Begins what `blocked` says, for one who waits for several.
    pub(crate) fn begin(self: &Arc<Self>, blocked: Blocked) -> super::grants::Waiting {
        match blocked {
            Blocked::Wait(w) => w,
            Blocked::Recall { ino, hold, name, waiting } => {
                self.begin_recall(ino, hold, name);
                waiting
            }
        }
    }

    fn begin_recall(self: &Arc<Self>, ino: InodeId, hold: Hold, name: Option<Name>) {
        self.metrics.recalls.inc();
        let core = self.clone();
        self.runtime.spawn(async move {
            let session = core.sessions.lock().get(&hold.session).cloned();
            if let Some(session) = session {
                let answer = session.events.recall(Recall { ino, stamp: hold.stamp, name });
                if tokio::time::timeout(core.config.recall_timeout, answer).await.is_err() {
                    tracing::warn!(session = %hold.session, client = %session.client, inode = %ino, "a holder did not answer a recall in time");
                    // What it held goes with it.
                    core.evict(&session).await;
                    return;
                }
            }
            core.grants.lock().recalled(ino, hold.stamp);
        });
    }
}
