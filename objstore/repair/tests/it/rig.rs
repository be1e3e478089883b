//! Six or more OSDs on simulated disks, a cluster over them, records in a map, and repair of it all.

use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::clock::ManualClock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::SimDisk;
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Cluster, Config as ClientConfig, DownOsd, Error, Objects, Upkeep};
use holdfast_objstore_osd::{Config as OsdConfig, FormatOptions, Osd};
use holdfast_objstore_proto::shard::{Hint, ShardKey, ShardService};
use holdfast_objstore_proto::{Code, OsdId, StripeId, StripeMeta};
use holdfast_objstore_repair::{Config, Records, Repair, ScrubState, ScrubStore};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const CODE: Code = Code::new(4, 2);
pub const BUCKET: u32 = 5;
const SEGMENT: u64 = 2 << 20;

/// Metadata as repair sees it.
#[derive(Default)]
pub struct Map {
    pub stripes: Mutex<BTreeMap<StripeId, Arc<StripeMeta>>>,
    /// Ids that a living session may still publish.
    pub open: Mutex<BTreeSet<StripeId>>,
    /// The next swaps fail, having done nothing.
    pub refuse_swaps: Mutex<u32>,
    /// They were restored, and nobody has confirmed it.
    pub old: AtomicBool,
}

impl Records for Map {
    fn stripe(&self, id: StripeId) -> Result<Option<Arc<StripeMeta>>, String> {
        Ok(self.stripes.lock().get(&id).cloned())
    }
    fn stripes(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, String> {
        Ok(self.stripes.lock().values().filter(|s| after.is_none_or(|a| s.id > a)).take(max).cloned().collect())
    }
    fn missing(&self, after: Option<StripeId>, max: usize) -> Result<Vec<Arc<StripeMeta>>, String> {
        Ok(self.stripes.lock().values().filter(|s| s.missing != 0 && after.is_none_or(|a| s.id > a)).take(max).cloned().collect())
    }
    fn live(&self, ids: &[StripeId]) -> Result<Vec<bool>, String> {
        let (stripes, open) = (self.stripes.lock(), self.open.lock());
        Ok(ids.iter().map(|id| stripes.contains_key(id) || open.contains(id)).collect())
    }
    fn may_be_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }
    fn codes(&self) -> Result<Vec<(u32, Code)>, String> {
        Ok(vec![(BUCKET, CODE)])
    }
    fn count(&self) -> u64 {
        self.stripes.lock().len() as u64
    }
    fn swap(&self, old: Arc<StripeMeta>, new: Arc<StripeMeta>) -> BoxFuture<'_, Result<bool, String>> {
        Box::pin(async move {
            {
                let mut refuse = self.refuse_swaps.lock();
                if *refuse > 0 {
                    *refuse -= 1;
                    return Err("the test refuses".into());
                }
            }
            let mut stripes = self.stripes.lock();
            let same = stripes.get(&old.id) == Some(&old);
            if same {
                stripes.insert(new.id, new);
            }
            Ok(same)
        })
    }
}

/// Keeps the scrub's state in memory.
#[derive(Default)]
pub struct Kept(pub Mutex<Option<ScrubState>>);

impl ScrubStore for Kept {
    fn load(&self) -> Option<ScrubState> {
        self.0.lock().clone()
    }
    fn keep(&self, state: &ScrubState) {
        *self.0.lock() = Some(state.clone());
    }
}

pub struct Device {
    pub disk: Arc<SimDisk>,
    pub dir: PathBuf,
    pub osd: Option<Osd>,
}

pub struct Rig {
    pub devices: Vec<Device>,
    pub cluster: Arc<Cluster>,
    pub map: Arc<Map>,
    pub kept: Arc<Kept>,
    pub clock: ManualClock,
    pub repair: Arc<Repair>,
    pub next: u64,
}

pub async fn open(disk: &Arc<SimDisk>, dir: &Path) -> Osd {
    Osd::open(disk.clone(), dir, osd_config()).await.unwrap().0
}

pub fn osd_config() -> OsdConfig {
    let blocking = holdfast_objstore_osd::log::Blocking::Here;
    OsdConfig { capacity_bytes: Some(128 << 20), cache_bytes: 1 << 20, blocking, ..OsdConfig::default() }
}

pub fn format(disk: &Arc<SimDisk>, dir: &Path, id: u16, log: u128) {
    let mut options = FormatOptions::new(7, OsdId(id), log, 1);
    options.segment_bytes = SEGMENT;
    Osd::format(&**disk, dir, options).unwrap();
}

impl Device {
    pub async fn new(id: u16) -> Device {
        let (disk, dir) = (Arc::new(SimDisk::new(id as u64 + 1)), PathBuf::from(format!("/osd.{id}")));
        format(&disk, &dir, id, 100 + id as u128);
        let osd = open(&disk, &dir).await;
        Device { disk, dir, osd: Some(osd) }
    }

    pub fn service(&self, id: usize) -> Arc<dyn ShardService> {
        match &self.osd {
            Some(osd) => Arc::new(osd.clone()),
            None => Arc::new(DownOsd { osd: OsdId(id as u16), why: "the test took it away".into() }),
        }
    }
}

pub fn quick() -> Config {
    Config {
        retry: Duration::from_millis(200),
        missing_every: Duration::from_millis(20),
        grace: Duration::from_millis(20),
        idle_after: Duration::ZERO,
        page: 7,
        ..Config::default()
    }
}

impl Rig {
    pub async fn new(osds: u16) -> Rig {
        Self::with(osds, quick()).await
    }

    pub async fn with(osds: u16, config: Config) -> Rig {
        let mut devices = Vec::new();
        for id in 0..osds {
            devices.push(Device::new(id).await);
        }
        let services = devices.iter().enumerate().map(|(id, d)| d.service(id)).collect();
        let cluster = Cluster::new(services, Budget::new(16 << 20), ClientConfig { cache_bytes: 0, ..ClientConfig::default() });
        let (map, kept, clock) = (Arc::new(Map::default()), Arc::new(Kept::default()), ManualClock::default());
        let repair = Repair::new(cluster.clone(), map.clone(), Arc::new(clock.clone()), kept.clone(), config);
        Rig { devices, cluster, map, kept, clock, repair, next: 0 }
    }

    /// Writes, flushes and publishes `count` stripes of `len` bytes, with the code that fits now.
    pub async fn fill(&mut self, count: u64, len: u32) -> Vec<StripeId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let mut tries = 0;
            let meta = loop {
                match self.put(len).await {
                    Ok(meta) => break meta,
                    // A device that fails its flush beside one that was too slow: one below the quorum, and a writer tries again.
                    Err(e) => assert!(matches!(e, Error::Unavailable { .. }) && tries < 10, "{e}"),
                }
                tries += 1;
            };
            ids.push(meta.id);
            self.map.stripes.lock().insert(meta.id, meta);
        }
        ids
    }

    async fn put(&mut self, len: u32) -> Result<Arc<StripeMeta>, Error> {
        self.next += 1;
        let mut write = stripe(self.next, CODE, len);
        write.hint = Hint { bucket: BUCKET, ..Hint::default() };
        let meta = self.cluster.write(write).await?;
        Ok(self.cluster.flush(vec![meta]).await?.remove(0))
    }

    pub fn record(&self, id: StripeId) -> Arc<StripeMeta> {
        self.map.stripes.lock()[&id].clone()
    }

    /// Tells the cluster which OSDs there are now, and repair to look.
    pub fn changed(&self) {
        self.cluster.set_osds(self.devices.iter().enumerate().map(|(id, d)| d.service(id)).collect());
        self.repair.look_at_all();
    }

    /// An empty OSD in the place of another.
    pub async fn replace(&mut self, id: u16) {
        let device = &mut self.devices[id as usize];
        let dir = PathBuf::from(format!("/new/osd.{id}"));
        format(&device.disk, &dir, id, 900 + id as u128);
        device.osd = Some(open(&device.disk, &dir).await);
        device.dir = dir;
        self.changed();
    }

    /// A restart of repair, as a process would begin it.
    pub async fn restart_repair(&mut self) {
        self.repair.stop().await;
        self.repair = Repair::new(self.cluster.clone(), self.map.clone(), Arc::new(self.clock.clone()), self.kept.clone(), quick());
    }

    pub async fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let wait = async {
            while !is() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), wait).await;
        assert!(ended.is_ok(), "not in time: {what}; {:?}", self.repair.progress());
    }

    /// Until repair knows of nothing that lacks.
    pub async fn settled(&self) {
        self.until("settled", || self.repair.progress().settled()).await;
    }

    /// Every stripe has all shards, each verified, and its bytes are right.
    pub async fn all_whole(&self) {
        let all: Vec<_> = self.map.stripes.lock().values().cloned().collect();
        for meta in all {
            let seen = self.cluster.examine(&meta, u32::MAX).await;
            assert_eq!(seen.good.count_ones() as usize, meta.code.n(), "{meta:?}: {seen:?}");
            assert_eq!(meta.missing, 0);
            expect(&*self.cluster, &meta, 0..meta.len).await;
        }
    }

    /// No OSD in service holds what no record names.
    pub async fn nothing_unnamed(&self) -> bool {
        for (id, device) in self.devices.iter().enumerate() {
            let Some(osd) = &device.osd else { continue };
            for key in osd.list(None, 10_000).await.unwrap() {
                let named =
                    self.map.stripes.lock().get(&key.stripe).is_some_and(|s| s.osds.get(key.shard as usize) == Some(&OsdId(id as u16)));
                if !named && !self.map.open.lock().contains(&key.stripe) {
                    return false;
                }
            }
        }
        true
    }

    pub fn osd_of(&self, meta: &StripeMeta, shard: usize) -> &Osd {
        self.devices[meta.osds[shard].0 as usize].osd.as_ref().expect("it is in service")
    }

    pub fn key(meta: &StripeMeta, shard: usize) -> ShardKey {
        ShardKey { stripe: meta.id, shard: shard as u8 }
    }

    /// Overwrites every segment of a device from the first record on.
    pub fn rot(&self, id: usize, seed: u64) {
        let device = &self.devices[id];
        let log = device.dir.join("log");
        for name in device.disk.list(&log).unwrap().into_iter().filter(|n| n.ends_with(".segment")) {
            device.disk.corrupt(&log.join(name), 16 << 10..SEGMENT, seed);
        }
    }
}
