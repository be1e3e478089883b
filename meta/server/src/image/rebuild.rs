//! Rebuilding a state that is lost from a snapshot in the pool, in another folder.
//!
//! What always holds: the folder says that it is being rebuilt until everything is durable; parts come in their order, of one cluster, each
//! whole. The incarnation stays: the log goes on behind the snapshot, so nothing is forgotten.
//! What it leaves out: finding root and stripes (the caller's), and the log, which a start applies behind it.

use super::format::Reader;
use super::restore::RestoreError;
use super::root::Piece;
use crate::state::{Mark, Overlay, Store};
use crate::superblock::{self, ClusterId, Found};
use holdfast_meta_log::Blocking;
use holdfast_objstore_base::disk::{Disk, Open};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows are committed in batches of about so many bytes.
const BATCH_BYTES: usize = 16 << 20;

pub struct Rebuild {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    cluster: ClusterId,
    store: Store,
    batch: Overlay,
    mark: Option<Mark>,
    rows: u64,
}

fn other(why: String) -> RestoreError {
    RestoreError::Image(std::io::Error::other(why))
}

impl Rebuild {
    /// Begins in `dir`. A whole state of a former time that lies there is kept as `state.redb.before`.
    pub fn begin(disk: Arc<dyn Disk>, dir: &Path, cluster: ClusterId, blocking: Blocking) -> Result<Self, RestoreError> {
        disk.create_dir_all(dir)?;
        let path = superblock::state_path(dir);
        let whole = matches!(superblock::inspect(&*disk, dir)?, Found::Ready(_));
        superblock::write_rebuilding(&*disk, dir, cluster)?;
        if disk.exists(&path) {
            if whole {
                disk.rename(&path, &path.with_extension("redb.before"))?;
            } else {
                disk.remove(&path)?;
            }
            disk.sync_dir(dir)?;
        }
        let file = disk.open(&path, Open::CreateNew)?;
        disk.sync_dir(dir)?;
        let store = Store::open(file, BATCH_BYTES, blocking)?;
        Ok(Self { disk, dir: dir.into(), cluster, store, batch: Overlay::default(), mark: None, rows: 0 })
    }

    /// Takes in the next part: a stripe of `piece`.
    pub async fn part(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), RestoreError> {
        let mut part = Reader::open(bytes)?;
        let head = part.head().clone();
        if head.cluster != self.cluster {
            return Err(RestoreError::OtherCluster);
        }
        // More of the piece that is being taken in, or the first of the next one.
        let before = self.mark.as_ref().map_or(0, |m| m.applied);
        let follows = head.behind.is_some_and(|behind| behind == before || before == head.applied);
        if head.applied != piece.applied || !follows {
            return Err(other(format!("a part up to command {} does not follow one up to {before}", head.applied)));
        }
        let mark = Mark { applied: head.applied, tail: head.tail };
        while part.block(|key, value| self.batch.set(key, value))? {}
        self.rows += part.rows();
        if self.batch.bytes() >= BATCH_BYTES {
            self.store.fold(&std::mem::take(&mut self.batch), &mark, |_| std::future::ready(())).await?;
        }
        self.mark = Some(mark);
        Ok(())
    }

    /// Makes all of it durable; how many rows were taken in. Without a part it is the state of a new cluster.
    pub async fn finish(self, unconfirmed: bool) -> Result<u64, RestoreError> {
        if let Some(mark) = &self.mark {
            self.store.fold(&self.batch, mark, |_| std::future::ready(())).await?;
        }
        // The file is let go of before anybody opens it.
        drop(self.store);
        match unconfirmed {
            true => superblock::write_restored(&*self.disk, &self.dir, self.cluster)?,
            false => superblock::write_ready(&*self.disk, &self.dir, self.cluster)?,
        }
        Ok(self.rows)
    }
}
