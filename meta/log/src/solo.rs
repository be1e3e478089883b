//! A log without a log: commands are applied at once, in memory, one after the other. The fake for tests, and the
//! reference for what callers may see.
//!
//! What always holds: the promises of [`MetaLog`], except that nothing is durable.

use crate::{Entry, Error, MetaLog, Result, StateMachine};
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::Clock;
use parking_lot::Mutex;
use std::sync::Arc;

/// The in-memory log.
pub struct Solo {
    clock: Arc<dyn Clock>,
    sm: Arc<dyn StateMachine>,
    state: Mutex<State>,
}

struct State {
    applied: u64,
    now_ns: i64,
    over: Option<Error>,
}

impl Solo {
    /// Goes on after what `sm` has applied.
    pub fn open(clock: Arc<dyn Clock>, sm: Arc<dyn StateMachine>) -> Result<Arc<dyn MetaLog>> {
        let (applied, tail) = sm.restore()?;
        let now_ns = tail.and_then(|t| Some(i64::from_le_bytes(t.as_ref().try_into().ok()?))).unwrap_or(0);
        Ok(Arc::new(Self { clock, sm, state: Mutex::new(State { applied, now_ns, over: None }) }))
    }

    fn propose_now(&self, command: Bytes) -> Result<Bytes> {
        let mut s = self.state.lock();
        if let Some(e) = &s.over {
            return Err(e.clone());
        }
        let now_ns = s.now_ns.max(i64::try_from(self.clock.wall_ns()).unwrap_or(i64::MAX));
        let entry = Entry { index: s.applied + 1, now_ns, command };
        let tail = Bytes::copy_from_slice(&now_ns.to_le_bytes());
        let replies = self.sm.apply(&[entry], tail).inspect_err(|e| s.over = Some(e.clone()))?;
        s.applied += 1;
        s.now_ns = now_ns;
        let mut replies = replies.into_iter();
        match (replies.next(), replies.next()) {
            (Some(reply), None) => Ok(reply),
            _ => {
                let e = Error::Failed("the state machine did not answer one reply for one command".into());
                s.over = Some(e.clone());
                Err(e)
            }
        }
    }
}

impl MetaLog for Solo {
    fn propose(&self, command: Bytes) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(async move { self.propose_now(command) })
    }

    fn may_read(&self) -> Result<()> {
        self.state.lock().over.clone().map_or(Ok(()), Err)
    }

    fn applied(&self) -> u64 {
        self.state.lock().applied
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.state.lock().over.get_or_insert_with(|| Error::Failed("the metadata log is shut down".into()));
        })
    }
}
