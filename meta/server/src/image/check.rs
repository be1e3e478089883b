//! Checking the metadata in a folder that nobody serves.
//!
//! What always holds: every record is read and every reference followed; what cannot be read is said, not skipped.
//! What it leaves out: what the log holds beyond the newest checkpoint (a start applies it; checked live it is in the state).

use super::format::Head;
use super::{Export, newest};
use crate::state::Store;
use crate::superblock::{self, ClusterId};
use holdfast_meta_core::StateError;
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::{Disk, Open};
use std::path::Path;
use std::sync::Arc;

/// Pages kept in memory meanwhile, bytes.
const CACHE_BYTES: usize = 64 << 20;

/// The index up to which the durable state reaches, and one sentence for each thing that is not as it should be.
pub async fn check_folder(disk: &Arc<dyn Disk>, dir: &Path, cluster: ClusterId, log: &raft::Config) -> (u64, Vec<String>) {
    let found = newest(disk, dir, cluster, log).await;
    let mut complaints = found.faults;
    let path = superblock::state_path(dir);
    if !disk.exists(&path) {
        return (0, complaints);
    }
    let (opened, blocking) = (disk.open(&path, Open::Existing), log.log.blocking);
    let read = move || -> Result<(u64, Vec<String>), StateError> {
        let file = opened.map_err(|e| StateError(e.to_string()))?;
        // Kept open as long as its rows are read.
        let store = Store::open(file, CACHE_BYTES, blocking)?;
        let Some((mark, rows)) = store.image()? else { return Ok((0, Vec::new())) };
        let head = Head { cluster, applied: mark.applied, wall_ns: 0, behind: None, tail: mark.tail };
        Ok((head.applied, Export::new(head, rows, Vec::new()).check()))
    };
    // Not on this thread, which may have a ring to poll.
    let checked = match blocking {
        holdfast_meta_log::Blocking::Here => read(),
        holdfast_meta_log::Blocking::Pool => tokio::task::spawn_blocking(read).await.unwrap_or_else(|e| Err(StateError(e.to_string()))),
    };
    match checked {
        Ok((applied, more)) => {
            complaints.extend(more);
            if let Some((index, _)) = found.log.filter(|(index, _)| *index < applied) {
                complaints.push(format!("the metadata log ends at command {index}, and the state holds command {applied}"));
            }
            (applied, complaints)
        }
        Err(e) => {
            complaints.push(e.to_string());
            (0, complaints)
        }
    }
}
