//! Repair, wired as `holdfast up` does: metadata behind its seam, reports of reads, and the watch over OSDs that fail.

use crate::clock::SimClock;
use holdfast_meta_server::Service;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_client::{Cluster, Objects, RepairSink, ShardFault, Watched};
use holdfast_objstore_proto::shard::Stamp;
use holdfast_objstore_proto::{Code, OsdId, StripeId, StripeMeta, StripeRange};
use holdfast_objstore_repair::{Config, Ranges, Records, Repair, ScrubState, ScrubStore};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Between two looks whether an OSD has failed.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Hands reports to repair once there is one.
#[derive(Default)]
pub struct Reports(OnceLock<Weak<dyn RepairSink>>);

impl RepairSink for Reports {
    fn report(&self, stripe: Arc<StripeMeta>, shard: u8, fault: ShardFault) {
        if let Some(repair) = self.0.get().and_then(Weak::upgrade) {
            repair.report(stripe, shard, fault);
        }
    }
}

struct ServiceRecords(Arc<Service>);

fn told<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

impl Records for ServiceRecords {
    fn stripe(&self, id: StripeId) -> Result<Option<Arc<StripeMeta>>, String> {
        told(self.0.stripe(id))
    }
    fn stripes(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, String> {
        told(self.0.stripes(after, max))
    }
    fn missing(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, String> {
        told(self.0.stripes_missing(after, max))
    }
    fn live(&self, ids: &[StripeId]) -> Result<Vec<bool>, String> {
        told(self.0.stripes_live(ids))
    }
    fn codes(&self) -> Result<Vec<(u32, Code)>, String> {
        Ok(told(self.0.all_buckets())?.into_iter().map(|b| (b.id.0, b.code)).collect())
    }
    fn count(&self) -> u64 {
        self.0.stripe_count()
    }
    fn swap(&self, old: Arc<StripeMeta>, new: Arc<StripeMeta>) -> BoxFuture<'_, Result<bool, String>> {
        Box::pin(async move { told(self.0.swap_stripe(old, new).await) })
    }
}

/// The metadata service, as reconciling sees it.
pub struct ServiceRanges(pub Arc<Service>);

impl Ranges for ServiceRanges {
    fn closed(&self) -> Result<(Stamp, Vec<StripeRange>), String> {
        told(self.0.closed_ranges())
    }
    fn held_in(&self, range: StripeRange) -> Result<Vec<StripeId>, String> {
        told(self.0.held_in(range))
    }
    fn more_closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.ranges_closed())
    }
    fn is_over(&self) -> bool {
        self.0.status().failed.is_some()
    }
}

/// Scrubs begin anew with each life.
struct Forgetful;

impl ScrubStore for Forgetful {
    fn load(&self) -> Option<ScrubState> {
        None
    }
    fn keep(&self, _: &ScrubState) {}
}

/// Begins repair in the current runtime, and the watch over OSDs that fail while they serve.
pub fn start(
    objects: &Arc<Cluster>,
    service: &Arc<Service>,
    reports: &Reports,
    clock: &SimClock,
    watched: Arc<Mutex<Vec<Arc<Watched>>>>,
) -> Arc<Repair> {
    let records = Arc::new(ServiceRecords(service.clone()));
    let repair = Repair::new(objects.clone(), records, Arc::new(clock.clone()), Arc::new(Forgetful), Config::default());
    // Nothing else can have been set: the reports are new with each start.
    let _ = reports.0.set(Arc::downgrade(&repair.sink()));
    repair.start();
    tokio::spawn(watch(objects.clone(), repair.clone(), watched));
    repair
}

async fn watch(objects: Arc<Cluster>, repair: Arc<Repair>, watched: Arc<Mutex<Vec<Arc<Watched>>>>) {
    let failed = || -> BTreeSet<OsdId> { objects.osds().into_iter().filter(|o| o.1.is_some()).map(|o| o.0).collect() };
    // What was not there at the start may come back; what fails now is lost for good.
    let mut known = failed();
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        watched.lock().iter().for_each(|w| w.look());
        let now = failed();
        // One that was made anew may fail again.
        known.retain(|osd| now.contains(osd));
        for osd in now {
            if known.insert(osd) {
                objects.set_leaving(osd, true);
                repair.look_at_all();
            }
        }
    }
}
