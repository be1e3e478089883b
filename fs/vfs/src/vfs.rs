//! The mount: what it holds, how it starts and ends, and its clockwork.
//!
//! What always holds: inodes and handles live in two concurrent tables; a guard of a table is never held across an await, and an inode's mutex is
//! taken inside a table's guard, never the other way round.
//! What it leaves out: the operations (ops).

use crate::budget::DirtyBudget;
use crate::garbage::Garbage;
use crate::handle::Handle;
use crate::inline::Keeper;
use crate::inode::Inode;
use crate::metrics::Metrics;
use crate::recall::RecentRecalls;
use crate::session::{Events, Session};
use crate::types::{Config, Error, FileAttr, HandleId, KernelNotify, NodeId, ROOT, Result};
use dashmap::DashMap;
use futures::stream::{self, StreamExt};
use holdfast_meta_client::MetaService;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client::Objects;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Attr, Bucket, Kind, Name, Shape, TimeNs};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// How often the clockwork looks for old data.
const TICK: Duration = Duration::from_millis(500);
/// How long `sync_all` waits while nothing at all gets done.
const STALLED: Duration = Duration::from_secs(60);
/// Inodes written back at once by the clockwork and by `sync_all`.
const SYNCS_AT_ONCE: usize = 16;

/// Cached map chunks in the order they were loaded.
#[derive(Default)]
pub(crate) struct LoadedMaps {
    pub queue: VecDeque<LoadedChunk>,
    /// Extents of all in the queue when they were loaded.
    pub extents: usize,
    /// Counts loadings.
    pub loadings: u64,
}

pub(crate) struct LoadedChunk {
    pub inode: Weak<Inode>,
    pub chunk: u32,
    pub extents: usize,
    pub loading: u64,
}

/// A mounted bucket. Made by [`Vfs::connect`].
pub struct Vfs {
    pub(crate) me: Weak<Vfs>,
    pub(crate) service: Arc<dyn MetaService>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) notify: Arc<dyn KernelNotify>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) budget: DirtyBudget,
    pub(crate) bucket: Bucket,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) session: Mutex<Arc<Session>>,
    pub(crate) session_changed: Notify,
    pub(crate) inodes: DashMap<InodeId, Arc<Inode>>,
    pub(crate) handles: DashMap<u64, Arc<Handle>>,
    next_handle: AtomicU64,
    /// Inodes with unpublished changes.
    pub(crate) active: Mutex<BTreeMap<InodeId, Arc<Inode>>>,
    /// Inodes with dirty pages since the budget was last tight.
    pub(crate) pressable: Mutex<Vec<Arc<Inode>>>,
    /// Stripes in flight from buffered writes.
    pub(crate) flights: Semaphore,
    pub(crate) recent: Mutex<RecentRecalls>,
    /// 0: not asked yet, 1: the kernel has epochs, 2: it has not.
    pub(crate) epochs: AtomicU8,
    pub(crate) maps: Mutex<LoadedMaps>,
    /// Bytes kept with maps.
    pub(crate) inlined: Keeper,
    pub(crate) garbage: Mutex<Garbage>,
    /// What has landed is being published, because a stripe found no room.
    pub(crate) making_room: AtomicBool,
    stopping: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Vfs {
    /// Opens a caching session and mounts a tree bucket. `budget` is the process's: dirty data takes at most half of it. Call it on the runtime
    /// that is to do background work.
    ///
    /// Errors: `NotFound` without such a bucket, `NotSupported` when it is flat, `Io` when the service does not answer.
    pub async fn connect(
        service: Arc<dyn MetaService>,
        objects: Arc<dyn Objects>,
        bucket: Name,
        notify: Arc<dyn KernelNotify>,
        budget: Budget,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Arc<Vfs>> {
        let events = Arc::new(Events::default());
        let meta = service.connect(&config.client, true, events.clone()).await.map_err(crate::error::from_meta)?;
        let session = Arc::new(Session::new(meta, 0));
        let bucket = session.meta.bucket(bucket).await.map_err(crate::error::from_meta)?;
        if bucket.shape != Shape::Tree {
            return Err(Error::NotSupported);
        }
        let vfs = Arc::new_cyclic(|me| Vfs {
            me: me.clone(),
            service,
            objects,
            notify,
            clock,
            budget: DirtyBudget::new(budget),
            runtime: tokio::runtime::Handle::current(),
            session: Mutex::new(session),
            session_changed: Notify::new(),
            inodes: DashMap::new(),
            handles: DashMap::new(),
            next_handle: AtomicU64::new(1),
            active: Mutex::default(),
            pressable: Mutex::default(),
            flights: Semaphore::new(config.stripes_in_flight_max),
            recent: Mutex::default(),
            epochs: AtomicU8::new(0),
            maps: Mutex::default(),
            inlined: Keeper::default(),
            garbage: Mutex::default(),
            making_room: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            metrics: Arc::default(),
            bucket,
            config,
        });
        // The kernel never forgets the root.
        vfs.looked_up(vfs.bucket.root, Kind::Dir);
        events.attach(Arc::downgrade(&vfs), 0);
        let weak = Arc::downgrade(&vfs);
        vfs.runtime.spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                match weak.upgrade() {
                    Some(vfs) if !vfs.stopping.load(Ordering::Acquire) => vfs.tick().await,
                    _ => return,
                }
            }
        });
        Ok(vfs)
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Bytes of dirty data and of buffered writes in flight.
    pub fn dirty_bytes(&self) -> u64 {
        self.budget.bytes_used()
    }

    /// One look at the clock: writes back and publishes what is old. Done in the background twice a second; tests with a clock of their own call it.
    pub async fn tick(&self) {
        let now = self.clock.boot_ns();
        self.forget_pressable();
        let age = self.config.dirty_age.as_nanos() as u64;
        let old = self.active_inodes().into_iter().filter(|inode| {
            let mut st = inode.state.lock();
            if st.is_clean() && st.unpublished.dead_len() == 0 {
                st.active = false;
                self.active.lock().remove(&inode.ino);
                return false;
            }
            !st.syncing && st.unpublished_since.is_none_or(|since| now.saturating_sub(since) >= age)
        });
        stream::iter(old.collect::<Vec<_>>())
            .for_each_concurrent(SYNCS_AT_ONCE, |inode| async move { self.sync_in_background(&inode).await })
            .await;
    }

    pub(crate) fn active_inodes(&self) -> Vec<Arc<Inode>> {
        self.active.lock().values().cloned().collect()
    }

    /// Makes everything durable and visible: every inode's data is written, flushed and published.
    ///
    /// Errors: the first write error met; what failed is recorded for its handles as well. `Io` when for a minute no stripe was written and nothing
    /// was published: the rest stays unwritten, and the log says how much that is.
    pub async fn sync_all(&self) -> Result<()> {
        let all = stream::iter(self.active_inodes())
            .map(|inode| async move { self.sync_inode(&inode).await })
            .buffer_unordered(SYNCS_AT_ONCE)
            .collect::<Vec<Result<()>>>();
        let mut all = std::pin::pin!(all);
        let done = || self.metrics.vfs_stripes_written.get() + self.metrics.vfs_extents_published.get();
        loop {
            let before = done();
            match tokio::time::timeout(STALLED, &mut all).await {
                Ok(results) => return results.into_iter().collect(),
                Err(_) if done() != before => (),
                Err(_) => {
                    failpoint::reached("vfs.sync_stalled");
                    let unwritten = self.active_inodes().iter().filter(|i| !i.state.lock().is_clean()).count();
                    tracing::error!(inodes = unwritten, bytes = self.dirty_bytes(), "writing back has stalled: not everything is durable");
                    return Err(Error::Io);
                }
            }
        }
    }

    /// Drains the mount and ends its session. The kernel must be gone, or quiet.
    pub async fn shutdown(&self) -> Result<()> {
        self.stopping.store(true, Ordering::Release);
        let synced = self.sync_all().await;
        self.active_inodes().iter().for_each(|inode| self.bury_dead(inode));
        // Nobody reads any more.
        let _ = tokio::time::timeout(STALLED, self.delete_buried(true)).await;
        let session = self.session.lock().clone();
        if session.end() {
            session.meta.close_session().await;
        }
        synced
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    // ---- ids ----

    pub(crate) fn node_of(&self, ino: InodeId) -> NodeId {
        if ino == self.bucket.root { ROOT } else { NodeId(ino.0) }
    }

    pub(crate) fn ino_of(&self, node: NodeId) -> InodeId {
        if node == ROOT { self.bucket.root } else { InodeId(node.0) }
    }

    pub(crate) fn now(&self) -> TimeNs {
        self.clock.wall_ns() as TimeNs
    }

    // ---- tables ----

    /// A node the kernel knows.
    pub(crate) fn inode(&self, node: NodeId) -> Result<Arc<Inode>> {
        self.inodes.get(&self.ino_of(node)).map(|i| i.clone()).ok_or(Error::Stale)
    }

    /// Counts a lookup, making the inode when it is new.
    pub(crate) fn looked_up(&self, ino: InodeId, kind: Kind) -> Arc<Inode> {
        let inode = self.inodes.entry(ino).or_insert_with(|| Arc::new(Inode::new(ino, kind)));
        inode.state.lock().lookups += 1;
        inode.clone()
    }

    pub(crate) fn handle(&self, id: HandleId) -> Result<Arc<Handle>> {
        self.handles.get(&id.0).map(|h| h.clone()).ok_or(Error::BadHandle)
    }

    pub(crate) fn add_handle(&self, handle: Handle) -> HandleId {
        let id = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles.insert(id, Arc::new(handle));
        HandleId(id)
    }

    /// Removes an inode that neither the kernel nor a handle knows, gives its grant back, or writes back first what it still holds.
    pub(crate) fn reap(&self, inode: &Arc<Inode>) {
        let mut dirty = false;
        let mut released = None;
        self.inodes.remove_if(&inode.ino, |_, i| {
            let mut st = i.state.lock();
            if !Arc::ptr_eq(i, inode) || st.lookups > 0 || st.opens > 0 || st.reading > 0 || st.dir_ops > 0 {
                return false;
            }
            if !st.is_clean() {
                dirty = true;
                return false;
            }
            self.bury(st.unpublished.take_dead());
            released = st.lease.release();
            true
        });
        if let Some(stamp) = released {
            self.recent.lock().note(inode.ino, stamp);
            self.session.lock().meta.release(vec![inode.ino]);
        }
        if dirty && let Some(me) = self.me.upgrade() {
            let inode = inode.clone();
            self.runtime.spawn(async move { me.part_with(&inode).await });
        }
    }

    // ---- replies ----

    /// Attributes for the kernel and how long it may keep them. `committed` counts where nothing is held.
    pub(crate) fn attr_of(&self, inode: &Inode, committed: &Attr) -> (FileAttr, Duration) {
        let st = inode.state.lock();
        let valid = if st.lease.may_cache() { self.config.valid } else { Duration::ZERO };
        (st.overlay(committed, self.node_of(inode.ino)), valid)
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        tracing::debug!(dirty = self.budget.bytes_used(), "mount dropped");
    }
}
