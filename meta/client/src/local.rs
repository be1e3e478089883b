//! `Local`: the service straight over the state machine, in memory, in one mutex. What tests of vfs and S3 run on.
//!
//! What always holds: the seam's rules about grants, recalls and handles, decided by the same table as the real service; a
//! command whose holders need not be asked is applied before `submit` returns its future, so commands keep the order of the calls.
//! What it leaves out: durability, leases, deadlines of recalls (a holder that never answers is waited for until [`Local::evict`]).

use crate::{Grant, Looked, Meta, MetaError, MetaResult, MetaService, Recall, SessionEvents, Use};
use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Shared, select};
use holdfast_meta_core::lease::{Answer, Ask, Asker, Hold, Limits, Table, Using};
use holdfast_meta_core::{MemKv, SERVICE_EPOCH, SERVICE_SESSION, StateError, TouchKind, apply, initialise, read, touches};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::{Clock, ManualClock};
use holdfast_objstore_proto::meta::{
    Attr, Bucket, Command, DirEntry, Kind, ListItem, ListPage, ListQuery, MappedExtent, Name, ObjectInfo, Reply, Request, Upload, UploadPart,
};
use holdfast_objstore_proto::{BucketId, InodeId, SessionEpoch, SessionId, StripeId, StripeMeta, UploadId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Chunks one step of the built-in reaper frees.
const REAP_CHUNKS: u32 = 64;

/// A metadata service in memory. Clones share it.
#[derive(Clone)]
pub struct Local {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

struct State {
    kv: MemKv,
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
            index: 0,
            now: 0,
            table: Table::new(limits),
            sessions: BTreeMap::new(),
            open: BTreeMap::new(),
            recalls: BTreeMap::new(),
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), clock }) }
    }

    /// Stripes that nothing refers to any more and that the service would now delete, in order of ids.
    pub fn retired(&self) -> Vec<Arc<StripeMeta>> {
        self.view(|kv| read::retired(kv, None, usize::MAX)).unwrap_or_default()
    }

    /// Forgets retired stripes, as the service does once they are deleted.
    pub fn forget(&self, stripes: Vec<StripeId>) -> MetaResult<()> {
        self.run_as_service(Command::ForgetStripes { stripes }).map(drop)
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
        match apply(&mut self.kv, self.index, self.now, request).map_err(failed)? {
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
            {}
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
    fn in_the_way(self: &Arc<Self>, state: &mut State, session: SessionId, command: &Command, pending: &mut Vec<InodeId>) -> MetaResult<Option<Blocked>> {
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
    fn try_submit(self: &Arc<Self>, session: SessionId, command: &Command, pending: &mut Vec<InodeId>) -> MetaResult<Result<Reply, Blocked>> {
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

/// One session of a [`Local`]. Dropped, it ends in order.
struct LocalSession {
    inner: Arc<Inner>,
    id: SessionId,
    epoch: SessionEpoch,
}

impl LocalSession {
    fn close(&self) {
        // In order or not, nothing of it is left; one that was evicted has nothing to close.
        let _ = self.inner.try_submit(self.id, &Command::CloseSession, &mut Vec::new());
        self.inner.state.lock().end(&*self.inner.clock, self.id);
    }

    /// A read that no holder can hide anything from.
    fn plain<T>(&self, read: impl FnOnce(&MemKv) -> Result<MetaResult<T>, StateError>) -> MetaResult<T> {
        let state = self.inner.state.lock();
        state.session(self.id)?;
        read(&state.kv).map_err(failed)?
    }
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        self.close();
    }
}

impl Meta for LocalSession {
    fn session(&self) -> (SessionId, SessionEpoch) {
        (self.id, self.epoch)
    }

    fn close_session(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.close() })
    }

    fn lookup(&self, dir: InodeId, name: Name) -> BoxFuture<'_, MetaResult<Looked>> {
        Box::pin(self.inner.look(self.id, move |inner, state, asker| {
            let entry = read::lookup(&state.kv, dir, &name).map_err(failed)??;
            let grant = match &entry {
                Some(e) => inner.ask(state, e.ino, asker, Ask::Look, None),
                None => Ok(Grant::Through),
            };
            let grant = match grant {
                Ok(grant) => grant,
                Err(blocked) => return Ok(Err(blocked)),
            };
            Ok(inner.ask(state, dir, asker, Ask::Look, None).map(|dir_grant| Looked { entry, dir_grant, grant }))
        }))
    }

    fn getattr(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<(Attr, Grant)>> {
        Box::pin(self.inner.look(self.id, move |inner, state, asker| {
            let attr = read::getattr(&state.kv, ino).map_err(failed)??;
            Ok(inner.ask(state, ino, asker, Ask::Look, None).map(|grant| (attr, grant)))
        }))
    }

    fn readlink(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<Bytes>> {
        Box::pin(async move { self.plain(|kv| read::readlink(kv, ino)) })
    }

    fn readdir(&self, dir: InodeId, after: u64, entries_max: usize) -> BoxFuture<'_, MetaResult<(Vec<(DirEntry, Attr)>, Grant)>> {
        let page = move |kv: &MemKv| read::readdir(kv, dir, after, entries_max);
        let inos = |page: &Vec<(DirEntry, Attr)>| page.iter().map(|(e, _)| e.ino).collect();
        Box::pin(self.inner.page(self.id, Some(dir), page, inos))
    }

    fn parent(&self, dir: InodeId) -> BoxFuture<'_, MetaResult<InodeId>> {
        Box::pin(async move { self.plain(|kv| read::parent(kv, dir)) })
    }

    fn extents(&self, ino: InodeId, chunks: Range<u32>) -> BoxFuture<'_, MetaResult<Vec<MappedExtent>>> {
        Box::pin(self.inner.look(self.id, move |inner, state, asker| {
            if let Err(blocked) = inner.ask(state, ino, Asker { caching: false, ..asker }, Ask::Look, None) {
                return Ok(Err(blocked));
            }
            Ok(Ok(read::extents(&state.kv, ino, chunks.clone()).map_err(failed)??))
        }))
    }

    fn bucket(&self, name: Name) -> BoxFuture<'_, MetaResult<Bucket>> {
        Box::pin(async move { self.plain(|kv| read::bucket(kv, &name)) })
    }

    fn buckets(&self) -> BoxFuture<'_, MetaResult<Vec<Bucket>>> {
        Box::pin(async move { self.plain(|kv| read::buckets(kv)) })
    }

    fn resolve(&self, bucket: BucketId, key: Name) -> BoxFuture<'_, MetaResult<(Attr, ObjectInfo)>> {
        Box::pin(self.inner.look(self.id, move |inner, state, asker| {
            let (attr, info) = read::resolve(&state.kv, bucket, &key).map_err(failed)??;
            Ok(inner.ask(state, attr.ino, Asker { caching: false, ..asker }, Ask::Look, None).map(|_| (attr, info)))
        }))
    }

    fn list(&self, bucket: BucketId, query: ListQuery) -> BoxFuture<'_, MetaResult<ListPage>> {
        let page = move |kv: &MemKv| read::list(kv, bucket, &query);
        let inos = |page: &ListPage| {
            let object = |item: &ListItem| match item {
                ListItem::Object { attr, .. } => Some(attr.ino),
                ListItem::CommonPrefix(_) => None,
            };
            page.items.iter().filter_map(object).collect()
        };
        Box::pin(async move { Ok(self.inner.page(self.id, None, page, inos).await?.0) })
    }

    fn uploads(&self, bucket: BucketId, prefix: Name, after: Option<(Name, UploadId)>, uploads_max: usize) -> BoxFuture<'_, MetaResult<Vec<Upload>>> {
        Box::pin(async move { self.plain(|kv| read::uploads(kv, bucket, &prefix, after.as_ref(), uploads_max)) })
    }

    fn upload_parts(&self, bucket: BucketId, upload: UploadId, after: u16, parts_max: usize) -> BoxFuture<'_, MetaResult<(Upload, Vec<UploadPart>)>> {
        Box::pin(async move { self.plain(|kv| read::upload_parts(kv, bucket, upload, after, parts_max)) })
    }

    fn stripes_live(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, MetaResult<Vec<bool>>> {
        Box::pin(async move { self.plain(|kv| read::stripes_live(kv, &stripes)) })
    }

    fn submit(&self, command: Command) -> BoxFuture<'_, MetaResult<Reply>> {
        if matches!(command, Command::CloseSession | Command::OpenSession { .. }) {
            return Box::pin(std::future::ready(Err(MetaError::NotPermitted)));
        }
        // At once, in the caller's turn.
        let mut pending = Pending { inner: self.inner.clone(), inos: Vec::new() };
        let mut step = self.inner.try_submit(self.id, &command, &mut pending.inos);
        Box::pin(async move {
            loop {
                match step? {
                    Ok(reply) => return Ok(reply),
                    Err(blocked) => blocked.0.await,
                }
                step = pending.inner.try_submit(self.id, &command, &mut pending.inos);
            }
        })
    }

    fn acquire(&self, ino: InodeId, using: Use) -> BoxFuture<'_, MetaResult<(Attr, Grant)>> {
        Box::pin(self.inner.look(self.id, move |inner, state, asker| {
            let attr = read::getattr(&state.kv, ino).map_err(failed)??;
            // Nothing of a directory is buffered: only its changes concern others.
            let using = match using {
                Use::Write if attr.kind != Kind::Dir => Using::Write,
                _ => Using::Read,
            };
            Ok(inner.ask(state, ino, asker, Ask::Acquire(using), None).map(|grant| (attr, grant)))
        }))
    }

    fn release(&self, inos: Vec<InodeId>) {
        let mut state = self.inner.state.lock();
        for ino in inos {
            // One under recall ends with the recall's answer.
            if !state.recalls.contains_key(&ino) {
                state.table.release(ino, self.id);
            }
        }
    }

    fn opened(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<()>> {
        Box::pin(async move {
            let mut state = self.inner.state.lock();
            state.session(self.id)?;
            read::getattr(&state.kv, ino).map_err(failed)??;
            *state.open.entry(ino).or_default() += 1;
            let session = state.sessions.get_mut(&self.id).ok_or(MetaError::Evicted)?;
            *session.open.entry(ino).or_default() += 1;
            Ok(())
        })
    }

    fn closed(&self, ino: InodeId) {
        let mut state = self.inner.state.lock();
        let Some(n) = state.sessions.get_mut(&self.id).and_then(|s| s.open.get_mut(&ino)).filter(|n| **n > 0) else { return };
        *n -= 1;
        if *n == 0
            && let Some(session) = state.sessions.get_mut(&self.id)
        {
            session.open.remove(&ino);
        }
        state.close(ino, 1);
        // A broken state is reported by the next command.
        let _ = state.reap(&*self.inner.clock);
    }
}

#[cfg(test)]
mod tests;
