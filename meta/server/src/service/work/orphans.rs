//! Freeing inodes without names that nobody has open, and what truncations and aborted uploads left.
//!
//! What always holds: an inode is claimed and seen to be an orphan at one moment, so nobody opens it afterwards and nothing that
//! has a name is ever claimed. Freeing goes in bounded steps through the log.
//! What it leaves out: the stripes that become free (`stripes`).

use super::super::core::Core;
use super::{Backoff, Signal};
use holdfast_meta_core::read;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, MetaError, Reply};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Inodes in the queue; past it all orphans are looked at.
const QUEUE_MAX: usize = 16_384;
/// Orphans of one page of a look at all.
const PAGE: usize = 256;

/// What may be free to go.
#[derive(Default)]
pub(crate) struct Orphans {
    queue: Mutex<Queue>,
    signal: Signal,
}

#[derive(Default)]
struct Queue {
    inos: VecDeque<InodeId>,
    known: HashSet<InodeId>,
    all: bool,
}

/// What was queued at one moment.
struct Batch {
    inos: VecDeque<InodeId>,
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

    pub(crate) fn queued(&self) -> usize {
        self.queue.lock().inos.len()
    }

    fn take(&self) -> Batch {
        let mut q = self.queue.lock();
        q.known.clear();
        Batch { inos: std::mem::take(&mut q.inos), all: std::mem::take(&mut q.all) }
    }
}

pub(super) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new();
    let grace = core.config.orphan_grace;
    while core.work.unless_stopped(core.work.orphans.signal.notified()).await {
        let mut batch = core.work.orphans.take();
        // Who found the name just before it went may still be on the way to open it. What is queued meanwhile waits for its own turn.
        if !grace.is_zero() && !core.work.unless_stopped(tokio::time::sleep(grace)).await {
            return;
        }
        loop {
            let one = batch.inos.pop_front();
            let done = match one {
                Some(ino) => free(&core, ino).await.inspect_err(|_| core.work.orphans.look_at([ino])),
                None if std::mem::take(&mut batch.all) => free_all(&core).await.inspect_err(|_| core.work.orphans.look_at_all()),
                None => break,
            };
            if core.work.stopping() {
                return;
            }
            match done {
                Ok(()) => backoff = Backoff::new(),
                Err(MetaError::Failed(_)) => return,
                Err(e) => {
                    tracing::warn!(error = %e, "an orphan could not be freed; trying again later");
                    if !core.work.unless_stopped(tokio::time::sleep(backoff.next())).await {
                        return;
                    }
                }
            }
        }
    }
}

async fn free_all(core: &Arc<Core>) -> Result<(), MetaError> {
    let mut after = None;
    loop {
        let page = core.view(|kv| read::orphans(kv, after, PAGE))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(*last);
        for ino in page {
            free(core, ino).await?;
            if core.work.stopping() {
                return Ok(());
            }
        }
    }
}

/// Frees one, if it is an orphan that nobody has open.
async fn free(core: &Arc<Core>, ino: InodeId) -> Result<(), MetaError> {
    let claimed = core.view(|kv| {
        let found = read::orphans(kv, ino.0.checked_sub(1).map(InodeId), 1)?;
        Ok(found.map(|f| f.first() == Some(&ino) && core.opens.begin_free(ino)))
    })?;
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
