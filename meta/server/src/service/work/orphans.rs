//! Freeing inodes without names that nobody has open, and what truncations and aborted uploads left.
//!
//! What always holds: an inode is claimed and seen to be an orphan at one moment, so nobody opens it afterwards and nothing that
//! has a name is ever claimed. Before that it was seen to be an orphan `orphan_grace` earlier, so who found its last name just before it
//! went can still open it. Freeing goes in bounded steps through the log.
//! What it leaves out: the stripes that become free (`stripes`).

use super::super::core::Core;
use super::{Backoff, Signal};
use holdfast_meta_core::{KvRead, StateError, read};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, MetaError, Reply};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Inodes in the queue; past it all orphans are looked at.
const QUEUE_MAX: usize = 16_384;
/// Orphans looked at in one view of the state.
const PAGE: usize = 256;
/// Orphans of a look at all that wait out their grace together.
const SWEEP_MAX: usize = 16_384;

/// What may be free to go.
#[derive(Default)]
pub(crate) struct Orphans {
    queue: Mutex<Queue>,
    signal: Signal,
    /// Taken from the queue and waiting out their grace, or their turn.
    in_hand: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    inos: VecDeque<InodeId>,
    known: HashSet<InodeId>,
    all: bool,
}

impl Orphans {
    /// These may have become orphans that nobody has open.
    pub(crate) fn look_at(&self, inos: impl IntoIterator<Item = InodeId>) {
        let mut q = self.queue.lock();
        for ino in inos {
            if q.inos.len() >= QUEUE_MAX {
                q.all = true;
                break;
            }
            if q.known.insert(ino) {
                q.inos.push_back(ino);
            }
        }
        drop(q);
        self.signal.notify();
    }

    /// Anything may have.
    pub(crate) fn look_at_all(&self) {
        self.queue.lock().all = true;
        self.signal.notify();
    }

    /// What waits to be freed as far as is known: not what somebody has open.
    pub(crate) fn queued(&self) -> usize {
        let q = self.queue.lock();
        q.inos.len() + q.all as usize + self.in_hand.load(Ordering::Relaxed)
    }

    fn take(&self) -> VecDeque<InodeId> {
        let mut q = self.queue.lock();
        q.known.clear();
        std::mem::take(&mut q.inos)
    }

    fn take_all(&self) -> bool {
        std::mem::take(&mut self.queue.lock().all)
    }
}

/// Where a look at all goes on: after this orphan, or at the first.
type Sweep = Option<Option<InodeId>>;

pub(super) async fn run(core: Arc<Core>) {
    let work = &core.work;
    let mut backoff = Backoff::new();
    let mut sweep: Sweep = None;
    while sweep.is_some() || work.unless_stopped(work.orphans.signal.notified()).await {
        let due = due(&core, &mut sweep);
        work.orphans.in_hand.store(due.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
        // Who found a name just before it went may still be on the way to open it. What is queued meanwhile waits for its own turn.
        let grace = core.config.orphan_grace;
        if due.as_ref().is_ok_and(|d| !d.is_empty()) && !grace.is_zero() && !work.unless_stopped(tokio::time::sleep(grace)).await {
            return;
        }
        let each = match due {
            Ok(inos) => inos.into_iter().map(Ok).collect(),
            Err(e) => {
                // What was taken from the queue is among all.
                work.orphans.look_at_all();
                vec![Err(e)]
            }
        };
        for one in each {
            if work.stopping() {
                return;
            }
            let done = match one {
                Ok(ino) => free(&core, ino).await.inspect_err(|_| work.orphans.look_at([ino])),
                Err(e) => Err(e),
            };
            match done {
                Ok(()) => backoff = Backoff::new(),
                Err(MetaError::Failed(_)) => return,
                Err(e) => {
                    tracing::warn!(error = %e, "an orphan could not be freed; trying again later");
                    if !work.unless_stopped(tokio::time::sleep(backoff.next())).await {
                        return;
                    }
                }
            }
            let _ = work.orphans.in_hand.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
    }
}

/// What is an orphan at this moment, of what was queued and, during a look at all, of the next part of all.
/// What was queued with a name (its last handle was closed) is queued again when it loses it.
fn due(core: &Arc<Core>, sweep: &mut Sweep) -> Result<Vec<InodeId>, MetaError> {
    let queued = core.work.orphans.take();
    if sweep.is_none() && core.work.orphans.take_all() {
        *sweep = Some(None);
    }
    let mut due = Vec::new();
    for page in Vec::from(queued).chunks(PAGE) {
        core.view(|kv| {
            for ino in page {
                if is_orphan(kv, *ino)? {
                    due.push(*ino);
                }
            }
            Ok(Ok(()))
        })?;
    }
    let Some(mut after) = sweep.take() else { return Ok(due) };
    let end = due.len() + SWEEP_MAX;
    while due.len() < end {
        let page = core.view(|kv| read::orphans(kv, after, PAGE))?;
        let Some(last) = page.last() else { return Ok(due) };
        after = Some(*last);
        due.extend(page);
    }
    *sweep = Some(after);
    Ok(due)
}

fn is_orphan(kv: &dyn KvRead, ino: InodeId) -> Result<bool, StateError> {
    Ok(read::orphans(kv, ino.0.checked_sub(1).map(InodeId), 1)?.is_ok_and(|f| f.first() == Some(&ino)))
}

/// Frees one, if it is an orphan that nobody has open.
async fn free(core: &Arc<Core>, ino: InodeId) -> Result<(), MetaError> {
    let claimed = core.view(|kv| Ok(Ok(is_orphan(kv, ino)? && core.opens.begin_free(ino))))?;
    if !claimed {
        return Ok(());
    }
    let freed = free_claimed(core, ino).await;
    core.opens.end_free(ino);
    core.work.stripes.notify();
    freed
}

async fn free_claimed(core: &Arc<Core>, ino: InodeId) -> Result<(), MetaError> {
    while !core.work.stopping() {
        match core.propose_own(Command::ReapOrphan { ino, chunks_max: core.config.reap_chunks }).await {
            Ok(Reply::Reaped { done: false }) => core.work.stripes.notify(),
            Ok(_) => {
                core.metrics.orphans_reaped.inc();
                return Ok(());
            }
            // It went away by itself.
            Err(MetaError::Stale | MetaError::NotFound) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
