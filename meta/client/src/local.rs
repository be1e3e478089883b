//! `Local`: the service straight over the state machine, in memory, in one mutex. What tests of vfs and S3 run on.
//!
//! What always holds: the seam's rules about grants, recalls and handles, decided by the same table as the real service; a
//! command whose holders need not be asked is applied before `submit` returns its future, so commands keep the order of the calls.
//! What it leaves out: durability, leases, deadlines of recalls (a holder that never answers is waited for until [`Local::evict`]).

use crate::{Grant, Meta, MetaError, MetaResult, MetaService, Recall, SessionEvents};
use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Shared, select};
use holdfast_meta_core::lease::{Answer, Ask, Asker, Hold, Limits, Table};
use holdfast_meta_core::{MemKv, SERVICE_EPOCH, SERVICE_SESSION, StateError, TouchKind, apply_with, initialise, read, touches};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::{Clock, ManualClock};
use holdfast_objstore_proto::meta::{Command, Name, Reply, Request};
use holdfast_objstore_proto::{InodeId, SessionEpoch, SessionId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod session;

pub use holdfast_meta_core::read::{Gathered, PackBounds, Place};
use session::LocalSession;

/// Chunks one step of the built-in reaper frees.
const REAP_CHUNKS: u32 = 64;

/// A metadata service in memory. Clones share it.
#[derive(Clone)]
pub struct Local {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Inline bytes it takes before it says that there is no room.
    inline_bytes_max: AtomicUsize,
    clock: Arc<dyn Clock>,
}

struct State {
    kv: MemKv,
    /// Inline bytes that no pack has yet.
    staged: BTreeMap<StripeId, Bytes>,
    index: u64,
    now: i64,
    table: Table,
    sessions: BTreeMap<SessionId, Session>,
    /// Handles open in all sessions.
    open: BTreeMap<InodeId, u64>,
    /// Recalls under way, by inode.
    recalls: BTreeMap<InodeId, Recalling>,
}

struct Session {
    epoch: SessionEpoch,
    caching: bool,
    events: Arc<dyn SessionEvents>,
    seq: u64,
    open: BTreeMap<InodeId, u64>,
}

/// A recall: everybody who needs it polls it, so it goes on as long as anybody does.
#[derive(Clone)]
struct Blocked(Shared<BoxFuture<'static, ()>>);

struct Recalling {
    holder: SessionId,
    stamp: u64,
    done: Blocked,
    /// Dropped when the holder's session ends: the recall is over.
    _gone: oneshot::Sender<()>,
}

/// What a waiting change keeps from being granted anew; dropped, it does not.
struct Pending {
    inner: Arc<Inner>,
    inos: Vec<InodeId>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.inos.is_empty() {
            self.inner.state.lock().table.change_given_up(&self.inos);
        }
    }
}

fn failed(e: StateError) -> MetaError {
    MetaError::Failed(e.to_string())
}

impl Local {
    /// An empty service whose time moves only by a nanosecond per command.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(ManualClock::default()))
    }

    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let mut kv = MemKv::default();
        initialise(&mut kv).expect("an empty state can be initialised");
        // Tests want every recall, so nothing is held down.
        let limits = Limits { hold_down_recalls: u32::MAX, ..Limits::default() };
        let state = State {
            kv,
            staged: BTreeMap::new(),
            index: 0,
            now: 0,
            table: Table::new(limits),
            sessions: BTreeMap::new(),
            open: BTreeMap::new(),
            recalls: BTreeMap::new(),
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), inline_bytes_max: AtomicUsize::new(0), clock }) }
    }

    /// Stripes that nothing refers to any more and that the service would now delete, in order of ids.
    pub fn retired(&self) -> Vec<Arc<StripeMeta>> {
        self.view(|kv| read::retired(kv, None, usize::MAX)).unwrap_or_default()
    }

    /// Forgets retired stripes, as the service does once they are deleted.
    pub fn forget(&self, stripes: Vec<StripeId>) -> MetaResult<()> {
        self.run_as_service(Command::ForgetStripes { stripes }).map(drop)
    }

    /// Inline bytes of a stripe that no pack has yet.
    pub fn staged(&self, stripe: StripeId) -> Option<Bytes> {
        self.inner.state.lock().staged.get(&stripe).cloned()
    }

    /// Takes inline bytes up to this many; none until it is told so, since nothing packs them here by itself.
    pub fn set_inline_bytes_max(&self, bytes: usize) {
        self.inner.inline_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// What a packer would take next: what is staged, else what is left of packs below half.
    pub fn gather(&self) -> Option<Gathered> {
        let bounds = PackBounds { bytes_max: 4 << 20, members_max: 64 };
        let staged = self.view(|kv| read::gather_staged(kv, bounds)).ok().flatten();
        staged.or_else(|| self.view(|kv| read::gather_sparse(kv, None, bounds)).ok().flatten())
    }

    /// Runs a command as the service itself does, asking no holder.
    pub fn run_as_service(&self, command: Command) -> MetaResult<Reply> {
        self.inner.state.lock().service(&*self.inner.clock, command)
    }

    /// Ends a session as a missed lease would: it is told, its grants, handles and id ranges are gone, its later calls answer `Evicted`.
    pub fn evict(&self, session: SessionId) {
        let events = {
            let mut state = self.inner.state.lock();
            // Evict has no failure but a broken state, which the next command reports.
            let _ = state.service(&*self.inner.clock, Command::Evict { session });
            state.end(&*self.inner.clock, session)
        };
        if let Some(events) = events {
            events.evicted();
        }
    }

    /// Who holds EXCL on an inode.
    pub fn holder(&self, ino: InodeId) -> Option<SessionId> {
        self.inner.state.lock().table.row(ino).hold.map(|h| h.session)
    }

    /// Runs any read on the committed state.
    pub fn view<T>(&self, read: impl FnOnce(&MemKv) -> Result<MetaResult<T>, StateError>) -> MetaResult<T> {
        read(&self.inner.state.lock().kv).map_err(failed)?
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn run(&mut self, clock: &dyn Clock, request: &Request) -> MetaResult<Reply> {
        self.index += 1;
        self.now = (self.now + 1).max(clock.wall_ns() as i64);
        let (reply, effects) = apply_with(&mut self.kv, self.index, self.now, request).map_err(failed)?;
        effects.freed.iter().for_each(|id| drop(self.staged.remove(id)));
        self.staged.extend(effects.staged);
        match reply {
            Reply::Error(e) => Err(e),
            reply => Ok(reply),
        }
    }

    fn service(&mut self, clock: &dyn Clock, command: Command) -> MetaResult<Reply> {
        self.run(clock, &Request { session: SERVICE_SESSION, epoch: SERVICE_EPOCH, seq: 0, acked: 0, command })
    }

    /// Frees orphans that nobody has open.
    fn reap(&mut self, clock: &dyn Clock) -> MetaResult<()> {
        for ino in read::orphans(&self.kv, None, usize::MAX).map_err(failed)?? {
            while !self.open.contains_key(&ino)
                && self.service(clock, Command::ReapOrphan { ino, chunks_max: REAP_CHUNKS })? != (Reply::Reaped { done: true })
            {
            }
        }
        Ok(())
    }

    fn session(&self, id: SessionId) -> MetaResult<&Session> {
        self.sessions.get(&id).ok_or(MetaError::Evicted)
    }

    /// What the service keeps of a session goes. Answers whom to tell, if it was there.
    fn end(&mut self, clock: &dyn Clock, id: SessionId) -> Option<Arc<dyn SessionEvents>> {
        let session = self.sessions.remove(&id)?;
        self.table.end_session(id);
        self.recalls.retain(|_, r| r.holder != id);
        for (ino, n) in session.open {
            self.close(ino, n);
        }
        // As in evict.
        let _ = self.reap(clock);
        Some(session.events)
    }

    fn close(&mut self, ino: InodeId, n: u64) {
        if let Some(all) = self.open.get_mut(&ino) {
            *all = all.saturating_sub(n);
            if *all == 0 {
                self.open.remove(&ino);
            }
        }
    }
}

impl Inner {
    /// Asks the table for one inode.
    fn ask(self: &Arc<Self>, state: &mut State, ino: InodeId, asker: Asker, ask: Ask, name: Option<Name>) -> Result<Grant, Blocked> {
        match state.table.ask(ino, asker, ask, self.clock.boot_ns()) {
            Answer::Excl { stamp } => Ok(Grant::Excl { stamp }),
            Answer::Through => Ok(Grant::Through),
            Answer::Recall(hold) => Err(self.recall(state, ino, hold, name)),
            Answer::Wait => Err(state.recalls[&ino].done.clone()),
        }
    }

    fn recall(self: &Arc<Self>, state: &mut State, ino: InodeId, hold: Hold, name: Option<Name>) -> Blocked {
        let events = state.sessions[&hold.session].events.clone();
        let (gone, is_gone) = oneshot::channel();
        let inner = self.clone();
        let run = async move {
            // Called when first polled: never under the lock.
            let answer = events.recall(Recall { ino, stamp: hold.stamp, name });
            select(answer, is_gone).await;
            let mut state = inner.state.lock();
            state.table.recalled(ino, hold.stamp);
            // A holder that ended was forgotten already, and another may be under recall by now.
            if state.recalls.get(&ino).is_some_and(|r| r.stamp == hold.stamp) {
                state.recalls.remove(&ino);
            }
        };
        let done = Blocked(run.boxed().shared());
        state.recalls.insert(ino, Recalling { holder: hold.session, stamp: hold.stamp, done: done.clone(), _gone: gone });
        done
    }

    /// The first holder that has to be asked before `command` is applied, in ascending inode order. Until it answered, what the
    /// command changes is granted to nobody new: `pending` says what was marked so.
    fn in_the_way(
        self: &Arc<Self>,
        state: &mut State,
        session: SessionId,
        command: &Command,
        pending: &mut Vec<InodeId>,
    ) -> MetaResult<Option<Blocked>> {
        state.table.change_given_up(&std::mem::take(pending));
        let asker = Asker { session, caching: false };
        let mut first = None;
        let mut changes = BTreeSet::new();
        for touch in touches(&state.kv, command).map_err(failed)? {
            let (ask, name) = match touch.kind {
                TouchKind::Read => (Ask::Look, None),
                TouchKind::ChangeFile => (Ask::Change, None),
                TouchKind::ChangeDir { name } => (Ask::Change, Some(name)),
            };
            if ask == Ask::Change {
                changes.insert(touch.ino);
            }
            if first.is_none() {
                first = self.ask(state, touch.ino, asker, ask, name).err();
            }
        }
        if first.is_some() {
            pending.extend(changes);
            state.table.change_waits(pending);
        }
        Ok(first)
    }

    /// Applies a command, unless a holder is in the way.
    fn try_submit(
        self: &Arc<Self>,
        session: SessionId,
        command: &Command,
        pending: &mut Vec<InodeId>,
    ) -> MetaResult<Result<Reply, Blocked>> {
        let mut state = self.state.lock();
        let epoch = state.session(session)?.epoch;
        if let Some(blocked) = self.in_the_way(&mut state, session, command, pending)? {
            return Ok(Err(blocked));
        }
        let known = state.sessions.get_mut(&session).ok_or(MetaError::Evicted)?;
        known.seq += 1;
        let seq = known.seq;
        let reply = state.run(&*self.clock, &Request { session, epoch, seq, acked: seq - 1, command: command.clone() });
        state.reap(&*self.clock)?;
        reply.map(Ok)
    }

    /// Looks until no holder is in the way.
    async fn look<T>(
        self: &Arc<Self>,
        session: SessionId,
        mut look: impl FnMut(&Arc<Inner>, &mut State, Asker) -> MetaResult<Result<T, Blocked>>,
    ) -> MetaResult<T> {
        loop {
            let step = {
                let mut state = self.state.lock();
                let asker = Asker { session, caching: state.session(session)?.caching };
                look(self, &mut state, asker)?
            };
            match step {
                Ok(found) => return Ok(found),
                Err(blocked) => blocked.0.await,
            }
        }
    }

    /// Looks at a page of entries after what foreign writers of them hold is committed. Each is asked for once in a call.
    async fn page<P>(
        self: &Arc<Self>,
        session: SessionId,
        dir: Option<InodeId>,
        page: impl Fn(&MemKv) -> Result<MetaResult<P>, StateError>,
        inos: impl Fn(&P) -> Vec<InodeId>,
    ) -> MetaResult<(P, Grant)> {
        let mut asked = BTreeSet::new();
        self.look(session, |inner, state, asker| {
            let found = page(&state.kv).map_err(failed)??;
            for ino in inos(&found) {
                if state.table.hides(ino, session)
                    && asked.insert(ino)
                    && let Err(blocked) = inner.ask(state, ino, Asker { caching: false, ..asker }, Ask::Look, None)
                {
                    return Ok(Err(blocked));
                }
            }
            Ok(match dir {
                Some(dir) => inner.ask(state, dir, asker, Ask::Look, None).map(|grant| (found, grant)),
                None => Ok((found, Grant::Through)),
            })
        })
        .await
    }
}

impl MetaService for Local {
    fn connect(&self, client: &str, caching: bool, events: Arc<dyn SessionEvents>) -> BoxFuture<'_, MetaResult<Arc<dyn Meta>>> {
        let command = Command::OpenSession { client: client.into() };
        Box::pin(async move {
            let mut state = self.inner.state.lock();
            let nobody = Request { session: SessionId(0), epoch: SessionEpoch(0), seq: 0, acked: 0, command };
            match state.run(&*self.inner.clock, &nobody)? {
                Reply::Session { session, epoch } => {
                    state.sessions.insert(session, Session { epoch, caching, events, seq: 0, open: BTreeMap::new() });
                    Ok(Arc::new(LocalSession { inner: self.inner.clone(), id: session, epoch }) as Arc<dyn Meta>)
                }
                other => Err(MetaError::Failed(format!("OpenSession answered {other:?}"))),
            }
        })
    }
}

#[cfg(test)]
mod tests;
