//! Putting an image in the place of a state that is lost or damaged.
//!
//! What always holds: the folder says that it is being formatted until everything is durable; the incarnation is above any that was used,
//! so no new stripe gets the id of an old one; the folder says that it was restored until an operator confirms, and until then
//! nothing that the state does not know is deleted.
//! What it leaves out: asking the operator, and the data (what was deleted since the image is gone).

use super::format::{Reader, staged_stripe};
use crate::metrics::Metrics;
use crate::state::{Overlay, State, StateConfig, Store, encode_request};
use crate::superblock::{self, ClusterId, Found};
use holdfast_meta_core::{SERVICE_EPOCH, SERVICE_SESSION, StateError, check, raise_incarnation};
use holdfast_meta_log::{Error as LogError, raft};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::{Disk, DiskError, Open};
use holdfast_objstore_proto::meta::{Command, Inline, Request};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Rows are committed in batches of about so many bytes.
const BATCH_BYTES: usize = 16 << 20;
/// Inline bytes are logged again in commands of about so many.
const PIECE_BYTES: usize = 1 << 20;
/// Incarnations count seconds from here at least (2020-01-01): two restores of one image never use the same.
const SECONDS_FROM: u64 = 1_577_836_800;

/// The least incarnation of a state that takes the place of a later one at this time.
pub(crate) fn incarnation_at(wall_ns: u64) -> u32 {
    u32::try_from((wall_ns / 1_000_000_000).saturating_sub(SECONDS_FROM)).unwrap_or(0)
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the image cannot be used: {0}")]
    Image(#[from] std::io::Error),
    #[error("the image is of another cluster")]
    OtherCluster,
    #[error("the state in the image contradicts itself: {0}")]
    Unsound(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Cuts inline bytes into commands of a sensible size.
fn pieces(staged: Vec<Inline>) -> Vec<Vec<Inline>> {
    let mut pieces: Vec<Vec<Inline>> = Vec::new();
    let mut bytes = usize::MAX;
    for inline in staged {
        bytes = bytes.saturating_add(inline.data.len());
        if bytes > PIECE_BYTES {
            pieces.push(Vec::new());
            bytes = inline.data.len();
        }
        pieces.last_mut().expect("just pushed").push(inline);
    }
    pieces
}

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    pub rows: u64,
    pub applied: u64,
    pub incarnation: u32,
}

/// What can still be read of the metadata in a folder and its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newest {
    /// Index of the last command, and when it was stamped (wall nanoseconds, where known).
    pub log: Option<(u64, i64)>,
    /// What keeps it from being used, a sentence each; empty: it looks whole.
    pub faults: Vec<String>,
}

/// Looks at a folder's metadata without changing it, as far as it can be read.
pub async fn newest(disk: &Arc<dyn Disk>, dir: &Path, cluster: ClusterId, log: &raft::Config) -> Newest {
    let mut found = Newest::default();
    match superblock::inspect(&**disk, dir) {
        Ok(Found::Ready(c)) if c == cluster => {}
        Ok(Found::Ready(_)) => found.faults.push(format!("{} belongs to another cluster", dir.display())),
        Ok(other) => found.faults.push(format!("{}: {other:?}", dir.display())),
        Err(e) => found.faults.push(e.to_string()),
    }
    if !disk.exists(&superblock::state_path(dir)) {
        found.faults.push(format!("{} is missing", superblock::state_path(dir).display()));
    }
    let dirs = if log.mirrors.dirs.is_empty() { vec![superblock::wal_path(dir)] } else { log.mirrors.dirs.clone() };
    found.log = raft::newest(disk, &dirs).await;
    if found.log.is_none() {
        found.faults.push("no copy of the metadata log can be read".into());
    }
    found
}

/// Makes `dir` hold the state in `image`, with an empty log behind it. Whatever metadata was there is gone; a state file is kept under the
/// name `state.redb.before`. Calls `progress` with the rows written so far.
pub async fn restore<R: Read>(
    disk: Arc<dyn Disk>,
    dir: &Path,
    cluster: ClusterId,
    mut image: Reader<R>,
    clock: Arc<dyn Clock>,
    log: raft::Config,
    mut progress: impl FnMut(u64),
) -> Result<Restored, RestoreError> {
    let head = image.head().clone();
    if head.cluster != cluster {
        return Err(RestoreError::OtherCluster);
    }
    if head.behind.is_some() {
        return Err(RestoreError::Image(std::io::Error::other("it is a part of a snapshot, not a backup")));
    }
    disk.create_dir_all(dir)?;
    superblock::write_begun(&*disk, dir, cluster)?;
    let path = superblock::state_path(dir);
    if disk.exists(&path) {
        disk.rename(&path, &path.with_extension("redb.before"))?;
        disk.sync_dir(dir)?;
    }
    let file = disk.open(&path, Open::CreateNew)?;
    disk.sync_dir(dir)?;
    let config = StateConfig::default();
    let store = Store::open(file, config.cache_bytes, log.log.blocking)?;
    let mark = crate::state::Mark { applied: head.applied, tail: head.tail };
    let mut batch = Overlay::default();
    let mut staged = Vec::new();
    while image.block(|key, value| match staged_stripe(key) {
        Some(stripe) => staged.extend(value.map(|data| Inline { stripe, data })),
        None => batch.set(key, value),
    })? {
        if batch.bytes() >= BATCH_BYTES {
            store.fold(&std::mem::take(&mut batch), &mark, |_| std::future::ready(())).await?;
            progress(image.rows());
        }
    }
    store.fold(&batch, &mark, |_| std::future::ready(())).await?;
    progress(image.rows());
    let state = State::open(store, config, Metrics::default())?;
    let complaints = state.view(|kv| Ok(check(kv)))?;
    if let Some(first) = complaints.into_iter().next() {
        return Err(RestoreError::Unsound(first));
    }
    let incarnation = state.update(|kv| raise_incarnation(kv, incarnation_at(clock.wall_ns())))?;
    state.checkpoint().await?;
    let wal = superblock::wal_path(dir);
    let mut log = raft::Config { create: true, ..log };
    log.mirrors.behind_state = true;
    let log = raft::open(disk.clone(), vec![wal], log, clock, state.clone()).await?;
    // Small writes that no pack has go into the new log, where the state looks for them.
    for piece in pieces(staged) {
        let command = Command::Restage { inline: piece };
        let request = Request { session: SERVICE_SESSION, epoch: SERVICE_EPOCH, seq: 0, acked: 0, command };
        log.propose(encode_request(&request).map_err(StateError)?).await?;
    }
    log.shutdown().await;
    state.close().await?;
    superblock::write_restored(&*disk, dir, cluster)?;
    Ok(Restored { rows: image.rows(), applied: head.applied, incarnation })
}
