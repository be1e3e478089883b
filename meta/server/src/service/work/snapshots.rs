//! Snapshots of the state in the pool: made behind checkpoints, found by a root beside every OSD's superblock.
//!
//! A snapshot is a chain: an image of all rows, then images of the rows that changed. It is made anew from all rows when what changed has come to
//! as much as the image, so that over time a byte of rows is written twice. Its images are objects of a bucket of the
//! service's own, so that repair, scrubs and reconciling know their stripes.
//!
//! What always holds: an image is stable and committed before a root names it; the log is kept from the last command in the
//! newest root on; images that a root named are deleted only when a newer one can be found in its stead. A crash at any moment leaves images that
//! no root names, which are deleted later.
//! What it leaves out: where roots are kept (the caller's); reading a snapshot back (`image/rebuild`).

use super::super::core::{Core, state_error};
use super::writer::Writer;
use super::{Backoff, Leaves, PackStore, PackWrite};
use crate::image::{Head, Parts, Piece, Root};
use crate::state::Change;
use bytes::Bytes;
use holdfast_meta_core::{incarnation, read};
use holdfast_meta_log::Blocking;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_proto::meta::{
    Bucket, CHUNK_BYTES, Command, Condition, Extent, ListItem, ListQuery, MetaError, MetaResult, Name, ObjectInfo, Owner, PutObject, Reply,
    Shape,
};
use holdfast_objstore_proto::{BucketId, Code, StripeMeta};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The bucket that images lie in. No session sees it: S3 takes no name with such a beginning.
pub(crate) const BUCKET: &[u8] = b".metadata";
/// Images in a chain, at most.
const PIECES_MAX: usize = 64;
/// An image of all rows may always be this large, whatever changes come to.
const SMALL_BYTES: u64 = 4 << 20;
/// Of an image of all rows, a stripe is written and then nothing for as long, but not for longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Old images are looked for so many at a time.
const PAGE: usize = 256;

/// Whether sessions do not see a bucket of this name.
pub(crate) fn is_system_name(name: &[u8]) -> bool {
    name.starts_with(b".")
}

/// The object cluster and the OSDs' folders, as snapshots use them.
pub trait SnapshotStore: Send + Sync + 'static {
    /// Makes a root durable beside the superblock of every OSD in service. An error: too few have it to be found whatever may be lost.
    fn publish(&self, root: Bytes) -> BoxFuture<'_, Result<(), String>>;
    /// Whether the state was restored from a backup that no operator has confirmed.
    fn unconfirmed(&self) -> bool;
}

/// How snapshots are kept.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// The roots that were found, in any order.
    pub roots: Vec<Root>,
    /// A snapshot is made at a checkpoint when this much of the log was written since the last one.
    pub every_bytes: u64,
}

/// What `status` says of snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// The newest that can be found; 0: none was needed yet.
    pub number: u64,
    pub applied: u64,
    pub pieces: usize,
    pub bytes: u64,
    /// Bytes of the log behind it.
    pub behind_bytes: u64,
    /// With it and the log the state can be rebuilt.
    pub covers: bool,
    /// Why the last attempt failed, if it did.
    pub why: Option<String>,
}

/// What is known of the newest snapshot. `None` where none are made.
#[derive(Default)]
pub(crate) struct Known {
    inner: Mutex<Option<Inner>>,
    /// Somebody wants one now.
    asked: AtomicBool,
    /// Rounds that ended, and why the last one failed.
    rounds: Told<(u64, Option<String>)>,
}

#[derive(Default)]
struct Inner {
    root: Option<Root>,
    why: Option<String>,
}

impl Known {
    pub(crate) fn begin(&self) {
        self.inner.lock().get_or_insert_default();
    }
    fn note(&self, change: impl FnOnce(&mut Inner)) {
        if let Some(inner) = self.inner.lock().as_mut() {
            change(inner);
        }
    }
    /// A round ended.
    fn ended(&self, why: Option<String>) {
        self.note(|s| s.why = why.clone());
        self.rounds.tell(|r| *r = (r.0 + 1, why));
    }
}

/// Why a snapshot did not come about.
enum Fault {
    Later(String),
    Over,
}

impl From<MetaError> for Fault {
    fn from(e: MetaError) -> Self {
        match e {
            MetaError::Failed(_) => Fault::Over,
            e => Fault::Later(e.to_string()),
        }
    }
}

struct Maker {
    core: Arc<Core>,
    packs: Arc<dyn PackStore>,
    store: Arc<dyn SnapshotStore>,
    code: Code,
    config: Snapshots,
    writer: Option<Writer>,
    bucket: Option<BucketId>,
    /// The newest root that can be found.
    root: Option<Root>,
    /// The highest number that any root may have.
    number: u64,
}

pub(super) async fn run(core: Arc<Core>, packs: Arc<dyn PackStore>, store: Arc<dyn SnapshotStore>, code: Code) {
    let Some(config) = core.config.snapshots.clone() else { return };
    let number = config.roots.iter().map(|r| r.number).max().unwrap_or(0);
    let mut maker = Maker { core: core.clone(), packs, store, code, config, writer: None, bucket: None, root: None, number };
    let mut backoff = Backoff::new();
    let mut begun = false;
    loop {
        let step = async {
            if !begun {
                maker.begin().await?;
            }
            maker.round().await
        };
        match core.work.or_stop(step).await {
            None => break,
            Some(Ok(())) => {
                begun = true;
                backoff = Backoff::new();
                core.snapshots.ended(None);
                if !core.work.unless_stopped(core.state.folded()).await {
                    break;
                }
            }
            Some(Err(Fault::Over)) => return,
            Some(Err(Fault::Later(why))) => {
                core.state.cover().given_up();
                core.metrics.snapshot_failures.inc();
                tracing::warn!(error = %why, "no snapshot of the metadata could be made in the pool; trying again later");
                core.snapshots.ended(Some(why));
                if !core.work.unless_stopped(tokio::time::sleep(backoff.next())).await {
                    break;
                }
            }
        }
    }
    if let Some(mut writer) = maker.writer.take() {
        // One that is left is ended by the next start.
        let _ = writer.run(&core, Command::CloseSession).await;
    }
}

impl Maker {
    /// Takes up the newest root whose images are all there, and makes sure that it is found everywhere.
    async fn begin(&mut self) -> Result<(), Fault> {
        let mut roots = self.config.roots.clone();
        roots.sort_by_key(|r| std::cmp::Reverse(r.number));
        // Only that is what the log is kept for.
        let newest = roots.into_iter().next().filter(|r| r.applied() == self.core.state.cover().covered());
        if let Some(root) = newest
            && self.is_whole(&root)?
        {
            self.publish(root).await?;
        } else {
            // The log tells everything from its beginning, or all is to be written anew.
            self.core.state.cover().reaches_back_to(if self.core.state.cover().covered() == 0 {
                self.core.log.kept().first
            } else {
                u64::MAX
            });
        }
        self.clean().await
    }

    /// Whether a root's images are in the bucket as it says.
    fn is_whole(&mut self, root: &Root) -> Result<bool, Fault> {
        let Some(bucket) = self.found_bucket()? else { return Ok(false) };
        for piece in &root.pieces {
            let stored = self.core.view(|kv| {
                let (attr, _) = match read::resolve(kv, bucket, &key(piece.applied))? {
                    Ok(found) => found,
                    Err(MetaError::NotFound) => return Ok(Ok(Vec::new())),
                    Err(e) => return Ok(Err(e)),
                };
                let chunks = u32::try_from(attr.size.div_ceil(CHUNK_BYTES)).unwrap_or(u32::MAX);
                read::extents(kv, attr.ino, 0..chunks, &|id| kv.staged(id))
            })?;
            if !stored.iter().map(|e| (e.stripe.id, e.len)).eq(piece.stripes.iter().copied()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn found_bucket(&mut self) -> MetaResult<Option<BucketId>> {
        if self.bucket.is_none() {
            self.bucket = self.core.system_bucket()?;
        }
        Ok(self.bucket)
    }

    async fn bucket(&mut self) -> Result<BucketId, Fault> {
        if let Some(there) = self.found_bucket()? {
            return Ok(there);
        }
        let create = Command::CreateBucket {
            name: Name::from_static(BUCKET),
            shape: Shape::Flat,
            code: self.code,
            owner: Owner { uid: 0, gid: 0 },
            mode: 0o700,
        };
        match self.run(create).await? {
            Reply::Bucket(Bucket { id, .. }) => Ok(*self.bucket.insert(id)),
            other => Err(Fault::Later(format!("CreateBucket answered {other:?}"))),
        }
    }

    async fn writer(&mut self) -> MetaResult<&mut Writer> {
        if self.writer.as_ref().is_none_or(|w| w.over) {
            self.writer = Some(Writer::open(&self.core, "snapshots").await?);
        }
        Ok(self.writer.as_mut().expect("just made"))
    }

    async fn run(&mut self, command: Command) -> MetaResult<Reply> {
        let core = self.core.clone();
        let reply = self.writer().await?.run(&core, command).await?;
        core.work.after(&reply, Leaves::Stripes);
        Ok(reply)
    }

    /// Makes a snapshot if one is due, until none is.
    async fn round(&mut self) -> Result<(), Fault> {
        loop {
            let core = self.core.clone();
            let (cover, kept) = (core.state.cover(), core.log.kept());
            cover.reaches_back_to(kept.first);
            let asked = core.snapshots.asked.swap(false, Ordering::AcqRel);
            if !asked && cover.whole() && kept.bytes < self.config.every_bytes {
                return Ok(());
            }
            if core.tight() {
                return Err(Fault::Later("the device of the metadata has no room".into()));
            }
            let before = core.state.durable();
            cover.take(before);
            if asked || !cover.whole() || before <= cover.covered() {
                core.state.checkpoint().await.map_err(|e| Fault::from(state_error(e)))?;
            }
            let (mark, rows) = match core.state.newest_image().map_err(|e| Fault::from(state_error(e)))? {
                Some(found) if found.0.applied > cover.covered() || !cover.whole() => found,
                // Nothing was committed since.
                _ => {
                    cover.given_up();
                    return Ok(());
                }
            };
            let applied = mark.applied;
            let change = match &self.root {
                Some(root) if root.pieces.len() < PIECES_MAX && root.bytes().1 <= root.bytes().0.max(SMALL_BYTES) => cover.change(),
                _ => Change::All,
            };
            let behind = if change == Change::All { 0 } else { cover.covered() };
            let head =
                Head { cluster: self.core.config.cluster, applied, wall_ns: core.clock.wall_ns(), behind: Some(behind), tail: mark.tail };
            let all = change == Change::All;
            let parts = match change {
                Change::All => Parts::all(head, rows),
                Change::Rows(keys) => Parts::changed(head, rows, keys),
            };
            let piece = self.write(parts, applied, all).await?;
            let written = piece.bytes;
            let mut pieces = if all { Vec::new() } else { self.root.as_ref().map_or_else(Vec::new, |r| r.pieces.clone()) };
            pieces.push(piece);
            let incarnation = core.view(|kv| incarnation(kv).map(Ok))?;
            let unconfirmed = self.store.unconfirmed();
            self.publish(Root { cluster: self.core.config.cluster, number: 0, incarnation, unconfirmed, pieces }).await?;
            cover.taken(applied);
            core.metrics.snapshots.inc();
            tracing::debug!(applied, all, bytes = written, "a snapshot of the metadata is in the pool");
            self.clean().await?;
        }
    }

    /// Writes an image's parts as stripes, a chunk each, and commits them as one object.
    async fn write(&mut self, mut parts: Parts, applied: u64, all: bool) -> Result<Piece, Fault> {
        let (core, bucket) = (self.core.clone(), self.bucket().await?);
        let (mut extents, mut stripes, mut piece) = (Vec::new(), Vec::new(), Piece { applied, bytes: 0, stripes: Vec::new() });
        loop {
            let part;
            (part, parts) = self.next(parts).await?;
            let Some(part) = part else { break };
            let len = part.len() as u32;
            let begun = Instant::now();
            let writer = self.writer().await?;
            let id = writer.stripe(&core).await?;
            let (session, epoch) = (writer.id, writer.epoch);
            let write = PackWrite { id, bucket, code: Some(self.code), data: vec![part.into()], session, epoch };
            let stripe: Arc<StripeMeta> = self.packs.write(write).await.map_err(Fault::Later)?;
            core.metrics.snapshot_bytes.inc_by(len as u64);
            let offset = extents.len() as u64 * CHUNK_BYTES;
            extents.push(Extent { offset, len, stripe: id, stripe_offset: 0 });
            stripes.push(stripe);
            piece.stripes.push((id, len));
            piece.bytes += len as u64;
            // Clients come first, as long as the log has room.
            let kept = core.log.kept();
            if all && core.state.cover().whole() && kept.bytes < kept.bytes_max / 2 {
                tokio::time::sleep(begun.elapsed().min(PAUSE_MAX)).await;
            }
        }
        let size = extents.last().map_or(0, |e| e.offset + e.len as u64);
        let ino = self.writer().await?.inode(&core).await?;
        let put = PutObject {
            bucket,
            key: key(applied),
            ino,
            size,
            extents,
            stripes,
            inline: Vec::new(),
            info: ObjectInfo::default(),
            owner: Owner { uid: 0, gid: 0 },
            condition: Condition::default(),
            copy_from: None,
        };
        self.run(Command::PutObject(put)).await?;
        Ok(piece)
    }

    /// Cuts the next part where blocking is allowed.
    async fn next(&self, mut parts: Parts) -> Result<(Option<Vec<u8>>, Parts), Fault> {
        let cut = move || (parts.next(), parts);
        let (next, parts) = match self.core.state.blocking() {
            Blocking::Here => cut(),
            Blocking::Pool => tokio::task::spawn_blocking(cut).await.map_err(|e| Fault::Later(e.to_string()))?,
        };
        Ok((next.map_err(|e| Fault::Later(e.0))?, parts))
    }

    /// Makes a root be found, under a number of its own.
    async fn publish(&mut self, root: Root) -> Result<(), Fault> {
        self.number += 1;
        let root = Root { number: self.number, ..root };
        let bytes = root.encode();
        if bytes.len() > crate::image::ROOT_BYTES_MAX {
            return Err(Fault::Later(format!("a root of {} bytes is too large", bytes.len())));
        }
        self.store.publish(bytes.into()).await.map_err(Fault::Later)?;
        self.core.snapshots.note(|s| s.root = Some(root.clone()));
        self.root = Some(root);
        Ok(())
    }

    /// Deletes images that the newest root does not name.
    async fn clean(&mut self) -> Result<(), Fault> {
        let Some(bucket) = self.found_bucket()? else { return Ok(()) };
        let named: Vec<Name> = self.root.iter().flat_map(|r| &r.pieces).map(|p| key(p.applied)).collect();
        let mut after = None;
        loop {
            let query = ListQuery { prefix: Name::new(), delimiter: None, after, keys_max: PAGE };
            let page = self.core.view(|kv| read::list(kv, bucket, &query))?;
            for item in page.items {
                if let ListItem::Object { key, .. } = item
                    && !named.contains(&key)
                {
                    self.run(Command::DeleteObject { bucket, key, condition: Condition::default() }).await?;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

/// Under which an image lies.
fn key(applied: u64) -> Name {
    format!("{applied:020}").into()
}

impl Core {
    fn system_bucket(&self) -> MetaResult<Option<BucketId>> {
        match self.view(|kv| read::bucket(kv, BUCKET)) {
            Ok(bucket) => Ok(Some(bucket.id)),
            Err(MetaError::NoSuchBucket) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether it is the bucket of images.
    pub(crate) fn is_system(&self, bucket: BucketId) -> MetaResult<bool> {
        Ok(self.system_bucket()? == Some(bucket))
    }

    /// Makes a snapshot of all that is applied now.
    pub(crate) async fn snapshot_now(&self) -> Result<SnapshotStatus, String> {
        let none = || "the metadata is kept on one device: no snapshots are made in the pool".to_string();
        self.snapshot_status().ok_or_else(none)?;
        let want = self.log.applied();
        let (before, _) = self.snapshots.rounds.get();
        self.snapshots.asked.store(true, Ordering::Release);
        self.state.folded_or_asked();
        loop {
            let changed = self.snapshots.rounds.changed();
            self.state.check().map_err(|e| e.0)?;
            let (rounds, why) = self.snapshots.rounds.get();
            if self.state.cover().covered() >= want {
                return self.snapshot_status().ok_or_else(none);
            }
            if let Some(why) = why.filter(|_| rounds > before) {
                return Err(why);
            }
            changed.await;
        }
    }

    /// What is known of snapshots; `None` where none are made.
    pub(crate) fn snapshot_status(&self) -> Option<SnapshotStatus> {
        let known = self.snapshots.inner.lock();
        let inner = known.as_ref()?;
        let (cover, kept) = (self.state.cover(), self.log.kept());
        cover.reaches_back_to(kept.first);
        let root = inner.root.as_ref();
        Some(SnapshotStatus {
            number: root.map_or(0, |r| r.number),
            applied: root.map_or(0, Root::applied),
            pieces: root.map_or(0, |r| r.pieces.len()),
            bytes: root.map_or(0, |r| r.bytes().0 + r.bytes().1),
            behind_bytes: kept.bytes,
            covers: cover.whole(),
            why: inner.why.clone(),
        })
    }
}
