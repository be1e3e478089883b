//! The way to an OSD: shards may come late, and the OSD may be out of contact.
//!
//! What always holds: a shard on its way arrives, whoever still waits for it; calls that meet an OSD out of contact wait for it.
//! What is seen here of fences and of puts is told to their checker.

use crate::checkers::fences::Fences;
use crate::trace::Trace;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::sim::Rng;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_proto::shard::{Error, OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService, Stamp};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The way to one OSD. It outlives the OSD: a life's faults are told to it by number.
pub struct Way {
    out_of_contact: Told<bool>,
    /// Of 100 shards, how many come late, by how many milliseconds at most.
    late: Mutex<(u64, u64, Rng)>,
}

/// The ways to all OSDs, by number.
#[derive(Clone)]
pub struct Network {
    ways: Arc<Vec<Way>>,
    trace: Arc<Trace>,
    pub fences: Arc<Fences>,
}

impl Network {
    pub fn new(osds: usize, seed: u64, trace: Arc<Trace>) -> Self {
        let way = |n| Way { out_of_contact: Told::new(false), late: Mutex::new((0, 0, Rng::new(seed ^ (n as u64 + 1) << 48))) };
        Self { ways: Arc::new((0..osds).map(way).collect()), trace, fences: Arc::default() }
    }

    /// Everything is as it should be again; a new life begins.
    pub fn reset(&self) {
        for way in self.ways.iter() {
            way.out_of_contact.tell(|out| *out = false);
            let mut late = way.late.lock();
            (late.0, late.1) = (0, 0);
        }
        self.fences.begin();
    }

    /// From now on calls of an OSD wait, or (`false`) no longer.
    pub fn cut(&self, osd: usize, out: bool) {
        self.trace.note(format_args!("osd.{osd} is out of contact: {out}"));
        self.ways[osd].out_of_contact.tell(|o| *o = out);
    }

    /// Of 100 shards for an OSD, so many come late.
    pub fn delay(&self, osd: usize, percent: u64, ms_max: u64) {
        self.trace.note(format_args!("{percent} % of the shards for osd.{osd} come up to {ms_max} ms late"));
        let mut late = self.ways[osd].late.lock();
        (late.0, late.1) = (percent, ms_max);
    }

    /// An OSD as others reach it.
    pub fn link(&self, inner: Arc<dyn ShardService>) -> Arc<dyn ShardService> {
        Arc::new(Link { number: inner.osd().0 as usize, inner, network: self.clone() })
    }
}

struct Link {
    number: usize,
    inner: Arc<dyn ShardService>,
    network: Network,
}

impl Link {
    fn way(&self) -> &Way {
        &self.network.ways[self.number]
    }

    async fn contact(&self) {
        self.way().out_of_contact.until(|out| (!out).then_some(())).await;
    }

    fn late_ms(&self) -> u64 {
        let (percent, ms_max, rng) = &mut *self.way().late.lock();
        if *percent > 0 && rng.below(100) < *percent { 1 + rng.below(*ms_max) } else { 0 }
    }

    fn call<'a, T: Send + 'a>(&'a self, call: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send + 'a) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            self.contact().await;
            call().await
        })
    }
}

async fn deliver(inner: Arc<dyn ShardService>, fences: Arc<Fences>, put: ShardPut) -> Result<()> {
    let arrival = fences.arrives(inner.osd(), put.head.key, put.head.session);
    let done = inner.put(put).await;
    fences.answered(arrival, &done);
    done
}

impl ShardService for Link {
    fn osd(&self) -> OsdId {
        self.inner.osd()
    }
    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (ms, fences) = (self.late_ms(), self.network.fences.clone());
            if ms == 0 && !self.way().out_of_contact.get() {
                return deliver(self.inner.clone(), fences, put).await;
            }
            let (inner, network, number, osd) = (self.inner.clone(), self.network.clone(), self.number, self.osd());
            let sent = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                network.ways[number].out_of_contact.until(|out| (!out).then_some(())).await;
                network.trace.note(format_args!("late shard {} arrives at osd.{number}", put.head.key));
                deliver(inner, fences, put).await
            });
            sent.await.unwrap_or_else(|e| Err(Error::Down { osd, why: e.to_string() }))
        })
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        self.call(|| self.inner.flush())
    }
    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>> {
        self.call(move || self.inner.get(key, offset, len))
    }
    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.call(move || self.inner.head(key))
    }
    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        self.call(move || self.inner.delete(stripes))
    }
    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        self.call(move || self.inner.drop_shards(keys))
    }
    fn look(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.call(move || self.inner.look(key))
    }
    fn verify(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.call(move || self.inner.verify(key))
    }
    fn fence(&self, ranges: Vec<StripeRange>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.contact().await;
            let done = self.inner.fence(ranges.clone()).await;
            if done.is_ok() {
                self.network.fences.raised(self.osd(), &ranges);
            }
            done
        })
    }
    fn retire(&self, range: StripeRange, live: Vec<StripeId>, stamp: Stamp) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            self.contact().await;
            let done = self.inner.retire(range, live, stamp).await;
            if done.is_ok() {
                self.network.fences.raised(self.osd(), &[range]);
            }
            done
        })
    }
    fn pace(&self, bytes: u64) -> BoxFuture<'_, ()> {
        self.inner.pace(bytes)
    }
    fn steps(&self) -> u64 {
        self.inner.steps()
    }
    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        self.call(move || self.inner.list(after, limit))
    }
    fn space(&self) -> OsdSpace {
        self.inner.space()
    }
    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }
    fn domain(&self) -> u64 {
        self.inner.domain()
    }
}
