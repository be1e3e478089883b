//! Making an empty folder one of the metadata service.
//!
//! What always holds: only an empty folder is formatted; the superblock says `ready` only once the state and the log are there
//! durably, so that a log which is missing later is a lost one.
//! What it leaves out: undoing half of it; a folder that is half formatted is refused until somebody removes it.

use crate::metrics::Metrics;
use crate::state::{State, StateConfig, Store};
use crate::superblock::{self, ClusterId, Found, inspect};
use holdfast_meta_core::StateError;
use holdfast_meta_log::{Error as LogError, raft};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::{Disk, DiskError, Open};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The folder is not empty.
    #[error("{path} is not empty: refusing to format it")]
    NotEmpty { path: PathBuf },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Formats `dir`, an empty folder or one that does not exist, for the cluster. `log.create` does not matter.
pub async fn format(
    disk: Arc<dyn Disk>,
    dir: &Path,
    cluster: ClusterId,
    clock: Arc<dyn Clock>,
    log: raft::Config,
) -> Result<(), FormatError> {
    if inspect(&*disk, dir)? != Found::Nothing {
        return Err(FormatError::NotEmpty { path: dir.to_owned() });
    }
    disk.create_dir_all(dir)?;
    if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        disk.sync_dir(parent)?;
    }
    superblock::write_begun(&*disk, dir, cluster)?;
    let wal = superblock::wal_path(dir);
    disk.create_dir_all(&wal)?;
    let file = disk.open(&superblock::state_path(dir), Open::CreateNew)?;
    disk.sync_dir(dir)?;
    let config = StateConfig::default();
    let state = State::open(Store::open(file, config.cache_bytes, log.log.blocking)?, config, Metrics::default())?;
    let log = raft::open(disk.clone(), vec![wal], raft::Config { create: true, ..log }, clock, state.clone()).await?;
    let checkpoint = state.checkpoint().await;
    log.shutdown().await;
    checkpoint?;
    state.close().await?;
    superblock::write_ready(&*disk, dir, cluster)?;
    Ok(())
}
