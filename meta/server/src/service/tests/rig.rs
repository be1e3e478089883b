//! Clients that behave as mounts do, and a log that can be held.

use crate::{Config, Metrics, Service};
use bytes::Bytes;
use holdfast_meta_client::ids::IdPool;
use holdfast_meta_client::{Meta, MetaService, Recall, SessionEvents};
use holdfast_meta_log::solo::Solo;
use holdfast_meta_log::{MetaLog, Result as LogResult, SharedLog};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::{Clock, ManualClock};
use holdfast_objstore_proto::meta::{Attr, Command, Extent, Kind, MetaError, MetaResult, Name, Owner, Publish, PutObject, Reply, Shape};
use holdfast_objstore_proto::{BucketId, Code, Codec, InodeId, OsdId, StripeMeta};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::watch;

pub const OWNER: Owner = Owner { uid: 1000, gid: 1000 };

pub fn config() -> Config {
    Config { stripe_grace: Duration::ZERO, orphan_grace: Duration::ZERO, ..Config::default() }
}

/// What a session keeps and how it answers.
#[derive(Default)]
pub struct Events {
    meta: OnceLock<Weak<dyn Meta>>,
    /// Sizes it buffered and will publish when recalled.
    pub dirty: Mutex<HashMap<InodeId, u64>>,
    pub recalls: Mutex<Vec<Recall>>,
    pub evicted: AtomicUsize,
    /// Never answers a recall.
    pub stuck: AtomicBool,
}

/// The session's way to its `Events`.
struct Told(Arc<Events>);

impl SessionEvents for Told {
    fn recall(&self, recall: Recall) -> BoxFuture<'static, ()> {
        let this = self.0.clone();
        Box::pin(async move {
            this.recalls.lock().push(recall.clone());
            if this.stuck.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let dirty = this.dirty.lock().remove(&recall.ino);
            if let Some(size) = dirty {
                let meta = this.meta.get().and_then(Weak::upgrade).expect("a session that is recalled lives");
                // Its own map reads and publishes go through while it is recalled.
                meta.extents(recall.ino, 0..1).await.expect("never waits for itself");
                publish(&*meta, recall.ino, size).await.expect("publishes");
            }
        })
    }
    fn evicted(&self) {
        self.0.evicted.fetch_add(1, Ordering::SeqCst);
    }
}

pub struct Client {
    pub meta: Arc<dyn Meta>,
    pub events: Arc<Events>,
    pub ids: IdPool,
}

impl Client {
    pub async fn mount(service: &Service, name: &str) -> Self {
        Self::mount_at(service, name).await
    }
    pub async fn gateway(service: &Service) -> Self {
        Self::gateway_at(service).await
    }
    pub async fn mount_at(service: &dyn MetaService, name: &str) -> Self {
        Self::connect(service, name, true).await
    }
    pub async fn gateway_at(service: &dyn MetaService) -> Self {
        Self::connect(service, "gateway", false).await
    }
    async fn connect(service: &dyn MetaService, name: &str, caching: bool) -> Self {
        let events = Arc::new(Events::default());
        let meta = service.connect(name, caching, Arc::new(Told(events.clone()))).await.expect("connects");
        assert!(events.meta.set(Arc::downgrade(&meta)).is_ok());
        Self { ids: IdPool::new(meta.clone()), meta, events }
    }

    pub async fn create(&self, dir: InodeId, name: &'static str, kind: Kind) -> MetaResult<Attr> {
        let ino = self.ids.inode().await?;
        let command = Command::Create { dir, name: n(name), ino, kind, mode: 0o644, owner: OWNER, rdev: 0, target: Name::new() };
        match self.meta.submit(command).await? {
            Reply::Attr(a) => Ok(a),
            other => panic!("{other:?}"),
        }
    }
    pub async fn file(&self, dir: InodeId, name: &'static str) -> InodeId {
        self.create(dir, name, Kind::File).await.expect("creates").ino
    }
    pub async fn unlink(&self, dir: InodeId, name: &'static str) -> MetaResult<Reply> {
        self.meta.submit(Command::Unlink { dir, name: n(name) }).await
    }
    /// A PUT of an empty object.
    pub async fn put(&self, bucket: BucketId, key: &'static str) -> Command {
        Command::PutObject(PutObject {
            bucket,
            key: n(key),
            ino: self.ids.inode().await.expect("an id"),
            size: 0,
            extents: vec![],
            stripes: vec![],
            inline: vec![],
            info: Default::default(),
            owner: OWNER,
            condition: Default::default(),
            copy_from: None,
        })
    }
    pub fn recalled(&self) -> Vec<InodeId> {
        self.events.recalls.lock().iter().map(|r| r.ino).collect()
    }

    /// Publishes one stripe of `len` bytes at the file's start.
    pub async fn write(&self, ino: InodeId, len: u32) -> Arc<StripeMeta> {
        let id = self.ids.stripe().await.expect("an id");
        let code = Code::new(1, 0);
        let stripe =
            Arc::new(StripeMeta { id, codec: Codec::Replica, code, len, digest: 1, osds: [OsdId(0)].into_iter().collect(), missing: 0 });
        let (attr, _) = self.meta.getattr(ino).await.expect("is there");
        let publish = Publish {
            ino,
            number: attr.number + 1,
            extents: vec![Extent { offset: 0, len, stripe: id, stripe_offset: 0 }],
            stripes: vec![stripe.clone()],
            inline: vec![],
            size: attr.size.max(len as u64),
            mtime: 1,
            ctime: 1,
            clear_suid: false,
        };
        self.meta.submit(Command::Publish(publish)).await.expect("publishes");
        stripe
    }
}

pub fn n(name: &'static str) -> Name {
    Bytes::from_static(name.as_bytes())
}

/// Publishes a size, without data.
pub async fn publish(meta: &dyn Meta, ino: InodeId, size: u64) -> MetaResult<Reply> {
    let (attr, _) = meta.getattr(ino).await?;
    let publish = Publish {
        ino,
        number: attr.number + 1,
        extents: vec![],
        stripes: vec![],
        inline: vec![],
        size,
        mtime: 1,
        ctime: 1,
        clear_suid: false,
    };
    meta.submit(Command::Publish(publish)).await
}

/// Makes the bucket `home` and returns its root.
pub async fn home(client: &Client) -> InodeId {
    let command = Command::CreateBucket { name: n("home"), shape: Shape::Tree, code: Code::new(1, 0), owner: OWNER, mode: 0o755 };
    match client.meta.submit(command).await.expect("creates") {
        Reply::Bucket(b) => b.root,
        other => panic!("{other:?}"),
    }
}

/// The in-memory log, with a gate before it.
pub struct Gate {
    inner: SharedLog,
    /// Commands that may pass, counted from the first.
    open: watch::Sender<u64>,
    tickets: AtomicUsize,
    pub waiting: watch::Sender<usize>,
    /// Commands in the order in which they came to the gate.
    pub came: Mutex<Vec<Bytes>>,
    pub broken: AtomicBool,
}

impl Gate {
    pub fn close(&self) {
        self.open.send_replace(self.tickets.load(Ordering::SeqCst) as u64);
    }
    pub fn open(&self) {
        self.open.send_replace(u64::MAX);
    }
    /// Lets one more pass.
    pub fn pass(&self) {
        self.open.send_modify(|o| *o += 1);
    }
    /// Waits until `count` commands stand before the gate.
    pub async fn stands(&self, count: usize) {
        let reached = self.waiting.subscribe();
        tokio::time::timeout(Duration::from_secs(20), reached.clone().wait_for(|w| *w == count)).await.expect("in time").expect("open");
    }
}

impl MetaLog for Gate {
    fn propose(&self, command: Bytes) -> BoxFuture<'_, LogResult<Bytes>> {
        Box::pin(async move {
            let ticket = self.tickets.fetch_add(1, Ordering::SeqCst) as u64;
            self.came.lock().push(command.clone());
            self.waiting.send_modify(|w| *w += 1);
            let _ = self.open.subscribe().wait_for(|o| ticket < *o).await;
            self.waiting.send_modify(|w| *w -= 1);
            self.may_read()?;
            self.inner.propose(command).await
        })
    }
    fn may_read(&self) -> LogResult<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(holdfast_meta_log::Error::Failed("broken by the test".into()));
        }
        self.inner.may_read()
    }
    fn applied(&self) -> u64 {
        self.inner.applied()
    }
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.inner.shutdown()
    }
}

/// A service in memory over a log that `wrap` makes of the in-memory one.
pub fn service_over(config: Config, clock: Arc<dyn Clock>, wrap: impl FnOnce(SharedLog) -> SharedLog) -> Arc<Service> {
    let metrics = Metrics::default();
    let state = crate::state::State::in_memory(config.state.clone(), metrics.clone()).expect("a fresh state");
    let log = wrap(Solo::open(clock.clone(), state.clone()).expect("a log"));
    let service = Service::assemble(state, log, None, clock, config, metrics);
    service.core.start_orphans();
    service
}

/// A service behind a gate.
pub fn gated(config: Config, clock: Arc<dyn Clock>) -> (Arc<Service>, Arc<Gate>) {
    let mut made = None;
    let service = service_over(config, clock, |inner| {
        let gate = Arc::new(Gate {
            inner,
            open: watch::Sender::new(u64::MAX),
            tickets: AtomicUsize::new(0),
            waiting: watch::Sender::new(0),
            came: Mutex::default(),
            broken: AtomicBool::new(false),
        });
        made = Some(gate.clone());
        gate
    });
    (service, made.expect("made"))
}

pub fn clock() -> ManualClock {
    ManualClock::default()
}

/// Polls until `holds` says so, giving way to other tasks, with a deadline.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never: {what}");
}

pub fn is_stale<T>(r: &MetaResult<T>) -> bool {
    matches!(r, Err(MetaError::Stale))
}
