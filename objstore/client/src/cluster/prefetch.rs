//! Fetching ahead, and reading through what was fetched.
//!
//! What always holds: `prefetch` never waits and never fails; it begins as much as limits and budget allow. A reader of bytes that are on
//! their way waits for that fetch instead of sending another, and reads for itself when it fails. A fetch that dies with its
//! runtime lets its waiters go.

use super::Cluster;
use super::cache::{Fetched, Part, Room, UNIT};
use crate::Result;
use bytes::Bytes;
use futures::future::join_all;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_proto::{StripeId, StripeMeta};
use std::ops::Range;
use std::sync::Arc;

/// A fetch under way: what its waiters look at.
#[derive(Default)]
pub(crate) struct Fetch {
    /// `Some(None)`: it failed.
    done: Told<Option<Option<Arc<Fetched>>>>,
}

impl Fetch {
    async fn wait(&self) -> Option<Arc<Fetched>> {
        self.done.until(Option::clone).await
    }
}

/// Ends a fetch exactly once, whatever becomes of its task.
struct Ending {
    cluster: Arc<Cluster>,
    stripe: StripeId,
    fetch: Arc<Fetch>,
    fetched: Option<Arc<Fetched>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.cluster.cache.end(self.stripe, &self.fetch, self.fetched.as_ref());
        let fetched = self.fetched.take();
        self.fetch.done.tell(|d| *d = Some(fetched));
    }
}

impl Cluster {
    pub(crate) fn begin_fetches(&self, stripe: &Arc<StripeMeta>, range: Range<u32>) {
        let range = range.start / UNIT * UNIT..range.end.min(stripe.len).next_multiple_of(UNIT).min(stripe.len);
        let (Ok(runtime), Some(me)) = (tokio::runtime::Handle::try_current(), self.me.upgrade()) else { return };
        if range.is_empty() || self.config.cache_bytes == 0 {
            return;
        }
        let run_max = self.config.fetch_bytes_max.max(UNIT);
        let (begun, refused) = self.cache.begin(stripe.id, range, run_max, self.config.prefetches_max);
        self.metrics.prefetches.inc_by(begun.len() as u64);
        self.metrics.prefetches_refused.inc_by(refused);
        for (fetch, run, room) in begun {
            let ending = Ending { cluster: me.clone(), stripe: stripe.id, fetch, fetched: None };
            runtime.spawn(fetch_run(ending, stripe.clone(), run, room));
        }
    }

    /// Reads what the cache has from there, and the rest from OSDs.
    pub(crate) async fn read_through(&self, stripe: &Arc<StripeMeta>, range: Range<u32>) -> Result<Vec<Bytes>> {
        let mut parts = self.cache.look(stripe.id, range.clone());
        if parts.len() == 1 {
            return self.part(stripe, parts.remove(0)).await;
        }
        let parts = join_all(parts.into_iter().map(|part| self.part(stripe, part))).await;
        let mut bytes = Vec::with_capacity(parts.len());
        for part in parts {
            bytes.extend(part?);
        }
        Ok(bytes)
    }

    async fn part(&self, stripe: &Arc<StripeMeta>, part: Part) -> Result<Vec<Bytes>> {
        let (fetched, range) = match part {
            Part::Here(fetched, range) => (Some(fetched), range),
            Part::Coming(fetch, range) => (fetch.wait().await, range),
            Part::Absent(range) => (None, range),
        };
        let Some(fetched) = fetched else {
            self.metrics.cache_miss_bytes.inc_by(range.len() as u64);
            return self.read_osds(stripe, range).await;
        };
        self.metrics.cache_hit_bytes.inc_by(range.len() as u64);
        let mut bytes = Vec::with_capacity(1);
        fetched.slice(range, &mut bytes);
        Ok(bytes)
    }
}

async fn fetch_run(mut ending: Ending, stripe: Arc<StripeMeta>, run: Range<u32>, room: Room) {
    // What fails here is reported by the read of whoever needs the bytes.
    let read = ending.cluster.read_osds(&stripe, run.clone()).await;
    ending.fetched = read.ok().map(|pieces| Fetched::new(run, pieces, room));
}
