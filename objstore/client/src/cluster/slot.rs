//! One OSD as the cluster sees it: its service, its flush domain, and how many puts it owes us.
//!
//! What always holds: an OSD that owes more than the limit gets no new shards until it answers, so a hung one costs a bounded
//! amount of memory, and new stripes are written without it in full instead of with holes.

use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::ShardService;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Slot {
    pub osd: OsdId,
    pub domain: u64,
    pub service: Arc<dyn ShardService>,
    /// Calls answered without: they still run.
    owed: AtomicU32,
}

impl Slot {
    pub fn new(service: Arc<dyn ShardService>) -> Arc<Slot> {
        Arc::new(Slot { osd: service.osd(), domain: service.domain(), service, owed: AtomicU32::new(0) })
    }

    pub fn owed(&self) -> u32 {
        self.owed.load(Ordering::Relaxed)
    }

    /// Notes one more call that nobody waits for; `None` at the limit.
    pub fn owe(self: &Arc<Self>, owed_max: u32) -> Option<Owed> {
        self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < owed_max).then_some(n + 1)).ok()?;
        Some(Owed(self.clone()))
    }
}

/// A call that runs on without its caller.
pub(crate) struct Owed(Arc<Slot>);

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.owed.fetch_sub(1, Ordering::Relaxed);
    }
}
