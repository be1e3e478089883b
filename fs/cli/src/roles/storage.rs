//! OSDs and metadata: looked at before a start, formatted on the first, opened on every.
//!
//! What always holds: an OSD that is missing, empty, unreadable or another's is never formatted by a start; it is lost, or the
//! start is refused.

use super::data::Shares;
use crate::layout::Layout;
use anyhow::{Context, bail, ensure};
use holdfast_meta_log::raft;
use holdfast_meta_server::superblock::{self, Found};
use holdfast_meta_server::{Deps, Service};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::{self, RealClock, RealDisk};
use holdfast_objstore_base::units::{MIB, block_up};
use holdfast_objstore_client::DownOsd;
use holdfast_objstore_osd::{Config, FormatOptions, Inspect, Osd, inspect};
use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::{OsdSpace, ShardService};
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Segments are small on small devices, so that a few dead ones soon come back, and hold several of the largest shards.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = (16 * MIB)..=(64 * MIB);
/// A device is cut into about this many segments.
const SEGMENTS_PER_DEVICE: u64 = 64;
/// Of a filesystem's free bytes, the share that is left to others and to the filesystem itself: one part in this many.
const RESERVE_PARTS: u64 = 20;

/// One OSD of the cluster, in service or not.
pub struct OsdState {
    pub id: OsdId,
    pub path: PathBuf,
    service: Arc<dyn ShardService>,
    open: bool,
    /// Faults this start found in its log: shards that are gone.
    faults: usize,
}

impl OsdState {
    /// Why it is out of service, if it is.
    pub fn failure(&self) -> Option<String> {
        self.service.failure()
    }
    pub fn space(&self) -> OsdSpace {
        if self.open { self.service.space() } else { OsdSpace::default() }
    }
    /// What this start found broken in it, if it serves all the same.
    pub fn damage(&self) -> Option<String> {
        (self.faults > 0).then(|| {
            format!("{} places of its log were not readable at the start: shards are gone, and are read from the other OSDs", self.faults)
        })
    }
    /// Whether this start could open it.
    pub fn was_open(&self) -> bool {
        self.open
    }
    /// OSDs with one number share a device: one failure domain.
    pub fn domain(&self) -> Option<u64> {
        self.open.then(|| self.service.domain())
    }
}

/// Refuses folders that must not be touched. Changes nothing.
pub fn refuse(layout: &Layout, disk: &dyn Disk) -> anyhow::Result<()> {
    if layout.fresh {
        return Ok(());
    }
    let meta = layout.meta_dir();
    match superblock::inspect(disk, &meta)? {
        Found::Ready(cluster) if cluster == layout.cluster.to_be_bytes() => {}
        Found::Ready(_) => bail!("{} belongs to another cluster; nothing was changed", meta.display()),
        Found::Nothing => bail!(
            "{} is missing or empty: it keeps the cluster's metadata; bring it back and start again, nothing was changed",
            meta.display()
        ),
        Found::HalfFormatted(_) => bail!("{} was left half formatted; nothing was changed", meta.display()),
        Found::Newer { version } => {
            bail!("{} was written by a newer Holdfast (format {version}); upgrade, nothing was changed", meta.display())
        }
        Found::Foreign(name) => bail!("{} holds files that are not Holdfast's metadata ({name}); nothing was changed", meta.display()),
        Found::Damaged(why) => bail!("{} is damaged ({why}); restore it, nothing was changed", meta.display()),
    }
    for (id, path) in &layout.osds {
        // A device that cannot be read is a lost OSD, which the start itself finds.
        let Ok(found) = inspect(disk, path) else { continue };
        match found {
            Inspect::Osd(s) => {
                ensure!(s.cluster == layout.cluster, "{} belongs to another cluster; nothing was changed", path.display());
                ensure!(s.osd == *id, "{} is {} and stands in the place of {id}; put it back, nothing was changed", path.display(), s.osd);
            }
            Inspect::Foreign(name) => bail!("{} holds files that are not Holdfast's ({name}); nothing was changed", path.display()),
            Inspect::NewerFormat(v) => {
                bail!("{} was written by a newer Holdfast (format {v}); upgrade, nothing was changed", path.display())
            }
            Inspect::HalfFormatted => bail!("{} was left half formatted; nothing was changed", path.display()),
            Inspect::Empty | Inspect::Damaged(_) => {}
        }
    }
    Ok(())
}

fn random_u128() -> u128 {
    let mut b = [0; 16];
    real::random_bytes(&mut b);
    u128::from_le_bytes(b)
}

/// Bytes each OSD may use: its part of what its filesystem has, for several may share one.
fn parts(layout: &Layout, disk: &RealDisk) -> anyhow::Result<HashMap<OsdId, u64>> {
    // The folder itself may be missing: its nearest ancestor is on the same filesystem.
    let device = |p: &Path| p.ancestors().find_map(|a| std::fs::metadata(a).ok().map(|m| (m.dev(), a.to_path_buf())));
    let mut by_device: HashMap<u64, (PathBuf, Vec<(OsdId, u64)>)> = HashMap::new();
    let mut parts = HashMap::new();
    for (id, path) in &layout.osds {
        if disk.is_device(path) {
            // All of it is this OSD's, but for what its checkpoints take.
            let total = disk.space(path).map_or(0, |s| s.total);
            parts.insert(*id, total - total / RESERVE_PARTS);
            continue;
        }
        let (dev, at) = device(path).with_context(|| format!("{} lies nowhere", path.display()))?;
        by_device.entry(dev).or_insert_with(|| (at, Vec::new())).1.push((*id, used(path)));
    }
    for (at, osds) in by_device.into_values() {
        let space = disk.space(&at)?;
        let reserve = (space.total / RESERVE_PARTS).min(space.free / 4);
        let each = (space.free - reserve + osds.iter().map(|o| o.1).sum::<u64>()) / osds.len() as u64;
        parts.extend(osds.iter().map(|o| (o.0, each.max(o.1))));
    }
    Ok(parts)
}

/// Bytes an OSD's files take now.
fn used(path: &Path) -> u64 {
    let files = std::fs::read_dir(path.join("log")).into_iter().flatten().flatten();
    files.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

/// Formats every OSD and the metadata of a new cluster.
pub fn format(layout: &Layout, disk: &RealDisk) -> anyhow::Result<()> {
    let parts = parts(layout, disk)?;
    let now = RealClock.wall_ns();
    for (id, path) in &layout.osds {
        let mut options = FormatOptions::new(layout.cluster, *id, random_u128(), now);
        let part = parts.get(id).copied().unwrap_or(0);
        options.segment_bytes =
            block_up((part / SEGMENTS_PER_DEVICE).next_power_of_two().clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end()));
        Osd::format(disk, path, options)?;
    }
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let cluster = layout.cluster.to_be_bytes();
    real::runtime::block_on(holdfast_meta_server::format(
        disk,
        &layout.meta_dir(),
        cluster,
        Arc::new(RealClock),
        raft::Config::new(random_u128(), true),
    ))??;
    Ok(())
}

type OpenOsds = (Vec<OsdState>, Vec<Osd>, Vec<Arc<dyn ShardService>>);

/// Opens every OSD that is there; a lost one stands in its place with the reason.
pub async fn open(layout: &Layout, disk: Arc<RealDisk>, shares: Shares, registry: &mut Registry) -> anyhow::Result<OpenOsds> {
    let parts = parts(layout, &disk)?;
    let (mut states, mut osds, mut services) = (Vec::new(), Vec::new(), Vec::<Arc<dyn ShardService>>::new());
    for (id, path) in &layout.osds {
        let config = Config {
            capacity_bytes: parts.get(id).copied(),
            cache_bytes: shares.memory / 16 / layout.osds.len() as u64,
            ..Config::default()
        };
        let found = inspect(&*disk, path);
        let lost = match found {
            Ok(Inspect::Osd(_)) => match Osd::open(disk.clone(), path, config).await {
                Ok((osd, start)) => {
                    tracing::debug!("{id}: {} shards, {} records replayed", start.shards, start.recovery.records);
                    if let Some(torn) = &start.recovery.torn {
                        tracing::info!("{id}: the log's tail was torn and is cut off: {torn:?}");
                    }
                    for fault in &start.recovery.faults {
                        tracing::debug!("{id}: {fault:?}");
                    }
                    let faults = start.recovery.faults.len();
                    if faults > 0 {
                        tracing::error!(
                            "{id}: {faults} places of its log in {} are not readable; their shards are read from the other OSDs",
                            path.display()
                        );
                    }
                    osd.metrics().register(
                        registry.sub_registry_with_prefix("holdfast").sub_registry_with_label(("osd".into(), id.0.to_string().into())),
                    );
                    let service: Arc<dyn ShardService> = Arc::new(osd.clone());
                    states.push(OsdState { id: *id, path: path.clone(), service: service.clone(), open: true, faults });
                    services.push(service);
                    osds.push(osd);
                    continue;
                }
                Err(e) => e.to_string(),
            },
            Ok(Inspect::Empty) => format!("{} is missing or empty", path.display()),
            Ok(Inspect::Damaged(why)) => format!("{} is damaged: {why}", path.display()),
            Ok(_) => format!("{} is not this OSD", path.display()),
            Err(e) => e.to_string(),
        };
        let service: Arc<dyn ShardService> = Arc::new(DownOsd { osd: *id, why: lost });
        states.push(OsdState { id: *id, path: path.clone(), service: service.clone(), open: false, faults: 0 });
        services.push(service);
    }
    Ok((states, osds, services))
}

/// Recovers the metadata service in the first data folder.
pub async fn open_metadata(
    layout: &Layout,
    disk: Arc<RealDisk>,
    clock: Arc<dyn Clock>,
    shares: Shares,
    registry: &mut Registry,
) -> anyhow::Result<Arc<Service>> {
    let dir = layout.meta_dir();
    let log = raft::Config::new(random_u128(), false);
    log.metrics.register(registry.sub_registry_with_prefix("holdfast"));
    let deps = Deps {
        disk,
        dir: dir.clone(),
        cluster: Some(layout.cluster.to_be_bytes()),
        clock,
        config: holdfast_meta_server::Config::within(shares.metadata),
        log,
    };
    let service = Service::open(deps).await.with_context(|| format!("cannot recover the metadata in {}", dir.display()))?;
    service.metrics().register(registry.sub_registry_with_prefix("holdfast_meta"));
    Ok(service)
}
