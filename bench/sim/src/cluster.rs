//! Wires the cluster of a run as `holdfast up` does: OSDs, object cluster, metadata, mounts.
//!
//! What it leaves out: the kernel, HTTP and the admin channel.

use crate::clock::SimClock;
use crate::coverage::Meters;
use crate::devices::{Devices, folder};
use crate::plan::{META_DEVICE, Plan};
use crate::planted::{self, Bug};
use crate::upkeep::{self, Reports};
use bytes::Bytes;
use holdfast_fs_vfs::{NoKernel, Vfs};
use holdfast_meta_client::{Meta, MetaService, NoEvents};
use holdfast_meta_log::Blocking;
use holdfast_meta_log::raft::{self, mirror};
use holdfast_meta_server::{Config as MetaConfig, Deps, PackStore, PackWrite, Service, StateConfig, StripeReaper};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_client::{Cluster, Config as ObjectsConfig, DownOsd, Objects, StripeWrite};
use holdfast_objstore_osd::{Config as OsdConfig, FormatOptions, Inspect, Osd, inspect};
use holdfast_objstore_proto::meta::{Command, Owner, Shape};
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_proto::{OsdId, StripeMeta};
use holdfast_objstore_repair::Repair;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The bucket all clients use.
pub const HOME: &[u8] = b"home";

const CLUSTER: u128 = 0x51;

pub fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A cluster that runs.
pub struct Running {
    pub osds: Vec<Osd>,
    pub objects: Arc<dyn Objects>,
    pub repair: Arc<Repair>,
    pub service: Arc<Service>,
    pub clock: SimClock,
    pub budget: Budget,
    /// What it counts.
    pub meters: Meters,
}

fn osd_folder(device: usize) -> PathBuf {
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
    c.mirrors = mirror::Config {
        dirs: (0..devices.count()).map(|d| folder(d).join("meta").join("wal")).collect(),
        copies: plan.log_copies(),
        present: Some((0..devices.count()).filter(|d| create || is_present(devices, *d)).map(|d| d as mirror::Place).collect()),
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
    for device in 0..devices.count() {
        let log_id = u128::from(plan.seed) << 32 | device as u128 + 1;
        let options = FormatOptions {
            segment_bytes: plan.segment_bytes,
            ..FormatOptions::new(CLUSTER, OsdId(device as u16), log_id, clock.wall_ns())
        };
        Osd::format(devices, &osd_folder(device), options).map_err(|e| e.to_string())?;
    }
    let disk: Arc<dyn Disk> = Arc::new(devices.clone());
    let cluster = CLUSTER.to_be_bytes();
    holdfast_meta_server::format(disk, &meta_folder(), cluster, Arc::new(clock.clone()), log_config(plan, devices, 0))
        .await
        .map_err(|e| e.to_string())?;
    for device in 0..devices.count() {
        devices.write_small(&mark(device), &cluster, 0o644).map_err(|e| e.to_string())?;
    }
    Ok(())
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
            let write = StripeWrite { id, code, data, session, epoch, hint: Default::default() };
            let stripe = self.0.write(write).await.map_err(|e| e.to_string())?;
            let mut stable = self.0.flush(vec![stripe]).await.map_err(|e| e.to_string())?;
            stable.pop().ok_or_else(|| "a flush answered no stripe".to_string())
        })
    }

    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>, String>> {
        Box::pin(async move { self.0.read(stripe, range).await.map_err(|e| e.to_string()) })
    }
}

impl Running {
    /// Starts everything that is there; an OSD that cannot be opened stands in its place as lost.
    pub async fn open(plan: &Plan, devices: &Devices, clock: &SimClock, bug: Option<Bug>, start: u64) -> Result<Running, String> {
        let disk: Arc<dyn Disk> = planted::disk(Arc::new(devices.clone()), bug);
        let (mut osds, mut services) = (Vec::new(), Vec::<Arc<dyn ShardService>>::new());
        for device in 0..devices.count() {
            let id = OsdId(device as u16);
            let path = osd_folder(device);
            let config = OsdConfig {
                capacity_bytes: Some(plan.capacity_bytes),
                checkpoint_bytes: 4 * plan.segment_bytes,
                cache_bytes: 64 << 10,
                blocking: Blocking::Here,
                ..OsdConfig::default()
            };
            let opened = match inspect(&*disk, &path) {
                Ok(Inspect::Osd(_)) => Osd::open(disk.clone(), &path, config).await.map_err(|e| e.to_string()),
                Ok(other) => Err(format!("it is {other:?}")),
                Err(e) => Err(e.to_string()),
            };
            match opened {
                Ok((osd, _)) => {
                    services.push(planted::shards(Arc::new(osd.clone()), bug));
                    osds.push(osd);
                }
                Err(why) => services.push(Arc::new(DownOsd { osd: id, why })),
            }
        }
        let budget = Budget::new(plan.budget_bytes);
        let config =
            ObjectsConfig { cache_bytes: plan.budget_bytes / 2, hedge_min: ObjectsConfig::default().hedge_max, ..ObjectsConfig::default() };
        let reports = Arc::new(Reports::default());
        let cluster = Cluster::with_repair(services, budget.clone(), config, reports.clone());
        let objects: Arc<dyn Objects> = cluster.clone();
        let state = StateConfig {
            overlay_bytes: 256 << 10,
            overlay_bytes_max: 4 << 20,
            cache_bytes: 256 << 10,
            staged_bytes_max: 64 << 10,
            held_bytes_max: 1 << 20,
        };
        let log = log_config(plan, devices, start);
        let mut meters = Meters::new(osds.iter().map(|o| o.metrics().clone()).collect(), cluster.clone(), log.metrics.clone());
        let deps = Deps {
            disk,
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
        let repair = upkeep::start(&cluster, &service, &reports, clock);
        meters.serves(&service, &repair);
        let this = Running { osds, objects, repair, service, clock: clock.clone(), budget, meters };
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
        let config = holdfast_fs_vfs::Config { inode_dirty_bytes_max: 256 << 10, pending_extents_max: 64, ..Default::default() };
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let service: Arc<dyn MetaService> = self.service.clone();
        Vfs::connect(service, self.objects.clone(), Bytes::from_static(HOME), Arc::new(NoKernel), self.budget.clone(), clock, config)
            .await
            .map_err(|e| format!("the bucket cannot be mounted: {e}"))
    }

    /// Stops in order; mounts were shut down before.
    pub async fn close(self) -> Result<(), String> {
        self.repair.stop().await;
        self.service.shutdown().await.map_err(|e| format!("closing the metadata: {e}"))?;
        for osd in self.osds {
            // One that left service cannot be closed in order.
            let _ = osd.close().await;
        }
        Ok(())
    }
}
