//! The provider over our own OSDs: one object that any thread may call.
//!
//! What always holds: what it answers about a stripe was true of the OSDs named in the stripe's record; nothing else is
//! remembered but caches, times and counts. No lock is held over an await, and nothing is spawned on the way of a request but
//! for shards that came too late for their write.
//! What it leaves out: when to repair (it reports to a [`RepairSink`], and does what [`crate::Upkeep`] asks), fencing, reconciling.

mod cache;
mod config;
mod decode;
mod delete;
mod encoded;
mod flush;
mod headroom;
mod late;
mod pace;
mod plan;
mod prefetch;
mod put;
mod read;
mod readers;
mod rebuild;
mod recent;
mod reencode;
mod slot;
mod space;
mod upkeep;
mod write;

pub use config::Config;

use crate::{CountingSink, Metrics, Objects, RepairSink, Result, Returning, StripeWrite, UsableSpace};
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use parking_lot::RwLock;
use slot::{Slot, Slots};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::Notify;

pub struct Cluster {
    me: Weak<Cluster>,
    slots: RwLock<Arc<Slots>>,
    config: Config,
    metrics: Metrics,
    write_times: Arc<recent::Recent>,
    flush_times: Arc<recent::Recent>,
    get_times: recent::Recent,
    late: Arc<late::Late>,
    cache: cache::Cache,
    repair: Arc<dyn RepairSink>,
    returning: OnceLock<Arc<dyn Returning>>,
    /// Rung by each deletion.
    deleted: Notify,
    /// Writes that wait for room are let through one after the other.
    turn: tokio::sync::Mutex<()>,
    progress: pace::Progress,
    /// Bytes of writes that were let through and are not answered yet.
    writing: Arc<AtomicU64>,
    readers: readers::Readers,
}

impl Cluster {
    /// `osds`: every OSD the cluster's stripes may name, lost ones as [`crate::DownOsd`]; ids are distinct. `budget` is what the
    /// cache is charged to. Reports of bad shards are only counted.
    pub fn new(osds: Vec<Arc<dyn ShardService>>, budget: Budget, config: Config) -> Arc<Cluster> {
        Self::with_repair(osds, budget, config, Arc::new(CountingSink::default()))
    }

    /// As [`Cluster::new`], with reports of bad shards to `repair`.
    pub fn with_repair(osds: Vec<Arc<dyn ShardService>>, budget: Budget, config: Config, repair: Arc<dyn RepairSink>) -> Arc<Cluster> {
        let slots = RwLock::new(Arc::new(Slots::new(osds, None)));
        let cache = cache::Cache::new(budget, config.cache_bytes);
        Arc::new_cyclic(|me| Cluster {
            me: me.clone(),
            slots,
            config,
            metrics: Metrics::default(),
            write_times: Arc::new(recent::Recent::new()),
            flush_times: Arc::new(recent::Recent::new()),
            get_times: recent::Recent::new(),
            late: Arc::new(late::Late::default()),
            cache,
            repair,
            returning: OnceLock::new(),
            deleted: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            progress: pace::Progress::default(),
            writing: Arc::default(),
            readers: readers::Readers::default(),
        })
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Bytes of the budget that prefetched data takes now, data still on its way included.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Changes the set of OSDs while the cluster runs: those that were in it before stay as they are, with what they owe. Calls under way end
    /// with the OSDs they began with.
    pub fn set_osds(&self, osds: Vec<Arc<dyn ShardService>>) {
        let mut slots = self.slots.write();
        *slots = Arc::new(Slots::new(osds, Some(&slots)));
    }

    /// An OSD that is to be left gets no new shards, and repair moves those it has elsewhere.
    pub fn set_leaving(&self, osd: OsdId, leaving: bool) {
        if let Some(slot) = self.slot(osd) {
            slot.set_leaving(leaving);
        }
    }

    fn slots(&self) -> Arc<Slots> {
        self.slots.read().clone()
    }

    fn slot(&self, osd: OsdId) -> Option<Arc<Slot>> {
        self.slots.read().get(osd).cloned()
    }

    /// All OSDs in service share one flush domain: nobody is faster than another, so nothing is hedged.
    fn one_domain(&self) -> bool {
        self.slots.read().one_domain
    }
}

/// Shards that must be acknowledged before a write of `code` may be answered: one more than reading needs, so that any one
/// device may be lost at once; without parity, and of a single copy, what there is.
pub fn write_quorum(code: Code) -> usize {
    (code.k as usize + 1).min(code.n())
}

impl Objects for Cluster {
    fn write(&self, write: StripeWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(self.write_stripe(write))
    }

    fn flush(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<Vec<Arc<StripeMeta>>>> {
        Box::pin(self.flush_stripes(stripes))
    }

    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(self.read_range(stripe, range))
    }

    fn prefetch(&self, stripe: &Arc<StripeMeta>, range: Range<u32>) {
        self.begin_fetches(stripe, range);
    }

    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.delete_stripes(stripes))
    }

    fn drop_caches(&self) {
        self.cache.clear();
    }

    fn space(&self, code: Code) -> UsableSpace {
        self.usable_space(code)
    }

    fn osds(&self) -> Vec<(OsdId, Option<String>)> {
        self.slots().list.iter().map(|s| (s.osd, s.service.failure())).collect()
    }
}
