//! The data thread: one runtime with one ring that holds /dev/fuse, the vfs, the metadata service with its log, and the OSDs.
//!
//! Order of a start: OSDs, object cluster, metadata, the bucket `home`, vfs, mount. An end runs it backwards.

use super::kernel::Kernel;
use super::osds::{OsdSet, OsdState};
use super::packs::Packs;
use super::reconcile::ServiceRanges;
use super::reports::Reports;
use super::snapshots::{self, Roots};
use super::{storage, upkeep};
use crate::admin::client::SOURCE_PREFIX;
use crate::layout::Layout;
use anyhow::anyhow;
use bytes::Bytes;
use holdfast_fs_fuse::{Binding, MountOptions, Mounted, Unmounted, VfsAdapter};
use holdfast_fs_vfs::{Error as VfsError, Vfs};
use holdfast_meta_client::{MetaError, MetaService, NoEvents};
use holdfast_meta_server::{Service, StripeReaper, superblock};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::real::{self, RealClock, RealDisk};
use holdfast_objstore_client::{Cluster, Config as ObjectsConfig, Objects, Returning};
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::{Command, Owner, Shape};
use holdfast_objstore_repair::{Reconciler, Repair, reconcile};
use parking_lot::Mutex;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The bucket that exists after the first start and is what is mounted unless another is named.
pub const HOME: &[u8] = b"home";
/// How long a mount in use may keep the end waiting before it is detached and cut off.
const DETACHED_MAX: Duration = Duration::from_secs(5);

pub struct Plan {
    pub layout: Layout,
    pub mount: Option<MountOptions>,
    /// The bucket to mount.
    pub bucket: String,
    pub disk: Arc<RealDisk>,
    /// The byte budget.
    pub memory: u64,
    /// Start although the newest metadata may be missing.
    pub accept_stale: bool,
}

/// How the byte budget is divided. What is left over is for tables, request buffers and the logs' own caches.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    pub memory: u64,
    /// Dirty data (at most half of it) and the read cache.
    pub files: u64,
    /// S3 bodies in flight.
    pub bodies: u64,
    /// Tables and caches of the metadata service.
    pub metadata: u64,
}

impl Shares {
    fn of(memory: u64) -> Self {
        Self { memory, files: memory / 2, bodies: memory / 8, metadata: memory / 8 }
    }
}

/// What other threads may use while the data thread runs.
pub struct Running {
    pub layout: Layout,
    pub shares: Shares,
    pub osds: OsdSet,
    pub reports: Arc<Reports>,
    pub repair: Arc<Repair>,
    pub objects: Arc<Cluster>,
    pub service: Arc<Service>,
    pub reconciler: Arc<Reconciler>,
    pub roots: Arc<Roots>,
    /// What this start rebuilt of the metadata, in a sentence.
    pub rebuilt: Option<String>,
    /// What lies in folders and is not used, a sentence each.
    pub stale: Vec<String>,
    pub vfs: Option<Arc<Vfs>>,
    pub mount: Option<Mount>,
    pub registry: Mutex<Registry>,
    /// The metadata was restored from a backup and no operator has agreed yet that what it does not know is deleted.
    pub unconfirmed: Arc<AtomicBool>,
    /// The data thread's runtime.
    pub data: tokio::runtime::Handle,
}

/// What is known of the mount.
#[derive(Debug, Clone)]
pub struct Mount {
    pub point: PathBuf,
    pub bucket: String,
    pub binding: &'static str,
    pub transport: &'static str,
}

impl Running {
    /// Runs one command for an administrator, in a session of its own, on the data thread.
    pub async fn run(&self, command: Command) -> Result<(), MetaError> {
        let service = self.service.clone();
        let ran = self.data.spawn(async move {
            let meta = service.connect("admin", false, Arc::new(NoEvents)).await?;
            let reply = meta.submit(command).await;
            meta.close_session().await;
            reply.map(drop)
        });
        ran.await.unwrap_or_else(|e| Err(MetaError::Failed(format!("the data thread ended: {e}"))))
    }

    /// One sentence for each OSD that does not hold what it should: out of service, or found damaged.
    pub fn losses(&self) -> Vec<String> {
        self.osds
            .list()
            .iter()
            .filter_map(|o| match (o.failure(), self.damage(o)) {
                (Some(why), _) => Some(format!("{} is lost: {why}", o.id)),
                (None, Some(what)) => Some(format!("{} is damaged: {what}", o.id)),
                (None, None) => None,
            })
            .collect()
    }

    /// A sentence for each OSD in service of which shards could not be used since the start, whether they have been repaired or not.
    pub fn rotten(&self) -> Vec<String> {
        let met = |o: &Arc<OsdState>| match self.reports.corrupt(o.id) {
            n if n > 0 && o.failure().is_none() => Some(format!(
                "{} in {} had {n} shards that were corrupt or could not be read since the start; replace the device if it goes on",
                o.id,
                o.path.display()
            )),
            _ => None,
        };
        self.osds.list().iter().filter_map(met).collect()
    }

    /// Whether all that an OSD should hold was looked for since it came into service: repair knows what it lacks.
    pub fn looked_through(&self, osd: &OsdState) -> bool {
        self.repair.looked_since(osd.came())
    }

    /// What an OSD in service lacks of what it should hold, as far as it is known and not repaired yet.
    pub fn damage(&self, osd: &OsdState) -> Option<String> {
        if self.looked_through(osd) && self.repair.suspects(osd.id) == 0 {
            osd.repaired();
        }
        if osd.rebuilding() {
            return Some("it is new and is being filled from the others".into());
        }
        osd.damage().or_else(|| match self.repair.suspects(osd.id) {
            0 => None,
            n => Some(format!("{n} of its shards are corrupt or missing and wait for repair")),
        })
    }
}

/// How the data thread's service came to an end by itself.
pub enum End {
    /// Somebody unmounted it.
    Unmounted,
    Failed(String),
}

/// The data thread, from outside.
pub struct Data {
    pub running: Arc<Running>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<End>,
    thread: JoinHandle<std::io::Result<anyhow::Result<()>>>,
}

impl Data {
    /// Completes when the mount is over, or the data thread. Once.
    pub async fn ended(&mut self) -> End {
        (&mut self.ended).await.unwrap_or_else(|_| End::Failed("the data thread ended".into()))
    }

    /// Drains, unmounts, closes.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        tokio::task::spawn_blocking(move || self.thread.join()).await?.map_err(|_| anyhow!("the data thread panicked"))??
    }
}

/// Starts the data thread; returns when the mount answers.
pub async fn start(plan: Plan) -> anyhow::Result<Data> {
    let (stop, stopped) = watch::channel(false);
    let (tell, told) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let thread = real::runtime::spawn_thread("data", move || run(plan, tell, end, stopped))?;
    match told.await {
        Ok(started) => Ok(Data { running: started?, stop, ended, thread }),
        Err(_) => Err(anyhow!("the data thread ended before it was ready")),
    }
}

async fn run(
    plan: Plan,
    tell: oneshot::Sender<anyhow::Result<Arc<Running>>>,
    end: oneshot::Sender<End>,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (running, mounted) = match open(plan).await {
        Ok(opened) => opened,
        Err(e) => {
            drop(tell.send(Err(e)));
            return Ok(());
        }
    };
    // Before anybody asks: nothing counts as looked for that was not.
    running.repair.start();
    if tell.send(Ok(running.clone())).is_err() {
        return Ok(());
    }
    let watching = tokio::spawn(upkeep::watch(running.clone()));
    let reconciled = running.clone();
    let reconciling = running.reconciler.clone().run(move || reconciled.osds.list().iter().map(|o| o.service()).collect());
    let reconciling = tokio::spawn(reconciling);
    // Each step is taken whatever became of the one before: nothing that can still be saved is left behind.
    let mut trouble = Vec::new();
    let mut note = |what: &str, result: anyhow::Result<()>| {
        if let Err(e) = result {
            trouble.push(format!("{what}: {e:#}"));
        }
    };
    note("unmounting", serve(&running, mounted, end, stopped).await);
    if let Some(vfs) = &running.vfs {
        note("draining the mount", vfs.shutdown().await.map_err(anyhow::Error::from));
    }
    watching.abort();
    reconciling.abort();
    running.repair.stop().await;
    note("closing the metadata", running.service.shutdown().await.map_err(anyhow::Error::from));
    trouble.extend(running.osds.close().await);
    anyhow::ensure!(trouble.is_empty(), "{}", trouble.join("; "));
    Ok(())
}

type Opened = (Arc<Running>, Option<Mounted>);

async fn open(plan: Plan) -> anyhow::Result<Opened> {
    let Plan { mut layout, mount, bucket, disk, memory, accept_stale } = plan;
    let shares = Shares::of(memory);
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let mut registry = Registry::default();
    disk.metrics().register(registry.sub_registry_with_prefix("holdfast"));
    let kernel = holdfast_objstore_ec::kernel_name();
    tracing::info!("erasure codes use the kernel {kernel}");
    registry.sub_registry_with_prefix("holdfast_ec").register("kernel", "The GF(2^8) kernel in use", Info::new(vec![("kernel", kernel)]));
    let budget = Budget::new(shares.files);
    let states = storage::open(&layout, disk.clone(), shares).await?;
    let services = states.iter().map(OsdState::service).collect();
    let osds = OsdSet::new(layout.clone(), states, disk.clone(), shares);
    osds.remember()?;
    let config = ObjectsConfig { cache_bytes: shares.files / 2, ..ObjectsConfig::default() };
    let reports = Arc::new(Reports::default());
    let objects = Cluster::with_repair(services, budget.clone(), config, reports.clone());
    osds.list().iter().filter(|o| o.draining()).for_each(|o| objects.set_leaving(o.id, true));
    objects.metrics().register(registry.sub_registry_with_prefix("holdfast"));

    let found = snapshots::read(&layout, &*disk);
    let rebuilt = match layout.lost_home {
        Some(_) => {
            let services: Vec<_> = osds.list().iter().map(|o| o.service()).collect();
            let said = snapshots::rebuild(&layout, &disk, &objects, &services, &found).await?;
            tracing::error!("{said}");
            Some(said)
        }
        None => None,
    };
    let service = storage::open_metadata(&layout, disk.clone(), clock.clone(), shares, accept_stale, found, &mut registry).await?;
    if rebuilt.is_some() {
        // From now on it counts; before, the next start would have done the same again.
        osds.found_home()?;
        layout = osds.layout();
    }
    let unconfirmed = Arc::new(AtomicBool::new(superblock::is_restored(&*disk, &layout.meta_dir())?));
    let stale = snapshots::stale(&layout, &*disk);
    stale.iter().for_each(|s| tracing::warn!("{s}"));
    let roots = Roots::new(disk.clone(), layout.code, osds.list(), unconfirmed.clone());
    service.reap_stripes(Arc::new(Reaper(objects.clone())));
    let packs = Arc::new(Packs { objects: objects.clone(), code: layout.code });
    service.pack_stripes(packs.clone());
    service.make_snapshots(packs, roots.clone(), layout.code);
    objects.set_returning(Arc::new(Retired(service.clone())));
    let ranges = Arc::new(ServiceRanges(service.clone()));
    for osd in osds.list().iter().filter(|o| o.failure().is_none()) {
        // What former sessions still send is refused from the first moment. One that cannot is out of service by now.
        if let Err(e) = reconcile::fence(&*osd.service(), &*ranges).await {
            tracing::warn!("{}: its fences could not be raised: {e}", osd.id);
        }
    }
    ensure_home(&*service, &layout).await?;
    let repair = upkeep::repair(objects.clone(), service.clone(), disk, layout.home(), clock.clone(), unconfirmed.clone());
    repair.metrics().register(registry.sub_registry_with_prefix("holdfast"));
    reports.attach(repair.sink());

    let shared: Arc<dyn MetaService> = service.clone();
    let (vfs, mounted, shown) = match mount {
        None => (None, None, None),
        Some(options) => {
            let (vfs, mounted, shown) = open_mount(options, bucket, &layout, shared, objects.clone(), budget, clock).await?;
            vfs.metrics().register(registry.sub_registry_with_prefix("holdfast"));
            (Some(vfs), Some(mounted), Some(shown))
        }
    };
    let running = Running {
        layout,
        shares,
        osds,
        reports,
        repair,
        objects,
        reconciler: Reconciler::new(ranges),
        service,
        roots,
        rebuilt,
        stale,
        vfs,
        mount: shown,
        registry: Mutex::new(registry),
        unconfirmed,
        data: tokio::runtime::Handle::current(),
    };
    Ok((Arc::new(running), mounted))
}

async fn open_mount(
    mut options: MountOptions,
    bucket: String,
    layout: &Layout,
    service: Arc<dyn MetaService>,
    objects: Arc<dyn Objects>,
    budget: Budget,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<(Arc<Vfs>, Mounted, Mount)> {
    let kernel = Kernel::default();
    let config = holdfast_fs_vfs::Config::default();
    let name = Bytes::copy_from_slice(bucket.as_bytes());
    let vfs = Vfs::connect(service, objects, name, Arc::new(kernel.clone()), budget, clock, config).await.map_err(|e| match e {
        VfsError::NotFound => {
            anyhow!("there is no bucket {bucket} to mount; start without --bucket and make it: holdfast fs create {bucket}")
        }
        VfsError::NotSupported => anyhow!("the bucket {bucket} cannot be mounted: it was made over S3 and is flat, its keys are no paths"),
        other => anyhow!("cannot open the bucket {bucket}: {other}"),
    })?;
    options.fsname = format!("{SOURCE_PREFIX}{}", layout.home().display());
    let mounted = holdfast_fs_fuse::mount(&options, Arc::new(VfsAdapter::new(vfs.clone())))?;
    kernel.attach(mounted.notifier());
    let binding = match options.binding {
        Binding::Dev => "dev",
        Binding::Fuser => "fuser",
    };
    let shown = Mount { point: options.mountpoint, bucket, binding, transport: mounted.transport() };
    Ok((vfs, mounted, shown))
}

/// The tree bucket `home`, made on the first start.
async fn ensure_home(service: &dyn MetaService, layout: &Layout) -> anyhow::Result<()> {
    let meta = service.connect("start", false, Arc::new(NoEvents)).await?;
    let name = Bytes::from_static(HOME);
    let there = meta.buckets().await?.iter().any(|b| b.name == name);
    if !there {
        // SAFETY: these calls only read the process's ids.
        let owner = unsafe { Owner { uid: libc::geteuid(), gid: libc::getegid() } };
        meta.submit(Command::CreateBucket { name, shape: Shape::Tree, code: layout.code, owner, mode: 0o755 }).await?;
    }
    meta.close_session().await;
    Ok(())
}

/// Serves the mount until told to stop, then takes it away while it is still served.
async fn serve(
    running: &Running,
    mounted: Option<Mounted>,
    end: oneshot::Sender<End>,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let Some(mounted) = mounted else {
        // A closed channel means that the process is on its way out too.
        let _ = stopped.wait_for(|s| *s).await;
        drop(end);
        return Ok(());
    };
    let unmounter = mounted.unmounter();
    let mut serving = tokio::spawn(mounted.run());
    let over = tokio::select! {
        _ = stopped.wait_for(|s| *s) => None,
        over = &mut serving => Some(over),
    };
    if let Some(over) = over {
        drop(end.send(match over {
            Ok(Ok(())) => End::Unmounted,
            Ok(Err(e)) => End::Failed(format!("the mount failed: {e}")),
            Err(e) => End::Failed(format!("the mount's loop panicked: {e}")),
        }));
        let _ = stopped.wait_for(|s| *s).await;
        return Ok(());
    }
    if let Some(vfs) = &running.vfs {
        // What can be written is written before users lose the mount; a failure is reported again by the shutdown.
        if let Err(e) = vfs.sync_all().await {
            tracing::warn!("draining the mount: {e}");
        }
    }
    match unmounter.unmount().await? {
        Unmounted::Detached => {
            tracing::warn!("the mount is in use: it is detached, and its users have {} s to close their files", DETACHED_MAX.as_secs());
            if tokio::time::timeout(DETACHED_MAX, &mut serving).await.is_err() {
                if let Some(vfs) = &running.vfs {
                    if let Err(e) = vfs.sync_all().await {
                        tracing::warn!("draining the detached mount: {e}");
                    }
                }
                serving.abort();
            }
        }
        Unmounted::Clean | Unmounted::Absent => match serving.await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::warn!("the mount's loop: {e}"),
            Err(e) => tracing::warn!("the mount's loop: {e}"),
        },
    }
    Ok(())
}

/// Deletes retired stripes for the metadata service.
struct Reaper(Arc<Cluster>);

impl StripeReaper for Reaper {
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.0.delete(stripes).await.map_err(|e| e.to_string()) })
    }
}

/// What is about to be deleted, for writes that find the devices full.
struct Retired(Arc<Service>);

impl Returning for Retired {
    fn pending(&self) -> u64 {
        self.0.returning()
    }
    fn worn(&self) -> u64 {
        self.0.worn_bytes()
    }
    fn rewritten(&self) -> u64 {
        self.0.rewritten_bytes()
    }
    fn hurry(&self) {
        self.0.hurry_returning();
    }
}
