//! Which inodes sessions have open: an orphan lives until the last of them closes it.
//!
//! What always holds: an inode is not both open and being freed.
//! What it leaves out: durability; at a restart no session is left, so nothing is open.

use holdfast_objstore_proto::{InodeId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Default)]
pub(crate) struct Opens(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Handles, by inode and session.
    counts: BTreeMap<(InodeId, SessionId), u64>,
    /// Being freed: may not be opened any more.
    freeing: HashSet<InodeId>,
    /// Inodes open, by session.
    by_session: HashMap<SessionId, usize>,
}

impl Inner {
    fn is_open(&self, ino: InodeId) -> bool {
        self.counts.range((ino, SessionId(0))..=(ino, SessionId(u64::MAX))).next().is_some()
    }

    fn left(&mut self, session: SessionId) {
        if let Some(n) = self.by_session.get_mut(&session) {
            *n -= 1;
            if *n == 0 {
                self.by_session.remove(&session);
            }
        }
    }
}

impl Opens {
    /// Counts a handle; not when the inode is being freed.
    pub(crate) fn open(&self, ino: InodeId, session: SessionId) -> bool {
        let mut o = self.0.lock();
        if o.freeing.contains(&ino) {
            return false;
        }
        let n = o.counts.entry((ino, session)).or_default();
        *n += 1;
        if *n == 1 {
            *o.by_session.entry(session).or_default() += 1;
        }
        true
    }

    /// Whether this was the last handle of all sessions.
    pub(crate) fn close(&self, ino: InodeId, session: SessionId) -> bool {
        let mut o = self.0.lock();
        let Some(n) = o.counts.get_mut(&(ino, session)) else { return false };
        *n -= 1;
        if *n > 0 {
            return false;
        }
        o.counts.remove(&(ino, session));
        o.left(session);
        !o.is_open(ino)
    }

    /// Forgets a session's handles; the inodes nobody has open now.
    pub(crate) fn end_session(&self, session: SessionId) -> Vec<InodeId> {
        let mut o = self.0.lock();
        let inos: Vec<InodeId> = o.counts.keys().filter(|(_, s)| *s == session).map(|(i, _)| *i).collect();
        for ino in &inos {
            o.counts.remove(&(*ino, session));
        }
        o.by_session.remove(&session);
        inos.into_iter().filter(|i| !o.is_open(*i)).collect()
    }

    /// Claims an inode for being freed; not while it is open.
    pub(crate) fn begin_free(&self, ino: InodeId) -> bool {
        let mut o = self.0.lock();
        if o.is_open(ino) {
            return false;
        }
        o.freeing.insert(ino);
        true
    }

    pub(crate) fn end_free(&self, ino: InodeId) {
        self.0.lock().freeing.remove(&ino);
    }

    pub(crate) fn open_by(&self, session: SessionId) -> usize {
        self.0.lock().by_session.get(&session).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_freed_only_when_its_last_handle_is_closed_and_then_not_opened() {
        let (a, b, ino) = (SessionId(1), SessionId(2), InodeId(9));
        let o = Opens::default();
        assert!(o.open(ino, a) && o.open(ino, a) && o.open(ino, b));
        assert!(!o.close(ino, a) && !o.close(ino, b) && !o.begin_free(ino));
        assert_eq!((o.open_by(a), o.open_by(b)), (1, 0));
        assert!(o.close(ino, a) && !o.close(ino, a));
        assert!(o.begin_free(ino) && !o.open(ino, b));
        o.end_free(ino);
        assert!(o.open(ino, b));
        assert_eq!(o.end_session(b), vec![ino]);
    }
}
