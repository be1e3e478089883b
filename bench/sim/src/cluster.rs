//! Wires the cluster of a run as `holdfast up` does: OSDs, object cluster, metadata, mounts.
//!
//! What it leaves out: the kernel, HTTP and the admin channel.

use crate::clock::SimClock;
use crate::coverage::Meters;
use crate::devices::{Devices, folder};
use crate::network::Network;
use crate::places::{self, Place, Standing};
use crate::plan::{META_DEVICE, Plan};
use crate::planted::{self, Bug};
use crate::trace::Trace;
use crate::upkeep::{self, Reports, ServiceRanges};
use bytes::Bytes;
use holdfast_fs_vfs::{NoKernel, Vfs};
use holdfast_meta_client::{Meta, MetaService, NoEvents};
use holdfast_meta_log::Blocking;
use holdfast_meta_log::raft::{self, mirror};
use holdfast_meta_server::{Config as MetaConfig, Deps, PackStore, PackWrite, Room, Service, StateConfig, StripeReaper};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_client::{Cluster, Config as ObjectsConfig, DownOsd, Objects, Returning, StripeWrite, Watched};
use holdfast_objstore_osd::service::superblock::{FILE as SUPERBLOCK, LOG_DIR};
use holdfast_objstore_osd::{Config as OsdConfig, FormatOptions, Inspect, Osd, inspect};
use holdfast_objstore_proto::meta::{Command, Owner, Shape};
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use holdfast_objstore_repair::{Begun, Reconciler, Repair, reconcile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The bucket all clients use.
pub const HOME: &[u8] = b"home";

const CLUSTER: u128 = 0x51;

/// How long an OSD may take for one call before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Where and when a cluster starts.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub plan: &'a Plan,
    pub devices: &'a Devices,
    pub network: &'a Network,
    pub clock: &'a SimClock,
    pub trace: &'a Arc<Trace>,
    pub bug: Option<Bug>,
    /// The number of this start; the format is number 0.
    pub start: u64,
}

/// A cluster that runs.
pub struct Running {
    pub osds: Mutex<Vec<Osd>>,
    /// How others reach each OSD; lost ones stand in their places.
    pub services: Arc<Mutex<Vec<Arc<dyn ShardService>>>>,
    watched: Arc<Mutex<Vec<Arc<Watched>>>>,
    /// When OSDs that were made in this life came into service, as repair counts.
    pub came: Mutex<BTreeMap<OsdId, Begun>>,
    /// One change of the OSDs at a time.
    pub changing: tokio::sync::Mutex<()>,
    pub cluster: Arc<Cluster>,
    pub objects: Arc<dyn Objects>,
    pub repair: Arc<Repair>,
    pub reconciler: Arc<Reconciler>,
    pub service: Arc<Service>,
    pub clock: SimClock,
    pub budget: Budget,
    /// What it counts.
    pub meters: Arc<Meters>,
    pub plan: Plan,
    pub devices: Devices,
    pub disk: Arc<dyn Disk>,
    pub trace: Arc<Trace>,
    network: Network,
    bug: Option<Bug>,
    start: u64,
    made: AtomicU64,
}

pub fn osd_folder(device: usize) -> PathBuf {
    folder(device).join("osd")
}

fn meta_folder() -> PathBuf {
    folder(META_DEVICE).join("meta")
}

/// Says that a device is this cluster's: nothing is written to one without it.
fn mark(device: usize) -> PathBuf {
    folder(device).join("cluster")
}

fn is_present(devices: &Devices, device: usize) -> bool {
    matches!(devices.read_small(&mark(device)), Ok(Some(_)))
}

/// Devices that are there and this cluster's.
pub fn present(devices: &Devices) -> impl Iterator<Item = usize> {
    (0..devices.count()).filter(|d| is_present(devices, *d))
}

/// `start`: the number of this start; what is made in it has identities of its own.
fn log_config(plan: &Plan, devices: &Devices, start: u64) -> raft::Config {
    let create = start == 0;
    let mut c = raft::Config::new(u128::from(plan.seed) << 64 | u128::from(start) << 32 | 1, create);
    let there: Vec<mirror::Place> = present(devices).map(|d| d as mirror::Place).collect();
    c.mirrors = mirror::Config {
        dirs: (0..devices.count()).map(|d| folder(d).join("meta").join("wal")).collect(),
        copies: plan.log_copies(),
        devices: Some(there.clone()),
        present: Some(there),
        ..mirror::Config::default()
    };
    c.log.segment_bytes = 128 << 10;
    c.log.blocking = Blocking::Here;
    c.checkpoint_bytes = plan.checkpoint_bytes;
    c.wal_bytes_max = 1 << 20;
    c.log.segments_max = 64;
    c
}

/// Makes every OSD and the metadata.
pub async fn format(plan: &Plan, devices: &Devices, clock: &SimClock) -> Result<(), String> {
    for device in 0..plan.osds() {
        put_mark(devices, device)?;
        let log_id = u128::from(plan.seed) << 64 | device as u128;
        form(plan, devices, device, log_id, clock.wall_ns())?;
        places::change(devices, |places| places.insert(device as u16, Place { log_id, ..Place::default() }))?;
    }
    let disk: Arc<dyn Disk> = Arc::new(devices.clone());
    let cluster = CLUSTER.to_be_bytes();
    holdfast_meta_server::format(disk, &meta_folder(), cluster, Arc::new(clock.clone()), log_config(plan, devices, 0))
        .await
        .map_err(|e| e.to_string())?;
    Ok(())
}

/// Opens the OSD of a device. An error says why it is lost; one that went back in time was not touched.
pub async fn open_osd(disk: &Arc<dyn Disk>, plan: &Plan, device: usize, known: Option<&Place>) -> Result<Osd, String> {
    let path = osd_folder(device);
    let config = OsdConfig {
        capacity_bytes: Some(plan.capacity_bytes),
        checkpoint_bytes: 4 * plan.segment_bytes,
        cache_bytes: 64 << 10,
        blocking: Blocking::Here,
        ..OsdConfig::default()
    };
    match inspect(&**disk, &path).map_err(|e| e.to_string())? {
        Inspect::Osd(s) => known.map_or(Ok(()), |known| places::went_back(&**disk, &path.join(LOG_DIR), s.log_id, known))?,
        other => return Err(format!("it is {other:?}")),
    }
    let (osd, start) = Osd::open(disk.clone(), &path, config).await.map_err(|e| e.to_string())?;
    let stable = known.map_or(0, |k| k.stable);
    // Where places are not readable, records are gone for another reason.
    if start.recovery.faults.is_empty() && start.recovery.last_seq < stable {
        return Err(format!("stale: its newest record is number {}, and {stable} was stable", start.recovery.last_seq));
    }
    Ok(osd)
}

/// Makes an empty OSD on a device, in place of what an OSD left there; one that is made already stays.
pub fn form(plan: &Plan, devices: &Devices, device: usize, log_id: u128, created_ns: u64) -> Result<(), String> {
    let path = osd_folder(device);
    match inspect(devices, &path).map_err(|e| e.to_string())? {
        Inspect::Osd(s) if s.log_id == log_id => return Ok(()),
        Inspect::Empty => {}
        _ => {
            // The superblock first: what is left behind a crash says that it is no whole OSD.
            devices.remove_all(&path.join(SUPERBLOCK)).map_err(|e| e.to_string())?;
            devices.remove_all(&path.join(LOG_DIR)).map_err(|e| e.to_string())?;
        }
    }
    let options =
        FormatOptions { segment_bytes: plan.segment_bytes, ..FormatOptions::new(CLUSTER, OsdId(device as u16), log_id, created_ns) };
    Osd::format(devices, &path, options).map_err(|e| e.to_string())
}

/// The way to an OSD, watched where there are others.
fn reach(osd: &Osd, network: &Network, bug: Option<Bug>, watched: &Mutex<Vec<Arc<Watched>>>) -> Arc<dyn ShardService> {
    let service = Watched::new(network.link(planted::shards(Arc::new(osd.clone()), bug)), PATIENCE);
    watched.lock().push(service.clone());
    service
}

/// Marks a device as this cluster's.
pub fn put_mark(devices: &Devices, device: usize) -> Result<(), String> {
    devices.create_dir_all(&folder(device)).map_err(|e| e.to_string())?;
    devices.write_small(&mark(device), &CLUSTER.to_be_bytes(), 0o644).map_err(|e| e.to_string())
}

/// What is about to be deleted, for writes that find the devices full.
struct Retired(Weak<Service>);

impl Returning for Retired {
    fn pending(&self) -> u64 {
        self.0.upgrade().map_or(0, |s| s.returning())
    }
    fn worn(&self) -> u64 {
        self.0.upgrade().map_or(0, |s| s.worn_bytes())
    }
    fn rewritten(&self) -> u64 {
        self.0.upgrade().map_or(0, |s| s.rewritten_bytes())
    }
    fn hurry(&self) {
        if let Some(s) = self.0.upgrade() {
            s.hurry_returning();
        }
    }
}

struct Reaper(Arc<dyn Objects>);

impl StripeReaper for Reaper {
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.0.delete(stripes).await.map_err(|e| e.to_string()) })
    }
}

/// The packer's way to the object cluster.
struct Packs(Arc<dyn Objects>);

impl PackStore for Packs {
    fn write(&self, w: PackWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>, String>> {
        Box::pin(async move {
            let PackWrite { id, code, data, session, epoch, .. } = w;
            let code = code.ok_or("the bucket is gone, though nothing here deletes it")?;
            let write = StripeWrite { id, code, data, session, epoch, hint: Default::default(), background: true };
            let stripe = self.0.write(write).await.map_err(|e| e.to_string())?;
            let mut stable = self.0.flush(vec![stripe]).await.map_err(|e| e.to_string())?;
            stable.pop().ok_or_else(|| "a flush answered no stripe".to_string())
        })
    }

    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>, String>> {
        Box::pin(async move { self.0.read(stripe, range).await.map_err(|e| e.to_string()) })
    }

    fn room(&self) -> Room {
        let space = self.0.space(Code::new(1, 0));
        Room { total: space.total, free: space.free, own: space.free_own }
    }
}

impl Running {
    /// Starts everything that is there; an OSD that cannot be opened stands in its place as lost.
    pub async fn open(site: Site<'_>) -> Result<Running, String> {
        let Site { plan, devices, network, clock, bug, start, .. } = site;
        let disk: Arc<dyn Disk> = planted::disk(Arc::new(devices.clone()), bug);
        let (mut osds, mut services, watched) = (Vec::new(), Vec::<Arc<dyn ShardService>>::new(), Arc::<Mutex<Vec<_>>>::default());
        let (places, mut stale) = (places::load(devices), 0);
        for (device, place) in places.iter().map(|(id, place)| (*id as usize, place)) {
            let id = OsdId(device as u16);
            if place.standing == Standing::Forming {
                // Ends what was begun; one that cannot be made is lost.
                let _ = form(plan, devices, device, place.log_id, clock.now_ns());
            }
            match open_osd(&disk, plan, device, Some(place)).await {
                Ok(osd) => {
                    services.push(reach(&osd, network, bug, &watched));
                    osds.push(osd);
                }
                Err(why) => {
                    stale += why.starts_with("stale") as u64;
                    services.push(Arc::new(DownOsd { osd: id, why }));
                }
            }
        }
        places::remember(devices, osds.iter())?;
        let reached = Arc::new(Mutex::new(services.clone()));
        let budget = Budget::new(plan.budget_bytes);
        let config =
            ObjectsConfig { cache_bytes: plan.budget_bytes / 2, hedge_min: ObjectsConfig::default().hedge_max, ..ObjectsConfig::default() };
        let reports = Arc::new(Reports::default());
        let cluster = Cluster::with_repair(services.clone(), budget.clone(), config, reports.clone());
        for (id, _) in places.iter().filter(|p| p.1.standing == Standing::Draining) {
            cluster.set_leaving(OsdId(*id), true);
        }
        let objects: Arc<dyn Objects> = cluster.clone();
        let state = StateConfig {
            overlay_bytes: 256 << 10,
            overlay_bytes_max: 4 << 20,
            cache_bytes: 256 << 10,
            staged_bytes_max: 64 << 10,
            held_bytes_max: 1 << 20,
        };
        let log = log_config(plan, devices, start);
        let meters = Meters::new(osds.iter().map(|o| o.metrics().clone()).collect(), cluster.clone(), log.metrics.clone());
        let deps = Deps {
            disk: disk.clone(),
            dir: meta_folder(),
            cluster: Some(CLUSTER.to_be_bytes()),
            clock: Arc::new(clock.clone()),
            config: MetaConfig {
                state,
                pack_idle: Duration::from_millis(20),
                pack_delay: Duration::from_millis(200),
                pack_cold: Duration::from_millis(300),
                ..MetaConfig::default()
            },
            log,
        };
        let service = Service::open(deps).await.map_err(|e| format!("the metadata cannot be recovered: {e}"))?;
        service.reap_stripes(Arc::new(Reaper(objects.clone())));
        service.pack_stripes(Arc::new(Packs(objects.clone())));
        cluster.set_returning(Arc::new(Retired(Arc::downgrade(&service))));
        let ranges = Arc::new(ServiceRanges(service.clone()));
        for osd in services.iter().filter(|o| o.failure().is_none()) {
            // One that cannot is out of service by now.
            let _ = reconcile::fence(&**osd, &*ranges).await;
        }
        let reconciler = Reconciler::new(ranges);
        let repair = upkeep::start(&cluster, &service, &reports, clock, watched.clone());
        let services = reached.clone();
        tokio::spawn(reconciler.clone().run(move || reached.lock().clone()));
        let meters = Arc::new(meters.serving(&service, &repair, &reconciler, stale));
        let this = Running {
            osds: Mutex::new(osds),
            services,
            watched,
            came: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            cluster,
            objects,
            repair,
            reconciler,
            service,
            clock: clock.clone(),
            budget,
            meters,
            plan: plan.clone(),
            devices: devices.clone(),
            disk,
            trace: site.trace.clone(),
            network: network.clone(),
            bug,
            start,
            made: AtomicU64::default(),
        };
        this.ensure_home(plan).await.map_err(|e| format!("the bucket cannot be made: {e}"))?;
        Ok(this)
    }

    async fn ensure_home(&self, plan: &Plan) -> Result<(), holdfast_meta_client::MetaError> {
        let meta = self.connect("start", false).await?;
        let name = Bytes::from_static(HOME);
        if !meta.buckets().await?.iter().any(|b| b.name == name) {
            let owner = Owner { uid: 0, gid: 0 };
            meta.submit(Command::CreateBucket { name, shape: Shape::Tree, code: plan.code, owner, mode: 0o755 }).await?;
        }
        meta.close_session().await;
        Ok(())
    }

    pub async fn connect(&self, client: &str, caching: bool) -> Result<Arc<dyn Meta>, holdfast_meta_client::MetaError> {
        self.service.connect(client, caching, Arc::new(NoEvents)).await
    }

    /// A mount of the bucket.
    pub async fn mount(&self) -> Result<Arc<Vfs>, String> {
        self.mount_over(self.objects.clone()).await
    }

    /// A mount that reaches the object cluster its own way.
    pub async fn mount_over(&self, objects: Arc<dyn Objects>) -> Result<Arc<Vfs>, String> {
        let config = holdfast_fs_vfs::Config { inode_dirty_bytes_max: 256 << 10, pending_extents_max: 64, ..Default::default() };
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let service: Arc<dyn MetaService> = self.service.clone();
        Vfs::connect(service, objects, Bytes::from_static(HOME), Arc::new(NoKernel), self.budget.clone(), clock, config)
            .await
            .map_err(|e| format!("the bucket cannot be mounted: {e}"))
    }

    /// Stops in order; mounts were shut down before.
    pub async fn close(&self) -> Result<(), String> {
        self.repair.stop().await;
        self.service.shutdown().await.map_err(|e| format!("closing the metadata: {e}"))?;
        let osds = self.osds.lock().clone();
        for osd in &osds {
            // One that left service cannot be closed in order.
            let _ = osd.close().await;
        }
        places::remember(&self.devices, osds.iter().filter(|o| o.failure().is_none()))
    }

    /// How others reach an OSD that was made.
    pub fn reach(&self, osd: &Osd) -> Arc<dyn ShardService> {
        reach(osd, &self.network, self.bug, &self.watched)
    }

    /// The identity of a log that is to be made now.
    pub fn new_log_id(&self, device: usize) -> u128 {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        u128::from(self.plan.seed) << 64 | u128::from(self.start) << 40 | u128::from(made) << 16 | device as u128
    }
}
