//! A metadata service whose answers come late where a test asks for it.

use bytes::Bytes;
use holdfast_meta_client::local::Local;
use holdfast_meta_client::{Grant, Looked, Meta, MetaService, Recall, SessionEvents, Use};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{
    Attr, Bucket, Command, DirEntry, ListPage, ListQuery, MappedExtent, MetaResult, Name, ObjectInfo, Reply, Upload, UploadPart,
};
use holdfast_objstore_proto::{BucketId, InodeId, SessionEpoch, SessionId, StripeId, UploadId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Where a call can be held.
#[derive(Debug, Clone, Copy)]
pub enum At {
    /// Before a truncation is submitted.
    Truncate,
    /// Before a Publish is submitted.
    Publish,
    /// Before attributes are asked for.
    GetAttr,
    /// Before a session is opened.
    Connect,
    /// Before a handle is counted.
    Opened,
}

#[derive(Default, Clone, Copy)]
struct Gate {
    shut: bool,
    parked: usize,
}

struct Gates {
    at: [watch::Sender<Gate>; 5],
    /// Nothing is granted, as of an inode held down.
    deny: AtomicBool,
}

impl Gates {
    async fn pass(&self, at: At) {
        let gate = &self.at[at as usize];
        if gate.borrow().shut {
            gate.send_modify(|g| g.parked += 1);
            gate.subscribe().wait_for(|g| !g.shut).await.unwrap();
            gate.send_modify(|g| g.parked -= 1);
        }
    }
}

#[derive(Clone)]
pub struct Slow {
    inner: Local,
    gates: Arc<Gates>,
}

impl Slow {
    pub fn new(inner: Local) -> Self {
        Self { inner, gates: Arc::new(Gates { at: std::array::from_fn(|_| watch::Sender::default()), deny: AtomicBool::new(false) }) }
    }

    pub fn shut(&self, at: At) {
        self.gates.at[at as usize].send_modify(|g| g.shut = true);
    }

    pub fn open(&self, at: At) {
        self.gates.at[at as usize].send_modify(|g| g.shut = false);
    }

    /// From now on nothing is granted on files looked at, or again.
    pub fn deny(&self, deny: bool) {
        self.gates.deny.store(deny, Ordering::SeqCst);
    }

    /// Waits until a call is held there.
    pub async fn parked(&self, at: At) {
        crate::rig::soon(self.gates.at[at as usize].subscribe().wait_for(|g| g.parked > 0)).await.unwrap();
    }
}

impl MetaService for Slow {
    fn connect(&self, client: &str, caching: bool, events: Arc<dyn SessionEvents>) -> BoxFuture<'_, MetaResult<Arc<dyn Meta>>> {
        let client = client.to_owned();
        Box::pin(async move {
            self.gates.pass(At::Connect).await;
            let inner = self.inner.connect(&client, caching, Arc::new(Outliving(events))).await?;
            Ok(Arc::new(SlowMeta { inner, gates: self.gates.clone() }) as Arc<dyn Meta>)
        })
    }
}

/// Recalls that go on when the service no longer waits for them.
struct Outliving(Arc<dyn SessionEvents>);

impl SessionEvents for Outliving {
    fn recall(&self, recall: Recall) -> BoxFuture<'static, ()> {
        let recall = tokio::spawn(self.0.recall(recall));
        Box::pin(async move { recall.await.unwrap() })
    }
    fn evicted(&self) {
        self.0.evicted();
    }
}

struct SlowMeta {
    inner: Arc<dyn Meta>,
    gates: Arc<Gates>,
}

impl SlowMeta {
    fn denied(&self, ino: InodeId, (attr, grant): (Attr, Grant)) -> (Attr, Grant) {
        if !self.gates.deny.load(Ordering::SeqCst) || grant == Grant::Through {
            return (attr, grant);
        }
        self.inner.release(vec![ino]);
        (attr, Grant::Through)
    }
}

impl Meta for SlowMeta {
    fn session(&self) -> (SessionId, SessionEpoch) {
        self.inner.session()
    }
    fn close_session(&self) -> BoxFuture<'_, ()> {
        self.inner.close_session()
    }
    fn lookup(&self, dir: InodeId, name: Name) -> BoxFuture<'_, MetaResult<Looked>> {
        self.inner.lookup(dir, name)
    }
    fn getattr(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<(Attr, Grant)>> {
        Box::pin(async move {
            self.gates.pass(At::GetAttr).await;
            self.inner.getattr(ino).await.map(|answer| self.denied(ino, answer))
        })
    }
    fn readlink(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<Bytes>> {
        self.inner.readlink(ino)
    }
    fn readdir(&self, dir: InodeId, after: u64, max: usize) -> BoxFuture<'_, MetaResult<(Vec<(DirEntry, Attr)>, Grant)>> {
        self.inner.readdir(dir, after, max)
    }
    fn parent(&self, dir: InodeId) -> BoxFuture<'_, MetaResult<InodeId>> {
        self.inner.parent(dir)
    }
    fn extents(&self, ino: InodeId, chunks: Range<u32>) -> BoxFuture<'_, MetaResult<Vec<MappedExtent>>> {
        self.inner.extents(ino, chunks)
    }
    fn inline_room(&self, bytes: usize) -> bool {
        self.inner.inline_room(bytes)
    }
    fn bucket(&self, name: Name) -> BoxFuture<'_, MetaResult<Bucket>> {
        self.inner.bucket(name)
    }
    fn buckets(&self) -> BoxFuture<'_, MetaResult<Vec<Bucket>>> {
        self.inner.buckets()
    }
    fn resolve(&self, bucket: BucketId, key: Name) -> BoxFuture<'_, MetaResult<(Attr, ObjectInfo)>> {
        self.inner.resolve(bucket, key)
    }
    fn list(&self, bucket: BucketId, query: ListQuery) -> BoxFuture<'_, MetaResult<ListPage>> {
        self.inner.list(bucket, query)
    }
    fn uploads(
        &self,
        bucket: BucketId,
        prefix: Name,
        after: Option<(Name, UploadId)>,
        max: usize,
    ) -> BoxFuture<'_, MetaResult<Vec<Upload>>> {
        self.inner.uploads(bucket, prefix, after, max)
    }
    fn upload_parts(
        &self,
        bucket: BucketId,
        upload: UploadId,
        after: u16,
        max: usize,
    ) -> BoxFuture<'_, MetaResult<(Upload, Vec<UploadPart>)>> {
        self.inner.upload_parts(bucket, upload, after, max)
    }
    fn stripes_live(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, MetaResult<Vec<bool>>> {
        self.inner.stripes_live(stripes)
    }
    fn submit(&self, command: Command) -> BoxFuture<'_, MetaResult<Reply>> {
        Box::pin(async move {
            match &command {
                Command::Truncate { .. } => self.gates.pass(At::Truncate).await,
                Command::Publish(_) => self.gates.pass(At::Publish).await,
                _ => (),
            }
            self.inner.submit(command).await
        })
    }
    fn acquire(&self, ino: InodeId, using: Use) -> BoxFuture<'_, MetaResult<(Attr, Grant)>> {
        Box::pin(async move { self.inner.acquire(ino, using).await.map(|answer| self.denied(ino, answer)) })
    }
    fn release(&self, inos: Vec<InodeId>) {
        self.inner.release(inos)
    }
    fn opened(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<()>> {
        Box::pin(async move {
            self.gates.pass(At::Opened).await;
            self.inner.opened(ino).await
        })
    }
    fn closed(&self, ino: InodeId) {
        self.inner.closed(ino)
    }
}
