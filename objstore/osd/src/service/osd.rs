//! The OSD itself: what its operations share, and the protocol's trait over them.

use super::config::Config;
use super::index::{Index, Key};
use super::metrics::Metrics;
use super::superblock::Superblock;
use crate::log::{self, Log};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::{Error, OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService, Stamp};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::{Notify, Semaphore};

/// One log of shards, running. Cloning shares it.
#[derive(Clone)]
pub struct Osd(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub superblock: Superblock,
    pub config: Config,
    pub log: Log,
    pub state: Mutex<State>,
    pub metrics: Metrics,
    /// Failed reads since the last good one.
    pub read_errors: AtomicU32,
    /// One housekeeper at a time.
    pub housekeeper: Semaphore,
    /// Who waits for the housekeeper to end: it gives way to nobody meanwhile.
    pub pressing: AtomicU32,
    /// Rung when cleaning got on, gave a segment back, or ended.
    pub eased: Notify,
    /// How often.
    pub steps: AtomicU64,
}

pub(super) struct State {
    pub index: Index,
    /// Puts on their way, with who waits for them.
    pub pending: HashMap<Key, Arc<Notify>>,
    /// Shards that cleaning copies now, with who waits for them.
    pub moving: BTreeMap<Key, Arc<Notify>>,
    /// Deletes on their way, by stripe.
    pub deleting: HashMap<StripeId, u32>,
    pub cleaning: super::clean::Cleaning,
    /// Held shards a read found corrupt: a put of one appends anew.
    pub corrupt: HashSet<Key>,
    pub failure: Option<String>,
    /// Of the newest list of live stripes seen since the start.
    pub stamp: holdfast_objstore_proto::shard::Stamp,
    pub keeping: super::housekeeping::Due,
}

/// Shards remembered as corrupt at most: each is repaired by one put, and found again by the next read when forgotten.
pub(super) const CORRUPT_MAX: usize = 4096;

/// Waits to be rung, unless what is waited for is over before the wait began.
pub(super) async fn wait_for(bell: &Notify, still: impl FnOnce() -> bool) {
    let mut rung = std::pin::pin!(bell.notified());
    rung.as_mut().enable();
    if still() {
        rung.await;
    }
}

impl Osd {
    pub fn superblock(&self) -> &Superblock {
        &self.0.superblock
    }
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
    /// How far its log is: the epoch of this open, and the newest record known to be stable. Neither ever goes back, so a folder that
    /// shows less than was seen before is a copy of a former time.
    pub fn reached(&self) -> (u64, u64) {
        (self.0.log.epoch(), self.0.log.durable_seq())
    }
    /// Shards held.
    pub fn shards(&self) -> usize {
        self.0.state.lock().index.shards.len()
    }
}

impl Inner {
    /// Tells whoever waits for room that housekeeping got on.
    pub fn ease(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.eased.notify_waiters();
    }

    pub fn id(&self) -> OsdId {
        self.superblock.osd
    }

    pub fn down(&self, why: impl Into<String>) -> Error {
        Error::Down { osd: self.id(), why: why.into() }
    }

    /// Refuses when out of service.
    pub fn alive(&self) -> Result<()> {
        match self.failure() {
            Some(why) => Err(self.down(why)),
            None => Ok(()),
        }
    }

    pub fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone().or_else(|| self.log.failure())
    }

    /// What an error of an append or a flush means to the caller.
    pub fn refused(&self, e: log::Error) -> Error {
        match e {
            log::Error::Full => Error::Full { osd: self.id() },
            e => self.down(e.to_string()),
        }
    }
}

impl ShardService for Osd {
    fn osd(&self) -> OsdId {
        self.0.id()
    }

    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.put(put))
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.0.alive()?;
            self.0.metrics.flushes.inc();
            self.0.log.flush().await.map(|_| ()).map_err(|e| self.0.refused(e))
        })
    }

    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>> {
        Box::pin(self.0.get(key, offset, len))
    }

    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        Box::pin(async move { Ok(self.0.get(key, 0, 0).await?.head) })
    }

    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.delete(stripes))
    }

    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.drop_shards(keys))
    }

    fn look(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        Box::pin(self.0.fresh(key, false))
    }

    fn verify(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        Box::pin(self.0.fresh(key, true))
    }

    fn fence(&self, ranges: Vec<StripeRange>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.0.fence(ranges).await })
    }

    fn retire(&self, range: StripeRange, live: Vec<StripeId>, stamp: Stamp) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move { self.0.retire(range, live, stamp).await })
    }

    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        Box::pin(async move {
            self.0.alive()?;
            let from = after.map_or(Bound::Unbounded, |k| Bound::Excluded(Key::from(k)));
            let st = self.0.state.lock();
            Ok(st.index.shards.range((from, Bound::Unbounded)).take(limit).map(|(k, _)| ShardKey::from(*k)).collect())
        })
    }

    fn space(&self) -> OsdSpace {
        let s = self.0.log.space();
        let live = self.0.state.lock().index.live_bytes;
        let (free, free_own) = (self.0.free_after_cleaning(&s, live), self.0.free_in_background(&s, live));
        OsdSpace { total: s.total, live, used: s.used, free, free_own, debt: self.0.debt() }
    }

    fn pace(&self, bytes: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.0.pace(bytes))
    }

    fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<String> {
        self.0.failure()
    }

    fn domain(&self) -> u64 {
        self.0.log.domain().0
    }
}
