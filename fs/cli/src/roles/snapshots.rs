//! Snapshots of the metadata in the pool, from outside: their roots beside the OSDs' superblocks, and rebuilding a state that is lost.
//!
//! What always holds: a root counts as published only when more OSDs have it than may be lost; nothing is written for a rebuild before a root,
//! its stripes and a copy of the log were found.
//! What it leaves out: when snapshots are made and what is in them (`meta/server`).

use super::mirrors;
use super::osds::OsdState;
use crate::layout::Layout;
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use holdfast_meta_log::raft;
use holdfast_meta_server::image::{Rebuild, Root};
use holdfast_meta_server::{SnapshotStatus, SnapshotStore, superblock};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::RealDisk;
use holdfast_objstore_client::{Cluster, Objects};
use holdfast_objstore_osd::log;
use holdfast_objstore_proto::shard::{ShardHead, ShardKey, ShardService};
use holdfast_objstore_proto::{Code, OsdId, StripeId, StripeMeta};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The root's file, beside an OSD's superblock.
pub const FILE: &str = "superblock.snapshot";
/// An OSD that takes longer to store a root is passed by.
const PATIENCE: Duration = Duration::from_secs(20);
/// Shards of one stripe on one OSD, at most.
const SHARDS_MAX: usize = 64;

/// Where roots are kept.
pub struct Roots {
    disk: Arc<RealDisk>,
    code: Code,
    osds: Mutex<Vec<Arc<OsdState>>>,
    newest: Mutex<Option<Bytes>>,
    /// OSDs that one is being written to: were two under way, the older could come out on top.
    writing: Arc<Mutex<BTreeSet<OsdId>>>,
    unconfirmed: Arc<AtomicBool>,
}

impl Roots {
    pub fn new(disk: Arc<RealDisk>, code: Code, osds: Vec<Arc<OsdState>>, unconfirmed: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { disk, code, osds: Mutex::new(osds), newest: Mutex::default(), writing: Arc::default(), unconfirmed })
    }

    /// The OSDs are others now: those that are new get the newest root.
    pub fn changed(self: &Arc<Self>, osds: Vec<Arc<OsdState>>) {
        *self.osds.lock() = osds;
        let (this, newest) = (self.clone(), self.newest.lock().clone());
        if let Some(root) = newest {
            tokio::spawn(async move {
                if let Err(why) = this.store(root).await {
                    tracing::warn!("the root of the metadata's snapshot: {why}");
                }
            });
        }
    }

    async fn store(&self, root: Bytes) -> Result<(), String> {
        let states: Vec<Arc<OsdState>> = self.osds.lock().iter().filter(|o| o.failure().is_none()).cloned().collect();
        let mut tasks = tokio::task::JoinSet::new();
        for state in &states {
            if !self.writing.lock().insert(state.id) {
                continue;
            }
            let (disk, path, id, root, writing) = (self.disk.clone(), state.path.join(FILE), state.id, root.clone(), self.writing.clone());
            tasks.spawn_blocking(move || {
                let stored = disk.write_small(&path, &root, 0o644);
                writing.lock().remove(&id);
                stored.inspect_err(|e| tracing::warn!("{}: {e}", path.display())).is_ok()
            });
        }
        let mut have = 0;
        let all = async {
            while let Some(stored) = tasks.join_next().await {
                have += usize::from(stored.unwrap_or(false));
            }
        };
        // What hangs goes on by itself.
        let _ = tokio::time::timeout(PATIENCE, all).await;
        tasks.detach_all();
        let need = (self.code.m as usize + 1).min(states.len()).max(1);
        if have >= need { Ok(()) } else { Err(format!("{have} OSDs have the root, and {need} must")) }
    }
}

impl SnapshotStore for Roots {
    fn publish(&self, root: Bytes) -> BoxFuture<'_, Result<(), String>> {
        *self.newest.lock() = Some(root.clone());
        Box::pin(self.store(root))
    }

    fn unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire)
    }
}

/// The roots that the OSDs of a cluster have, newest first. One that cannot be read is told of and left out.
pub fn read(layout: &Layout, disk: &dyn Disk) -> Vec<Root> {
    let mut roots = Vec::new();
    for (id, path) in &layout.osds {
        let file = path.join(FILE);
        match disk.read_small(&file).map_err(|e| e.to_string()).and_then(|b| b.map(|b| Root::decode(&b)).transpose()) {
            Ok(Some(root)) if root.cluster == layout.cluster.to_be_bytes() => roots.push(root),
            Ok(Some(_)) => tracing::warn!("{id}: {} is another cluster's", file.display()),
            Ok(None) => {}
            Err(why) => tracing::warn!("{id}: {}: {why}", file.display()),
        }
    }
    roots.sort_by_key(|r| std::cmp::Reverse(r.number));
    roots.dedup();
    roots
}

/// Takes the roots away: the metadata is another from now on.
pub fn forget(layout: &Layout, disk: &dyn Disk) {
    for path in layout.osds.iter().map(|(_, path)| path.join(FILE)).filter(|p| disk.exists(p)) {
        if let Err(e) = disk.remove(&path) {
            tracing::warn!("{}: {e}", path.display());
        }
    }
}

/// Rebuilds the state of the metadata where the layout says, from the newest snapshot that can be read. Answers a sentence that tells of it.
pub async fn rebuild(
    layout: &Layout,
    disk: &Arc<RealDisk>,
    objects: &Cluster,
    osds: &[Arc<dyn ShardService>],
    roots: &[Root],
) -> anyhow::Result<String> {
    let was = layout.lost_home.map_or_else(|| layout.home().to_path_buf(), |i| layout.dirs[i].clone());
    let lost = format!("{} is missing or empty, and it kept the cluster's metadata", was.display());
    let shared: Arc<dyn Disk> = disk.clone();
    let copies: Vec<PathBuf> = mirrors::config(layout, &**disk, false).dirs;
    let Some((last, _)) = raft::newest(&shared, &copies).await else {
        bail!("{lost}; no copy of the metadata log can be read elsewhere: bring it back and start again, nothing was changed");
    };
    let mut tried = Vec::new();
    for root in roots.iter().map(Some).chain(roots.is_empty().then_some(None)) {
        let applied = root.map_or(0, Root::applied);
        if last < applied {
            tried.push(format!("the log ends at command {last}, before the snapshot's {applied}"));
            continue;
        }
        match rebuild_from(layout, disk, objects, osds, root).await {
            Ok(rows) => {
                return Ok(format!(
                    "{lost}: its state is rebuilt in {} ({rows} records up to command {applied}, and what the log holds behind it)",
                    layout.meta_dir().display()
                ));
            }
            Err(e) => tried.push(format!("{e:#}")),
        }
    }
    bail!("{lost}; no snapshot of it can be read from the OSDs ({}): bring it back and start again", tried.join("; "))
}

async fn rebuild_from(
    layout: &Layout,
    disk: &Arc<RealDisk>,
    objects: &Cluster,
    osds: &[Arc<dyn ShardService>],
    root: Option<&Root>,
) -> anyhow::Result<u64> {
    let cluster = layout.cluster.to_be_bytes();
    // All stripes are looked for before anything is written.
    let mut found = Vec::new();
    for piece in root.iter().flat_map(|r| &r.pieces) {
        for (id, len) in &piece.stripes {
            let stripe = find(osds, *id).await?;
            ensure!(stripe.len == *len, "{id} has {} bytes and should have {len}", stripe.len);
            found.push((piece, Arc::new(stripe)));
        }
    }
    let mut state = Rebuild::begin(disk.clone(), &layout.meta_dir(), cluster, log::Config::wal().blocking)?;
    for (piece, stripe) in found {
        let data = objects.read(&stripe, 0..stripe.len).await.with_context(|| format!("{} cannot be read", stripe.id))?;
        state.part(piece, &data.concat()).await?;
    }
    Ok(state.finish(root.is_some_and(|r| r.unconfirmed)).await?)
}

/// A stripe's record, as the OSDs tell of it.
async fn find(osds: &[Arc<dyn ShardService>], id: StripeId) -> anyhow::Result<StripeMeta> {
    // A stripe may have been written again in another code: two writings differ in their digests.
    let mut writings: BTreeMap<(u8, u8, u64), BTreeMap<u8, (OsdId, ShardHead)>> = BTreeMap::new();
    for osd in osds.iter().filter(|o| o.failure().is_none()) {
        let Ok(keys) = osd.list(ShardKey::before(id), SHARDS_MAX).await else { continue };
        for key in keys.into_iter().take_while(|k| k.stripe == id) {
            if let Ok(head) = osd.head(key).await {
                writings.entry((head.code.k, head.code.m, head.digest)).or_default().insert(key.shard, (osd.osd(), head));
            }
        }
    }
    let whole = writings.into_values().filter(|w| w.values().next().is_some_and(|(_, h)| w.len() >= h.code.k as usize));
    let best = whole.max_by_key(|w| (w.len(), w.values().next().map(|(_, h)| h.code.n())));
    let Some((shards, (_, head))) = best.as_ref().and_then(|w| Some((w, w.values().next()?))) else {
        bail!("too few shards of {id} are left");
    };
    let n = head.code.n() as u8;
    Ok(StripeMeta {
        id,
        codec: head.codec,
        code: head.code,
        len: head.stripe_len,
        digest: head.digest,
        osds: (0..n).map(|s| shards.get(&s).map_or(OsdId(u16::MAX), |(osd, _)| *osd)).collect(),
        missing: (0..n).filter(|s| !shards.contains_key(s)).map(|s| 1 << s).sum(),
    })
}

/// A sentence for each folder that holds a state of the metadata of a former time.
pub fn stale(layout: &Layout, disk: &dyn Disk) -> Vec<String> {
    let others = layout.dirs.iter().map(|d| d.join("meta")).filter(|d| *d != layout.meta_dir());
    let stale = others.filter(|d| superblock::has_state(disk, d));
    stale
        .map(|d| {
            format!(
                "{} holds the metadata of a former time, which is stale and not used: the metadata is in {} now",
                d.display(),
                layout.meta_dir().display()
            )
        })
        .collect()
}

/// Why the state could not be rebuilt were it lost now, if so.
pub fn reason(status: &SnapshotStatus) -> Option<String> {
    (!status.covers).then(|| {
        let why = status.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        format!("the metadata's snapshot in the pool is too old to go on from{why}: were the device with its state lost now, a backup would be needed")
    })
}

/// For `status`.
pub fn shown(status: &SnapshotStatus) -> Value {
    json!({ "number": status.number, "applied": status.applied, "images": status.pieces, "bytes": status.bytes,
            "log_bytes_behind": status.behind_bytes, "covers": status.covers, "why": status.why })
}
