//! What reads found wrong: counted for each OSD, and handed to repair once there is one.

use holdfast_objstore_client::{RepairSink, ShardFault};
use holdfast_objstore_proto::{OsdId, StripeMeta};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Corrupt shards met since the start, by OSD. Bounded by the number of OSDs.
#[derive(Default)]
pub struct Reports {
    corrupt: Mutex<BTreeMap<OsdId, u64>>,
    repair: OnceLock<Arc<dyn RepairSink>>,
}

impl Reports {
    /// How many since the start, repaired or not.
    pub fn corrupt(&self, osd: OsdId) -> u64 {
        self.corrupt.lock().get(&osd).copied().unwrap_or(0)
    }

    /// From now on repair hears of everything too.
    pub fn attach(&self, repair: Arc<dyn RepairSink>) {
        if self.repair.set(repair).is_err() {
            tracing::error!("a second repair was attached to one cluster");
        }
    }
}

impl RepairSink for Reports {
    fn report(&self, stripe: Arc<StripeMeta>, shard: u8, fault: ShardFault) {
        // An absent shard may belong to a stripe that is being deleted, and an OSD that is down says so itself.
        if matches!(fault, ShardFault::Corrupt | ShardFault::OtherDigest)
            && let Some(osd) = stripe.osds.get(shard as usize)
        {
            *self.corrupt.lock().entry(*osd).or_default() += 1;
        }
        if let Some(repair) = self.repair.get() {
            repair.report(stripe, shard, fault);
        }
    }
}
