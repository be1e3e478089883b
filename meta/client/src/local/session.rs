//! One session of a [`super::Local`]: the seam, call by call.

use super::{Inner, Pending, failed};
use crate::{Grant, Looked, Meta, MetaError, MetaResult, Use};
use bytes::Bytes;
use holdfast_meta_core::lease::{Ask, Asker, Using};
use holdfast_meta_core::{MemKv, StateError, read};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{
    Attr, Bucket, Command, DirEntry, Kind, ListItem, ListPage, ListQuery, MappedExtent, Name, ObjectInfo, Reply, Upload, UploadPart,
};
use holdfast_objstore_proto::{BucketId, InodeId, SessionEpoch, SessionId, StripeId, UploadId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One session of a [`Local`]. Dropped, it ends in order.
pub(super) struct LocalSession {
    pub(super) inner: Arc<Inner>,
    pub(super) id: SessionId,
    pub(super) epoch: SessionEpoch,
}

impl LocalSession {
    fn close(&self) {
        // In order or not, nothing of it is left; one that was evicted has nothing to close.
        let _ = self.inner.try_submit(self.id, &Command::CloseSession, &mut Vec::new());
        // Dropped outside the lock: it may own what owns this session.
        let events = self.inner.state.lock().end(&*self.inner.clock, self.id);
        drop(events);
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
            let staged = |id| state.staged.get(&id).cloned().map(read::StagedBytes::Kept);
            Ok(Ok(read::extents(&state.kv, ino, chunks.clone(), &staged).map_err(failed)??))
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

    fn uploads(
        &self,
        bucket: BucketId,
        prefix: Name,
        after: Option<(Name, UploadId)>,
        uploads_max: usize,
    ) -> BoxFuture<'_, MetaResult<Vec<Upload>>> {
        Box::pin(async move { self.plain(|kv| read::uploads(kv, bucket, &prefix, after.as_ref(), uploads_max)) })
    }

    fn upload_parts(
        &self,
        bucket: BucketId,
        upload: UploadId,
        after: u16,
        parts_max: usize,
    ) -> BoxFuture<'_, MetaResult<(Upload, Vec<UploadPart>)>> {
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

    fn inline_room(&self, bytes: usize) -> bool {
        let staged: usize = self.inner.state.lock().staged.values().map(Bytes::len).sum();
        staged.saturating_add(bytes) <= self.inner.inline_bytes_max.load(Ordering::Relaxed)
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
