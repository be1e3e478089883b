//! OSDs and metadata: looked at before a start, formatted on the first, opened on every.
//!
//! What always holds: an OSD that is missing, empty, unreadable or another's is never formatted by a start; it is lost, or the
//! start is refused.

use super::data::Shares;
use super::mirrors;
use super::osds::OsdState;
use super::room;
use super::snapshots;
use crate::layout::{Layout, Life, Standing};
use anyhow::{Context, bail, ensure};
use holdfast_meta_log::raft;
use holdfast_meta_server::image::Root;
use holdfast_meta_server::superblock::{self, Found};
use holdfast_meta_server::{Deps, Service, Snapshots};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::{self, RealClock, RealDisk};
use holdfast_objstore_osd::log;
use holdfast_objstore_osd::service::superblock::{LOG_DIR, Superblock};
use holdfast_objstore_osd::{Config, FormatOptions, Inspect, Osd, inspect};
use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::ShardService;
use prometheus_client::registry::Registry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Refuses folders that must not be touched; notes when the metadata's state is gone, so that it is rebuilt. Changes nothing.
pub fn refuse(layout: &mut Layout, disk: &dyn Disk) -> anyhow::Result<()> {
    if layout.fresh {
        return Ok(());
    }
    if let Some(lost) = layout.lost_home.filter(|_| !mirrors::several(layout, disk)) {
        bail!(
            "{} is missing or empty: it keeps the cluster's metadata; bring it back and start again, nothing was changed",
            layout.dirs[lost].display()
        );
    }
    if layout.lost_home.is_none() && mirrors::several(layout, disk) && superblock::is_lost(disk, &layout.meta_dir())? {
        layout.lose_home(disk)?;
    }
    let meta = layout.meta_dir();
    match superblock::inspect(disk, &meta)? {
        // What lies there of the metadata is of a former time, or a copy of the log.
        _ if layout.lost_home.is_some() => {}
        Found::Ready(cluster) if cluster == layout.cluster.to_be_bytes() => {}
        Found::Ready(_) => bail!("{} belongs to another cluster; nothing was changed", meta.display()),
        Found::Nothing => bail!(
            "{} is missing or empty: it keeps the cluster's metadata; bring it back and start again, nothing was changed",
            meta.display()
        ),
        Found::HalfFormatted(_) => bail!("{} was left half formatted; nothing was changed", meta.display()),
        Found::HalfRebuilt(_) => bail!("{} was left half rebuilt; nothing was changed", meta.display()),
        Found::Newer { version } => {
            bail!("{} was written by a newer Holdfast (format {version}); upgrade, nothing was changed", meta.display())
        }
        Found::Foreign(name) => bail!("{} holds files that are not Holdfast's metadata ({name}); nothing was changed", meta.display()),
        Found::Damaged(why) => bail!("{} is damaged ({why}); restore it, nothing was changed", meta.display()),
    }
    for (id, path) in &layout.osds {
        // What is being made there is made again.
        if layout.place(*id).is_some_and(|p| p.life.state == Standing::Forming) {
            continue;
        }
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

pub fn random_u128() -> u128 {
    let mut b = [0; 16];
    real::random_bytes(&mut b);
    u128::from_le_bytes(b)
}

/// Formats every OSD and the metadata of a new cluster.
pub fn format(layout: &Layout, disk: &RealDisk) -> anyhow::Result<()> {
    let parts = room::parts(layout, disk)?;
    let now = RealClock.wall_ns();
    for (id, path) in &layout.osds {
        let mut options = FormatOptions::new(layout.cluster, *id, random_u128(), now);
        options.segment_bytes = room::segment_bytes(parts.get(id).copied().unwrap_or(0));
        Osd::format(disk, path, options)?;
    }
    let log = raft::Config { mirrors: mirrors::config(layout, disk, false), ..room::log(layout, disk, random_u128(), true)? };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let cluster = layout.cluster.to_be_bytes();
    real::runtime::block_on(holdfast_meta_server::format(disk, &layout.meta_dir(), cluster, Arc::new(RealClock), log))??;
    Ok(())
}

/// An OSD in service, with the faults that its start found.
pub struct Opened {
    pub osd: Osd,
    pub faults: usize,
}

/// What an OSD is opened with.
pub struct Opening {
    pub disk: Arc<RealDisk>,
    /// Bytes it may use.
    pub part: Option<u64>,
    pub cache_bytes: u64,
}

/// Opens one OSD. An error is the sentence that says why it is lost; nothing was changed then.
pub async fn open_one(id: OsdId, path: &Path, life: &Life, with: Opening) -> Result<Opened, String> {
    let disk = &with.disk;
    match inspect(&**disk, path).map_err(|e| e.to_string())? {
        Inspect::Osd(s) => went_back(&**disk, path, &s, life)?,
        Inspect::Empty => return Err(format!("{} is missing or empty", path.display())),
        Inspect::Damaged(why) => return Err(format!("{} is damaged: {why}", path.display())),
        _ => return Err(format!("{} is not this OSD", path.display())),
    }
    let config = Config { capacity_bytes: with.part, cache_bytes: with.cache_bytes, ..Config::default() };
    let (osd, start) = Osd::open(disk.clone(), path, config).await.map_err(|e| e.to_string())?;
    tracing::debug!("{id}: {} shards, {} records replayed", start.shards, start.recovery.records);
    // Where places are not readable, records are gone for another reason.
    if start.recovery.faults.is_empty() && start.recovery.last_seq < life.stable {
        return Err(stale(path, &format!("its newest record is number {}, and {} was stable", start.recovery.last_seq, life.stable)));
    }
    if let Some(torn) = &start.recovery.torn {
        tracing::info!("{id}: the log's tail was torn and is cut off: {torn:?}");
    }
    for fault in &start.recovery.faults {
        tracing::debug!("{id}: {fault:?}");
    }
    let faults = start.recovery.faults.len();
    if faults > 0 {
        tracing::error!(
            "{id}: {faults} places of its log in {} are not readable; their shards are made anew from the other OSDs",
            path.display()
        );
    }
    Ok(Opened { osd, faults })
}

/// Refuses a folder that shows less than is known of it: a copy of a former time, put back. It must not be opened: that would make it
/// look newer than it is.
fn went_back(disk: &dyn Disk, path: &Path, superblock: &Superblock, life: &Life) -> Result<(), String> {
    if life.log.is_empty() {
        return Ok(());
    }
    if format!("{:032x}", superblock.log_id) != life.log {
        return Err(stale(path, "it was replaced by another since"));
    }
    match log::identity(disk, &path.join(LOG_DIR)) {
        Ok(root) if root.epoch < life.opened => {
            Err(stale(path, &format!("it was opened {} times, and this cluster opened it {} times", root.epoch, life.opened)))
        }
        // What is wrong with it otherwise, its opening says.
        _ => Ok(()),
    }
}

fn stale(path: &Path, why: &str) -> String {
    format!(
        "stale: {} went back in time ({why}): a copy of a former time was put there; bring back the newest, or replace this OSD",
        path.display()
    )
}

/// Ends what a replacement or an addition began before a crash: formats the OSDs whose place the cluster file calls forming.
pub fn finish_forming(layout: &Layout, disk: &RealDisk) -> anyhow::Result<()> {
    for place in layout.places.iter().filter(|p| p.life.state == Standing::Forming) {
        let path = layout.dirs[place.dir].join(&place.path);
        let log_id = u128::from_str_radix(&place.life.log, 16).context("the id of a log in holdfast.json is damaged")?;
        match inspect(disk, &path) {
            Ok(Inspect::Osd(s)) if s.log_id == log_id => {}
            Ok(Inspect::Foreign(name)) => {
                tracing::error!("osd.{}: {} holds files that are not Holdfast's ({name})", place.id, path.display())
            }
            _ => {
                tracing::info!("osd.{}: ending what was begun in {}", place.id, path.display());
                let part = room::parts(layout, disk)?.get(&OsdId(place.id)).copied().unwrap_or(0);
                if let Err(e) = form(layout.cluster, OsdId(place.id), &path, log_id, part, disk) {
                    tracing::error!("osd.{}: {e:#}", place.id);
                }
            }
        }
    }
    Ok(())
}

/// Makes an empty OSD in `path`, in place of what an OSD of this cluster left there.
pub fn form(cluster: u128, id: OsdId, path: &Path, log_id: u128, part: u64, disk: &RealDisk) -> anyhow::Result<()> {
    match inspect(disk, path)? {
        Inspect::Empty => {}
        Inspect::Foreign(name) => bail!("{} holds files that are not Holdfast's ({name}); nothing was changed", path.display()),
        Inspect::NewerFormat(v) => bail!("{} was written by a newer Holdfast (format {v}); nothing was changed", path.display()),
        Inspect::Osd(s) => {
            ensure!(s.cluster == cluster, "{} belongs to another cluster; nothing was changed", path.display());
            wipe(path)?;
        }
        Inspect::HalfFormatted | Inspect::Damaged(_) => wipe(path)?,
    }
    let mut options = FormatOptions::new(cluster, id, log_id, RealClock.wall_ns());
    options.segment_bytes = room::segment_bytes(part);
    Ok(Osd::format(disk, path, options)?)
}

/// Takes away what an OSD keeps in its folder.
fn wipe(path: &Path) -> anyhow::Result<()> {
    // The superblock first: what is left behind a crash says that it is no whole OSD.
    for name in [superblock_file(path), path.join(snapshots::FILE), path.join(LOG_DIR)] {
        let gone = if name.is_dir() { std::fs::remove_dir_all(&name) } else { std::fs::remove_file(&name) };
        match gone {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", name.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn superblock_file(path: &Path) -> PathBuf {
    path.join(holdfast_objstore_osd::service::superblock::FILE)
}

/// Opens every OSD that is there; a lost one stands in its place with the reason.
pub async fn open(layout: &Layout, disk: Arc<RealDisk>, shares: Shares) -> anyhow::Result<Vec<OsdState>> {
    let parts = room::parts(layout, &disk)?;
    let mut opened = Vec::new();
    for (id, path) in &layout.osds {
        let life = layout.place(*id).map(|p| p.life.clone()).unwrap_or_default();
        let cache_bytes = shares.memory / 16 / layout.osds.len() as u64;
        let with = Opening { disk: disk.clone(), part: parts.get(id).copied(), cache_bytes };
        opened.push((*id, path, open_one(*id, path, &life, with).await, life.state == Standing::Draining));
    }
    let mut domains = opened.iter().filter_map(|(_, _, o, _)| o.as_ref().ok()).map(|o| o.osd.domain());
    let first = domains.next();
    let several = domains.any(|d| Some(d) != first);
    if several {
        disk.never_in_place();
    }
    let state = |(id, path, opened, draining): (OsdId, &PathBuf, Result<Opened, String>, bool)| {
        let state = match opened {
            Ok(o) => OsdState::open(id, path.clone(), o, several),
            Err(why) => OsdState::lost(id, path.clone(), why),
        };
        state.drain(draining);
        state
    };
    Ok(opened.into_iter().map(state).collect())
}

/// Recovers the metadata service: the state in the first data folder, the log on as many devices as there are for it.
pub async fn open_metadata(
    layout: &Layout,
    disk: Arc<RealDisk>,
    clock: Arc<dyn Clock>,
    shares: Shares,
    accept_stale: bool,
    roots: Vec<Root>,
    registry: &mut Registry,
) -> anyhow::Result<Arc<Service>> {
    let dir = layout.meta_dir();
    let log = raft::Config { mirrors: mirrors::config(layout, &*disk, accept_stale), ..room::log(layout, &*disk, random_u128(), false)? };
    log.metrics.register(registry.sub_registry_with_prefix("holdfast"));
    let mut config = holdfast_meta_server::Config::within(shares.metadata);
    if mirrors::several(layout, &*disk) {
        config.snapshots = Some(Snapshots { roots, every_bytes: log.checkpoint_bytes / 2 });
    }
    config.ballast_bytes = room::ballast_bytes(layout, &*disk)?;
    config.state.held_bytes_max = config.state.held_bytes_max.min(log.held_bytes_max());
    config.state.staged_bytes_max = config.state.staged_bytes_max.min(log.held_bytes_max() as usize / 2);
    let deps = Deps { disk, dir: dir.clone(), cluster: Some(layout.cluster.to_be_bytes()), clock, config, log };
    let service = Service::open(deps).await.with_context(|| format!("cannot recover the metadata in {}", dir.display()))?;
    service.metrics().register(registry.sub_registry_with_prefix("holdfast_meta"));
    Ok(service)
}
