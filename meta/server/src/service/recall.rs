//! Taking a grant back from its holder, and waiting for it.
//!
//! What always holds: a recall that was begun ends: answered, or by the eviction of its holder at the deadline. The deadline moves
//! while the holder does something about the inode, up to a bound: a long flush is no reason to lose what it flushes. A recall runs on its
//! own, so one who asked for it may lose interest.
//! What it leaves out: who is recalled when (`meta/core`'s `lease`).

use super::core::Core;
use super::grants::Blocked;
use super::session::Session;
use holdfast_meta_client::Recall;
use holdfast_meta_core::lease::Hold;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::Name;
use std::sync::Arc;
use tokio::time::Instant;

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
                session.recall_begins(ino, hold.stamp);
                let answer = session.events.recall(Recall { ino, stamp: hold.stamp, name });
                let answered = core.until_it_stands_still(&session, ino, hold.stamp, answer).await;
                session.recall_ends(ino, hold.stamp);
                if !answered {
                    failpoint::reached("meta.recall_unanswered");
                    tracing::warn!(session = %hold.session, client = %session.client, inode = %ino, "a holder did not answer a recall in time");
                    // What it held goes with it.
                    core.evict(&session).await;
                    return;
                }
            }
            core.grants.lock().recalled(ino, hold.stamp);
        });
    }

    /// Waits for the holder's answer; false when it stood still for too long, or took too long altogether.
    async fn until_it_stands_still(&self, session: &Session, ino: InodeId, stamp: u64, mut answer: BoxFuture<'static, ()>) -> bool {
        let (timeout, last) = (self.config.recall_timeout, Instant::now() + self.config.recall_total);
        let mut deadline = Instant::now() + timeout;
        loop {
            let wait = deadline.min(last);
            if tokio::time::timeout_at(wait, &mut answer).await.is_ok() {
                return true;
            }
            let moved = session.last_move(ino, stamp).map(|at| at + timeout);
            match moved.filter(|until| wait < last && *until > wait) {
                Some(until) => deadline = until,
                None => return false,
            }
        }
    }
}
