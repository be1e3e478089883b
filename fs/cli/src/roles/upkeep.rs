//! Wires repair: metadata behind its seam, the file that keeps how far a scrub is, and the watch over OSDs that fail.

use super::data::Running;
use holdfast_meta_server::Service;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::RealDisk;
use holdfast_objstore_client::Cluster;
use holdfast_objstore_proto::{Code, OsdId, StripeId, StripeMeta};
use holdfast_objstore_repair::{Config, Records, Repair, ScrubState, ScrubStore};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The file in the first data folder that keeps how far a scrub is.
const SCRUB_FILE: &str = "scrub.json";
/// An OSD that a start did not find is counted as lost for good after so long.
const LOST_AFTER: Duration = Duration::from_secs(600);
/// Between two looks whether an OSD has failed.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Repair of a cluster, not yet begun.
/// `unconfirmed`: while it is set, the metadata was restored and what it does not know is reported, not deleted.
pub fn repair(
    objects: Arc<Cluster>,
    service: Arc<Service>,
    disk: Arc<RealDisk>,
    home: &Path,
    clock: Arc<dyn Clock>,
    unconfirmed: Arc<AtomicBool>,
) -> Arc<Repair> {
    let store = Arc::new(ScrubFile { disk, path: home.join(SCRUB_FILE) });
    Repair::new(objects, Arc::new(ServiceRecords(service, unconfirmed)), clock, store, Config::default())
}

struct ServiceRecords(Arc<Service>, Arc<AtomicBool>);

impl Records for ServiceRecords {
    fn stripe(&self, id: StripeId) -> Result<Option<Arc<StripeMeta>>, String> {
        self.0.stripe(id).map_err(|e| e.to_string())
    }
    fn stripes(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, String> {
        self.0.stripes(after, max).map_err(|e| e.to_string())
    }
    fn missing(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, String> {
        self.0.stripes_missing(after, max).map_err(|e| e.to_string())
    }
    fn live(&self, ids: &[StripeId]) -> Result<Vec<bool>, String> {
        self.0.stripes_live(ids).map_err(|e| e.to_string())
    }
    fn may_be_old(&self) -> bool {
        self.1.load(Ordering::Acquire)
    }
    fn codes(&self) -> Result<Vec<(u32, Code)>, String> {
        let buckets = self.0.all_buckets().map_err(|e| e.to_string())?;
        Ok(buckets.into_iter().map(|b| (b.id.0, b.code)).collect())
    }
    fn count(&self) -> u64 {
        self.0.stripe_count()
    }
    fn swap(&self, old: Arc<StripeMeta>, new: Arc<StripeMeta>) -> BoxFuture<'_, Result<bool, String>> {
        Box::pin(async move { self.0.swap_stripe(old, new).await.map_err(|e| e.to_string()) })
    }
}

struct ScrubFile {
    disk: Arc<RealDisk>,
    path: PathBuf,
}

impl ScrubStore for ScrubFile {
    fn load(&self) -> Option<ScrubState> {
        let bytes = self.disk.read_small(&self.path).ok().flatten()?;
        serde_json::from_slice(&bytes).inspect_err(|e| tracing::warn!("{}: {e}; scrubs begin anew", self.path.display())).ok()
    }
    fn keep(&self, state: &ScrubState) {
        let kept = serde_json::to_vec_pretty(state).map_err(anyhow::Error::from);
        if let Err(e) = kept.and_then(|bytes| Ok(self.disk.write_small(&self.path, &bytes, 0o644)?)) {
            tracing::warn!("how far the scrub is was not kept: {e:#}");
        }
    }
}

/// An OSD that fails while it serves is lost for good: no new shards go to it, and what it had is made elsewhere where there is room. One that
/// a start did not find may be brought back; it is given some time.
pub async fn watch(running: Arc<Running>) {
    let mut lost: BTreeMap<OsdId, Instant> = failed(&running).into_iter().map(|osd| (osd, Instant::now())).collect();
    let mut left: BTreeSet<OsdId> = BTreeSet::new();
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        let now = failed(&running);
        lost.retain(|osd, _| now.contains(osd));
        left.retain(|osd| now.contains(osd));
        for osd in now {
            let Some(state) = running.osds.get(osd) else { continue };
            let since = *lost.entry(osd).or_insert_with(Instant::now);
            if left.contains(&osd) || !state.was_open() && since.elapsed() < LOST_AFTER {
                continue;
            }
            let why = state.failure().unwrap_or_default();
            tracing::error!("{osd} is lost ({why}): its shards are made anew where an OSD can take them");
            state.give_up();
            running.objects.set_leaving(osd, true);
            running.repair.look_at_all();
            left.insert(osd);
        }
    }
}

fn failed(running: &Running) -> BTreeSet<OsdId> {
    running.osds.list().iter().filter(|o| o.failure().is_some()).map(|o| o.id).collect()
}
