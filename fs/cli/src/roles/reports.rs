//! What reads found wrong, counted for each OSD, so that `status` tells of it. Repair will take the same reports.

use holdfast_objstore_client::{RepairSink, ShardFault};
use holdfast_objstore_proto::{OsdId, StripeMeta};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Corrupt shards met since the start, by OSD. Bounded by the number of OSDs.
#[derive(Default)]
pub struct Reports(Mutex<BTreeMap<OsdId, u64>>);

impl Reports {
    pub fn corrupt(&self, osd: OsdId) -> u64 {
        self.0.lock().get(&osd).copied().unwrap_or(0)
    }
}

impl RepairSink for Reports {
    fn report(&self, stripe: Arc<StripeMeta>, shard: u8, fault: ShardFault) {
        // An absent shard may belong to a stripe that is being deleted, and an OSD that is down says so itself.
        if matches!(fault, ShardFault::Corrupt | ShardFault::OtherDigest)
            && let Some(osd) = stripe.osds.get(shard as usize)
        {
            *self.0.lock().entry(*osd).or_default() += 1;
        }
    }
}
