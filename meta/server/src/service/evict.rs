//! The end of a session: in order, or against its will.
//!
//! What always holds: what a session held is given to others only after its end is committed, so nothing it sends later can
//! change anything; its open orphans become free.
//! What it leaves out: deciding that a session is dead (only a recall's deadline does, in one process).

use super::core::Core;
use super::session::Session;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::meta::{Command, MetaError, Request};
use std::sync::Arc;

impl Core {
    /// Ends a session against its will: it learns of it at once, others get what it held when that is committed.
    pub(crate) async fn evict(self: &Arc<Self>, session: &Arc<Session>) {
        if !session.end() {
            return;
        }
        failpoint::reached("meta.evicted");
        tracing::warn!(session = %session.id, client = %session.client, "session evicted");
        self.metrics.evictions.inc();
        session.events.evicted();
        match self.propose_own(Command::Evict { session: session.id }).await {
            Ok(_) => self.forget(session),
            Err(e) => self.end_failed(session, &e),
        }
    }

    /// Ends a session as it asks. Everything it published stays; the rest is garbage.
    pub(crate) async fn close(self: &Arc<Self>, session: &Arc<Session>) {
        if !session.end() {
            return;
        }
        let number = loop {
            match session.number() {
                Ok(n) => break n,
                // Its commands in flight end by themselves.
                Err(waiting) => drop(waiting.await),
            }
        };
        let request =
            Request { session: session.id, epoch: session.epoch, seq: number.seq, acked: number.acked, command: Command::CloseSession };
        match self.propose(&request).await {
            Ok(_) | Err(MetaError::Evicted) => self.forget(session),
            Err(e) => self.end_failed(session, &e),
        }
    }

    fn forget(&self, session: &Arc<Session>) {
        self.grants.lock().end_session(session.id);
        self.work.orphans.look_at(self.opens.end_session(session.id));
        // Its ranges are retired.
        self.work.ranges.notify();
        self.work.stripes.notify();
        self.sessions.lock().remove(&session.id);
    }

    /// The end could not be committed: nobody may be given what the session held. The log has failed, or leads no more.
    fn end_failed(&self, session: &Arc<Session>, e: &MetaError) {
        failpoint::reached("meta.end_failed");
        tracing::error!(session = %session.id, error = %e, "the end of a session could not be committed");
        self.state.fail(&holdfast_meta_core::StateError(format!("the end of {} could not be committed: {e}", session.id)));
        self.grants.lock().wake_all();
    }
}
