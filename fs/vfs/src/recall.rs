//! Giving a grant back when the service asks.
//!
//! What always holds: the recall is marked before its future is first polled; operations that arrive meanwhile are served from what is held and ask
//! nobody, so nothing the kernel does can wait for the recall while the recall waits for the kernel; the grant goes only when nothing is dirty, in
//! flight, pending or half read; a recall whose session ended, or which another has finished, touches nothing more.
//! What it leaves out: what happens to a holder that does not answer in time (evict).

use crate::inode::{Inode, State};
use crate::session::Session;
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_meta_client::Recall;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::Kind;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Recalls of inodes not in the table, remembered while answers that may carry grants are on their way.
#[derive(Default)]
pub(crate) struct RecentRecalls {
    granting: usize,
    seen: HashMap<InodeId, u64>,
    /// The highest stamp dropped from `seen` for want of room: grants up to it are not believed.
    overflow: u64,
}

const RECENT_MAX: usize = 64 << 10;
/// Rounds in which readers may go on reading while the recall tries to catch up with them; then they wait at the gate.
const OPEN_ROUNDS: usize = 2;
/// How long an invalidation may wait for pages that those at the gate hold, before the gate opens for them.
const GATE_WAIT: Duration = Duration::from_millis(200);
/// How long an entry's invalidation may wait for the directory's lock in the kernel, before the answer goes without it.
const ENTRY_WAIT: Duration = Duration::from_secs(1);

impl RecentRecalls {
    pub(crate) fn note(&mut self, ino: InodeId, stamp: u64) {
        if self.granting == 0 {
            return;
        }
        if self.seen.len() >= RECENT_MAX {
            self.overflow = self.seen.drain().map(|(_, s)| s).max().unwrap_or(0).max(self.overflow);
        }
        let newest = self.seen.entry(ino).or_default();
        *newest = stamp.max(*newest);
    }

    pub(crate) fn seen(&self, ino: InodeId) -> Option<u64> {
        self.seen.get(&ino).copied().max((self.overflow > 0).then_some(self.overflow))
    }
}

/// An answer that may carry grants is on its way.
pub(crate) struct Granting<'a>(&'a Mutex<RecentRecalls>);

impl<'a> Granting<'a> {
    pub(crate) fn begin(recent: &'a Mutex<RecentRecalls>) -> Self {
        recent.lock().granting += 1;
        Self(recent)
    }
}

impl Drop for Granting<'_> {
    fn drop(&mut self) {
        let mut r = self.0.lock();
        r.granting -= 1;
        if r.granting == 0 {
            r.seen.clear();
            r.overflow = 0;
        }
    }
}

/// One recall being answered. Dropped, it leaves no gate shut.
struct Yielding<'a> {
    session: &'a Arc<Session>,
    inode: &'a Arc<Inode>,
    stamp: u64,
}

impl Yielding<'_> {
    /// Whether what is held is still what this recall takes. Ask under the inode's lock: evictions take it too.
    fn goes_on(&self, st: &State) -> bool {
        !self.session.is_over() && st.lease.is_recalling(self.stamp)
    }

    /// Shuts the gate, for writers or for all; false when the recall is over.
    fn shut(&self, all: bool) -> bool {
        let mut st = self.inode.state.lock();
        let goes_on = self.goes_on(&st);
        if goes_on {
            st.write_gate = Some(self.session.generation);
            if all {
                st.gate = st.write_gate;
            }
        }
        goes_on
    }

    /// Opens the gate, if it is this session's.
    fn open(&self) {
        let mut st = self.inode.state.lock();
        let st = &mut *st;
        for gate in [&mut st.gate, &mut st.write_gate] {
            gate.take_if(|g| *g == self.session.generation);
        }
        self.inode.changed.notify_waiters();
    }
}

impl Drop for Yielding<'_> {
    fn drop(&mut self) {
        self.open();
    }
}

impl Vfs {
    pub(crate) fn recall(self: Arc<Self>, generation: u64, recall: Recall) -> BoxFuture<'static, ()> {
        let done = || -> BoxFuture<'static, ()> { Box::pin(std::future::ready(())) };
        let session = self.session.lock().clone();
        if session.generation != generation {
            return done();
        }
        self.recent.lock().note(recall.ino, recall.stamp);
        let Some(inode) = self.inodes.get(&recall.ino).map(|i| i.clone()) else { return done() };
        if !inode.state.lock().lease.recall(recall.stamp) {
            return done();
        }
        self.metrics().vfs_recalls.inc();
        Box::pin(async move {
            let yielding = Yielding { session: &session, inode: &inode, stamp: recall.stamp };
            match inode.kind {
                Kind::Dir => self.yield_dir(&yielding, recall.name).await,
                _ => self.yield_file(&yielding).await,
            }
        })
    }

    async fn yield_file(&self, yielding: &Yielding<'_>) {
        let inode = yielding.inode;
        let node = self.node_of(inode.ino);
        inode.state.lock().read_meanwhile = None;
        self.notify.inval_inode(node, 0, 0).await;
        for round in 0.. {
            // From here on nothing new becomes dirty but what mappings have dirtied, so that there is little to write however slow the devices are. Not
            // before the invalidation: a writer at the gate may hold the lock of a page that the kernel is to drop.
            let gated = round >= OPEN_ROUNDS;
            if !yielding.shut(false) {
                return;
            }
            // Errors are recorded for the handles; what could not be written is dropped, and then nothing is held.
            let _ = self.sync_inode_in(yielding.session, inode).await;
            if gated {
                if !yielding.shut(true) {
                    return;
                }
                inode.until(|st| (st.reading == 0 || !yielding.goes_on(st)).then_some(())).await;
            }
            let read = {
                let mut st = inode.state.lock();
                if !yielding.goes_on(&st) {
                    return;
                }
                let read = st.read_meanwhile.take();
                if read.is_none() && st.reading == 0 && st.is_clean() {
                    st.lease.yielded();
                    self.bury(st.discard());
                    (st.gate, st.write_gate) = (None, None);
                    inode.changed.notify_waiters();
                    break;
                }
                read
            };
            let Some(read) = read else { continue };
            let mut inval = self.notify.inval_inode(node, read.start as i64, (read.end - read.start) as i64);
            if tokio::time::timeout(GATE_WAIT, &mut inval).await.is_err() {
                // Its pages belong to readers or writers who wait at the gate: let them through, they count as a new round.
                yielding.open();
                inval.await;
            }
        }
        self.notify.inval_inode(node, -1, 0).await;
    }

    async fn yield_dir(&self, yielding: &Yielding<'_>, name: Option<Bytes>) {
        let dir = yielding.inode;
        let node = self.node_of(dir.ino);
        if !self.has_epochs().await || !self.notify.inc_epoch().await {
            let mut names: Vec<Bytes> = std::mem::take(&mut dir.state.lock().names).into_iter().collect();
            if let Some(name) = name.filter(|n| !names.contains(n)) {
                names.push(name);
            }
            let notify = self.notify.clone();
            let all = async move { futures::future::join_all(names.into_iter().map(|n| notify.inval_entry(node, n))).await };
            // An operation of ours in this directory may hold its lock and wait for the change that waits for us. Then the names are
            // invalidated as soon as it lets go, which is before anyone can look them up.
            let all = self.runtime.spawn(all);
            let _ = tokio::time::timeout(ENTRY_WAIT, all).await;
        }
        self.notify.inval_inode(node, -1, 0).await;
        let mut st = dir.state.lock();
        if yielding.goes_on(&st) {
            st.lease.yielded();
        }
    }

    /// Whether the kernel is known to lack epochs, so that names have to be remembered one by one.
    pub(crate) fn epochs_missing(&self) -> bool {
        self.epochs.load(Ordering::Acquire) != 1
    }

    /// Whether names can be dropped by epoch; asked of the kernel once.
    pub(crate) async fn has_epochs(&self) -> bool {
        match self.epochs.load(Ordering::Acquire) {
            0 => {
                let yes = self.notify.inc_epoch().await;
                self.epochs.store(if yes { 1 } else { 2 }, Ordering::Release);
                yes
            }
            known => known == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recalls_are_remembered_only_while_an_answer_with_a_grant_may_be_on_its_way() {
        let recent = Mutex::new(RecentRecalls::default());
        recent.lock().note(InodeId(1), 9);
        assert_eq!(recent.lock().seen(InodeId(1)), None);
        let g = Granting::begin(&recent);
        recent.lock().note(InodeId(1), 9);
        recent.lock().note(InodeId(1), 7);
        assert_eq!(recent.lock().seen(InodeId(1)), Some(9));
        assert_eq!(recent.lock().seen(InodeId(2)), None);
        drop(g);
        assert_eq!(recent.lock().seen(InodeId(1)), None);
    }
}
