//! A session as the service knows it, and the numbering that makes its commands exactly-once.
//!
//! What always holds: a number is used once; what is told as acknowledged was answered to this process; no more than
//! [`WINDOW`] numbers lie between the oldest unanswered command and the newest.
//! What it leaves out: grants (`grants`) and open files (`opens`).

use holdfast_meta_client::SessionEvents;
use holdfast_objstore_proto::{InodeId, SessionEpoch, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Commands of one session between its oldest unanswered and its newest; the state keeps replies for twice as many.
const WINDOW: u64 = holdfast_meta_core::limits::REPLIES_MAX / 2;

pub(crate) struct Session {
    pub id: SessionId,
    pub epoch: SessionEpoch,
    pub client: String,
    pub caching: bool,
    pub events: Arc<dyn SessionEvents>,
    /// Evicted or closed.
    over: AtomicBool,
    numbers: Mutex<Numbers>,
    /// Recalls under way, by inode and stamp, and when the session was last seen to do something about each.
    recalls: Mutex<BTreeMap<(InodeId, u64), Instant>>,
}

#[derive(Default)]
struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// What a command carries: its number, and up to where answers have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub seq: u64,
    pub acked: u64,
}

impl Session {
    pub(crate) fn new(id: SessionId, epoch: SessionEpoch, client: &str, caching: bool, events: Arc<dyn SessionEvents>) -> Self {
        Self {
            id,
            epoch,
            client: client.to_owned(),
            caching,
            events,
            over: AtomicBool::new(false),
            numbers: Mutex::default(),
            recalls: Mutex::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends it; whether this call did.
    pub(crate) fn end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn recall_begins(&self, ino: InodeId, stamp: u64) {
        self.recalls.lock().insert((ino, stamp), Instant::now());
    }

    pub(crate) fn recall_ends(&self, ino: InodeId, stamp: u64) {
        self.recalls.lock().remove(&(ino, stamp));
    }

    /// When it was last seen to do something about a recall; `None` when that is not under way.
    pub(crate) fn last_move(&self, ino: InodeId, stamp: u64) -> Option<Instant> {
        self.recalls.lock().get(&(ino, stamp)).copied()
    }

    /// It does something about these inodes.
    pub(crate) fn moved(&self, inos: &[InodeId]) {
        let mut recalls = self.recalls.lock();
        if recalls.is_empty() {
            return;
        }
        let now = Instant::now();
        for ino in inos {
            recalls.range_mut((*ino, 0)..=(*ino, u64::MAX)).for_each(|(_, at)| *at = now);
        }
    }

    /// It asks for what any flush may need.
    pub(crate) fn moved_all(&self) {
        let now = Instant::now();
        self.recalls.lock().values_mut().for_each(|at| *at = now);
    }

    /// The next number, or a wait until the window has room.
    pub(crate) fn number(&self) -> Result<Number, oneshot::Receiver<()>> {
        let mut n = self.numbers.lock();
        let oldest = n.open.first().copied().unwrap_or(n.last + 1);
        if n.last + 1 - oldest >= WINDOW {
            let (wake, waiting) = oneshot::channel();
            n.waiting.push(wake);
            return Err(waiting);
        }
        n.last += 1;
        let seq = n.last;
        n.open.insert(seq);
        Ok(Number { seq, acked: oldest - 1 })
    }

    /// The answer to a number has arrived.
    pub(crate) fn answered(&self, seq: u64) {
        let mut n = self.numbers.lock();
        let was_oldest = n.open.first() == Some(&seq);
        n.open.remove(&seq);
        if was_oldest {
            for w in n.waiting.drain(..) {
                let _ = w.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_meta_client::NoEvents;

    #[test]
    fn a_number_acknowledges_all_before_the_oldest_unanswered() {
        let s = Session::new(SessionId(1), SessionEpoch(1), "test", false, Arc::new(NoEvents));
        for seq in 1..=3 {
            assert_eq!(s.number().ok(), Some(Number { seq, acked: 0 }));
        }
        s.answered(2);
        assert_eq!(s.number().ok(), Some(Number { seq: 4, acked: 0 }));
        s.answered(1);
        assert_eq!(s.number().ok(), Some(Number { seq: 5, acked: 2 }));
        while s.number().is_ok() {}
        let mut waiting = s.number().expect_err("the window is full");
        s.answered(3);
        assert!(waiting.try_recv().is_ok() && s.number().is_ok());
    }
}
