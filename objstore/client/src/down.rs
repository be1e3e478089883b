//! The place of an OSD that is not there, so that the others keep their numbers and reads know to go round it.
//!
//! What always holds: every call fails with `Down` and the reason; it has no space.

use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::{Error, OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService, Stamp};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};

/// An OSD that was lost, or refused to start.
#[derive(Debug, Clone)]
pub struct DownOsd {
    pub osd: OsdId,
    /// One sentence for `status`.
    pub why: String,
}

impl DownOsd {
    fn fail<T: Send + 'static>(&self) -> BoxFuture<'_, Result<T>> {
        let error = Error::Down { osd: self.osd, why: self.why.clone() };
        Box::pin(std::future::ready(Err(error)))
    }
}

impl ShardService for DownOsd {
    fn osd(&self) -> OsdId {
        self.osd
    }
    fn put(&self, _: ShardPut) -> BoxFuture<'_, Result<()>> {
        self.fail()
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        self.fail()
    }
    fn get(&self, _: ShardKey, _: u32, _: u32) -> BoxFuture<'_, Result<ShardRead>> {
        self.fail()
    }
    fn head(&self, _: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.fail()
    }
    fn delete(&self, _: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        self.fail()
    }
    fn drop_shards(&self, _: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        self.fail()
    }
    fn fence(&self, _: Vec<StripeRange>) -> BoxFuture<'_, Result<()>> {
        self.fail()
    }
    fn retire(&self, _: StripeRange, _: Vec<StripeId>, _: Stamp) -> BoxFuture<'_, Result<u64>> {
        self.fail()
    }
    fn list(&self, _: Option<ShardKey>, _: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        self.fail()
    }
    fn space(&self) -> OsdSpace {
        OsdSpace::default()
    }
    fn failure(&self) -> Option<String> {
        Some(self.why.clone())
    }
    /// A domain of its own: nothing there is ever flushed.
    fn domain(&self) -> u64 {
        u64::MAX - self.osd.0 as u64
    }
}
