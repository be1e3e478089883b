//! One session's view of the service, by function call.

use super::core::{Core, state_error};
use super::detached::Detached;
use super::session::Session;
use super::work::is_system_name;
use bytes::Bytes;
use holdfast_meta_client::{Grant, Looked, Meta, Use};
use holdfast_meta_core::lease::Using;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{
    Attr, Bucket, Command, DirEntry, ListPage, ListQuery, MappedExtent, MetaError, MetaResult, Name, ObjectInfo, Reply, Upload, UploadPart,
};
use holdfast_objstore_proto::{BucketId, InodeId, SessionEpoch, SessionId, StripeId, UploadId};
use std::ops::Range;
use std::sync::Arc;

/// Ends its session when it is dropped without `close_session`.
pub(crate) struct Local {
    pub core: Arc<Core>,
    pub session: Arc<Session>,
}

impl Drop for Local {
    fn drop(&mut self) {
        if !self.session.is_over() {
            let (core, session) = (self.core.clone(), self.session.clone());
            self.core.runtime.spawn(async move { core.close(&session).await });
        }
    }
}

impl Meta for Local {
    fn session(&self) -> (SessionId, SessionEpoch) {
        (self.session.id, self.session.epoch)
    }

    fn close_session(&self) -> BoxFuture<'_, ()> {
        let (core, session) = (self.core.clone(), self.session.clone());
        Box::pin(Detached::begin(self.core.runtime.clone(), Box::pin(async move { core.close(&session).await })))
    }

    fn lookup(&self, dir: InodeId, name: Name) -> BoxFuture<'_, MetaResult<Looked>> {
        Box::pin(async move { self.core.lookup(&self.session, dir, &name).await })
    }
    fn getattr(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<(Attr, Grant)>> {
        Box::pin(async move { self.core.getattr(&self.session, ino).await })
    }
    fn readlink(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<Bytes>> {
        Box::pin(async move { self.core.plain(&self.session, |kv| holdfast_meta_core::read::readlink(kv, ino)) })
    }
    fn readdir(&self, dir: InodeId, after: u64, entries_max: usize) -> BoxFuture<'_, MetaResult<(Vec<(DirEntry, Attr)>, Grant)>> {
        Box::pin(async move { self.core.readdir(&self.session, dir, after, entries_max).await })
    }
    fn parent(&self, dir: InodeId) -> BoxFuture<'_, MetaResult<InodeId>> {
        Box::pin(async move { self.core.plain(&self.session, |kv| holdfast_meta_core::read::parent(kv, dir)) })
    }
    fn extents(&self, ino: InodeId, chunks: Range<u32>) -> BoxFuture<'_, MetaResult<Vec<MappedExtent>>> {
        Box::pin(async move { self.core.extents(&self.session, ino, chunks).await })
    }

    fn bucket(&self, name: Name) -> BoxFuture<'_, MetaResult<Bucket>> {
        Box::pin(async move {
            if is_system_name(&name) {
                return Err(MetaError::NoSuchBucket);
            }
            self.core.plain(&self.session, |kv| holdfast_meta_core::read::bucket(kv, &name))
        })
    }
    fn buckets(&self) -> BoxFuture<'_, MetaResult<Vec<Bucket>>> {
        Box::pin(async move {
            let mut all = self.core.plain(&self.session, |kv| holdfast_meta_core::read::buckets(kv))?;
            all.retain(|b| !is_system_name(&b.name));
            Ok(all)
        })
    }
    fn resolve(&self, bucket: BucketId, key: Name) -> BoxFuture<'_, MetaResult<(Attr, ObjectInfo)>> {
        Box::pin(async move { self.core.resolve(&self.session, bucket, &key).await })
    }
    fn list(&self, bucket: BucketId, query: ListQuery) -> BoxFuture<'_, MetaResult<ListPage>> {
        Box::pin(async move { self.core.list(&self.session, bucket, &query).await })
    }
    fn uploads(
        &self,
        bucket: BucketId,
        prefix: Name,
        after: Option<(Name, UploadId)>,
        uploads_max: usize,
    ) -> BoxFuture<'_, MetaResult<Vec<Upload>>> {
        Box::pin(async move {
            self.core.plain(&self.session, |kv| holdfast_meta_core::read::uploads(kv, bucket, &prefix, after.as_ref(), uploads_max))
        })
    }
    fn upload_parts(
        &self,
        bucket: BucketId,
        upload: UploadId,
        after: u16,
        parts_max: usize,
    ) -> BoxFuture<'_, MetaResult<(Upload, Vec<UploadPart>)>> {
        Box::pin(async move {
            self.core.plain(&self.session, |kv| holdfast_meta_core::read::upload_parts(kv, bucket, upload, after, parts_max))
        })
    }
    fn stripes_live(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, MetaResult<Vec<bool>>> {
        Box::pin(async move { self.core.plain(&self.session, |kv| holdfast_meta_core::read::stripes_live(kv, &stripes)) })
    }

    fn submit(&self, command: Command) -> BoxFuture<'_, MetaResult<Reply>> {
        let work = self.core.clone().submit(self.session.clone(), command);
        Box::pin(Detached::begin(self.core.runtime.clone(), Box::pin(work)))
    }

    fn inline_room(&self, bytes: usize) -> bool {
        self.core.work.packs() && self.core.state.staged_room(bytes)
    }

    fn acquire(&self, ino: InodeId, using: Use) -> BoxFuture<'_, MetaResult<(Attr, Grant)>> {
        let using = match using {
            Use::Read => Using::Read,
            Use::Write => Using::Write,
        };
        Box::pin(async move { self.core.acquire(&self.session, ino, using).await })
    }
    fn release(&self, inos: Vec<InodeId>) {
        self.core.grants.lock().release(&inos, self.session.id);
    }
    fn progress(&self, ino: InodeId) {
        self.session.moved(&[ino]);
    }
    fn opened(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<()>> {
        Box::pin(async move { self.core.opened(&self.session, ino) })
    }
    fn closed(&self, ino: InodeId) {
        if self.core.opens.close(ino, self.session.id) {
            self.core.work.orphans.look_at([ino]);
        }
    }
}

impl Core {
    /// A handle: counted at the same moment as the inode is seen to be there.
    fn opened(&self, session: &Session, ino: InodeId) -> MetaResult<()> {
        self.admits(session)?;
        self.view(|kv| {
            let found = holdfast_meta_core::read::getattr(kv, ino)?;
            Ok(found.and_then(|_| self.opens.open(ino, session.id).then_some(()).ok_or(MetaError::Stale)))
        })?;
        if session.is_over() {
            // Its end may have passed by before the handle was counted.
            self.work.orphans.look_at(self.opens.end_session(session.id));
            return Err(MetaError::Evicted);
        }
        self.state.check().map_err(state_error)
    }
}
