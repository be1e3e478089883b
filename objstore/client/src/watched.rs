//! An OSD whose calls are watched, so that one that hangs leaves service instead of holding up whoever asked it.
//!
//! What always holds: a call that is answered at once costs two loads; once the OSD is given up, every call fails with `Down`, those under
//! way too, and it stays so: what it may still do is garbage to the cluster. Whoever looks ([`Watched::look`]) runs on another thread.
//! What it leaves out: calls that block their thread; with several devices they go through a ring.

use futures::FutureExt;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard::{Error, OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService, Stamp};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

pub struct Watched {
    inner: Arc<dyn ShardService>,
    patience: Duration,
    given_up: OnceLock<String>,
    told: Notify,
    calls: Mutex<Calls>,
    pacing: Mutex<Pacing>,
}

/// Writes that wait for cleaning. That takes as long as it takes, but it gets on.
#[derive(Default)]
struct Pacing {
    waiting: usize,
    /// How many steps it had made, and since when no more.
    last: Option<(u64, Instant)>,
}

/// Calls that were not answered at once, in the order in which they began.
#[derive(Default)]
struct Calls {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

struct Paced<'a>(&'a Watched);

impl Drop for Paced<'_> {
    fn drop(&mut self) {
        let mut pacing = self.0.pacing.lock();
        pacing.waiting -= 1;
        if pacing.waiting == 0 {
            pacing.last = None;
        }
    }
}

/// One call under way.
struct Call<'a>(&'a Watched, u64);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.lock().begun.remove(&self.1);
    }
}

impl Watched {
    /// `patience`: how long one call may take before the OSD is given up.
    pub fn new(inner: Arc<dyn ShardService>, patience: Duration) -> Arc<Watched> {
        Arc::new(Watched {
            inner,
            patience,
            given_up: OnceLock::new(),
            told: Notify::new(),
            calls: Mutex::default(),
            pacing: Mutex::default(),
        })
    }

    /// How long the oldest call under way has taken, or cleaning that somebody waits for has made no step.
    pub fn slowest(&self) -> Duration {
        let called = self.calls.lock().begun.values().next().map_or(Duration::ZERO, Instant::elapsed);
        called.max(self.standing())
    }

    fn standing(&self) -> Duration {
        let mut pacing = self.pacing.lock();
        if pacing.waiting == 0 {
            return Duration::ZERO;
        }
        let steps = self.inner.steps();
        match pacing.last {
            Some((was, since)) if was == steps => since.elapsed(),
            _ => {
                pacing.last = Some((steps, Instant::now()));
                Duration::ZERO
            }
        }
    }

    /// Gives the OSD up when a call has taken too long. To be called now and then.
    pub fn look(&self) {
        let slowest = self.slowest();
        if slowest >= self.patience && self.given_up.set(format!("a call was not answered for {} s", slowest.as_secs())).is_ok() {
            failpoint::reached("client.osd_given_up");
            self.told.notify_waiters();
        }
    }

    fn down(&self) -> Option<Error> {
        self.given_up.get().map(|why| Error::Down { osd: self.inner.osd(), why: why.clone() })
    }

    fn begin(&self) -> Call<'_> {
        let mut calls = self.calls.lock();
        calls.next += 1;
        let number = calls.next;
        calls.begun.insert(number, Instant::now());
        Call(self, number)
    }

    fn watch<'a, T: Send + 'a>(&'a self, mut call: BoxFuture<'a, Result<T>>) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            if let Some(down) = self.down() {
                return Err(down);
            }
            if let Some(answer) = (&mut call).now_or_never() {
                return answer;
            }
            let _under_way = self.begin();
            let told = self.told.notified();
            // It may have been given up since it was asked.
            if let Some(down) = self.down() {
                return Err(down);
            }
            tokio::select! {
                biased;
                answer = call => answer,
                () = told => Err(self.down().expect("told only when it is")),
            }
        })
    }
}

impl ShardService for Watched {
    fn osd(&self) -> OsdId {
        self.inner.osd()
    }
    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>> {
        self.watch(self.inner.put(put))
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        self.watch(self.inner.flush())
    }
    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>> {
        self.watch(self.inner.get(key, offset, len))
    }
    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.watch(self.inner.head(key))
    }
    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        self.watch(self.inner.delete(stripes))
    }
    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        self.watch(self.inner.drop_shards(keys))
    }
    fn look(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.watch(self.inner.look(key))
    }
    fn verify(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.watch(self.inner.verify(key))
    }
    fn fence(&self, ranges: Vec<StripeRange>) -> BoxFuture<'_, Result<()>> {
        self.watch(self.inner.fence(ranges))
    }
    fn retire(&self, range: StripeRange, live: Vec<StripeId>, stamp: Stamp) -> BoxFuture<'_, Result<u64>> {
        self.watch(self.inner.retire(range, live, stamp))
    }
    fn pace(&self, bytes: u64) -> BoxFuture<'_, ()> {
        // Waiting for cleaning that gets on is no sign of a sick device; a write does not wait for one that was given up.
        Box::pin(async move {
            let mut pace = self.inner.pace(bytes);
            if (&mut pace).now_or_never().is_some() {
                return;
            }
            self.pacing.lock().waiting += 1;
            let _waits = Paced(self);
            let told = self.told.notified();
            if self.down().is_some() {
                return;
            }
            tokio::select! {
                biased;
                () = pace => {}
                () = told => {}
            }
        })
    }
    fn steps(&self) -> u64 {
        self.inner.steps()
    }
    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        self.watch(self.inner.list(after, limit))
    }
    fn space(&self) -> OsdSpace {
        self.inner.space()
    }
    fn failure(&self) -> Option<String> {
        self.given_up.get().cloned().or_else(|| self.inner.failure())
    }
    fn domain(&self) -> u64 {
        self.inner.domain()
    }
}
