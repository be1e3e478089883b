//! OSDs that break their promises.

use super::Bug;
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::{OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService, Stamp};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Shards {
    pub inner: Arc<dyn ShardService>,
    pub bug: Bug,
    /// The bytes of the last put of each length.
    last: Mutex<BTreeMap<usize, Bytes>>,
}

impl Shards {
    pub fn new(inner: Arc<dyn ShardService>, bug: Bug) -> Self {
        Self { inner, bug, last: Mutex::default() }
    }
}

impl ShardService for Shards {
    fn osd(&self) -> OsdId {
        self.inner.osd()
    }
    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>> {
        match self.bug {
            // Content with k of the shards: the others are acknowledged and not there.
            Bug::QuorumOffByOne if put.head.key.shard >= put.head.code.k => Box::pin(std::future::ready(Ok(()))),
            // A slot whose header was not renewed: the record in it is still the former one of its size.
            Bug::StaleRecord => {
                let former = self.last.lock().insert(put.data.len(), put.data.clone());
                let crcs = holdfast_objstore_base::checksum::crc32c;
                let put = match former {
                    Some(data) if put.head.key.stripe.counter % 4 == 0 => {
                        let crcs = data.chunks(4096).map(crcs).collect();
                        ShardPut { data, crcs, ..put }
                    }
                    _ => put,
                };
                self.inner.put(put)
            }
            _ => self.inner.put(put),
        }
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        match self.bug {
            Bug::ShardAckBeforeFlush => Box::pin(std::future::ready(Ok(()))),
            _ => self.inner.flush(),
        }
    }
    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>> {
        self.inner.get(key, offset, len)
    }
    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.inner.head(key)
    }
    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        match self.bug {
            Bug::LostDelete => Box::pin(std::future::ready(Ok(()))),
            _ => self.inner.delete(stripes),
        }
    }
    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        match self.bug {
            Bug::LostDelete => Box::pin(std::future::ready(Ok(()))),
            _ => self.inner.drop_shards(keys),
        }
    }
    fn look(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.inner.look(key)
    }
    fn verify(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.inner.verify(key)
    }
    fn fence(&self, ranges: Vec<StripeRange>) -> BoxFuture<'_, Result<()>> {
        match self.bug {
            Bug::MissingFence => Box::pin(std::future::ready(Ok(()))),
            _ => self.inner.fence(ranges),
        }
    }
    fn retire(&self, range: StripeRange, live: Vec<StripeId>, stamp: Stamp) -> BoxFuture<'_, Result<u64>> {
        match self.bug {
            // What is held now goes, and what comes later stays.
            Bug::MissingFence => Box::pin(async move {
                let held = self.inner.list(ShardKey::before(range.first), usize::MAX).await?;
                let mut garbage: Vec<StripeId> = held.iter().map(|k| k.stripe).take_while(|s| range.contains(*s)).collect();
                garbage.dedup();
                garbage.retain(|s| !live.contains(s));
                let dropped = garbage.len() as u64;
                self.inner.delete(garbage).await?;
                self.inner.flush().await?;
                Ok(dropped)
            }),
            // Nor does this delete.
            Bug::LostDelete => Box::pin(async move {
                self.inner.fence(vec![range]).await?;
                Ok(0)
            }),
            _ => self.inner.retire(range, live, stamp),
        }
    }
    fn pace(&self, bytes: u64) -> BoxFuture<'_, ()> {
        self.inner.pace(bytes)
    }
    fn steps(&self) -> u64 {
        self.inner.steps()
    }
    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        self.inner.list(after, limit)
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
