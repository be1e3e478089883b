//! Making and starting an OSD.

use super::config::{Config, FormatOptions};
use super::housekeeping::Due;
use super::inspect::{Inspect, inspect};
use super::metrics::Metrics;
use super::osd::{Inner, Osd, State};
use super::replay::Replay;
use super::superblock::{FILE, LOG_DIR, Superblock};
use crate::log::{self, Log, OnCorruption, Recovery};
use holdfast_objstore_base::disk::{Disk, DiskError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use tokio::sync::{Notify, Semaphore};

/// Why an OSD could not be made or started; each is one sentence, and nothing was harmed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    #[error("{0} is not an empty folder ({1} is there)")]
    NotEmpty(String, String),
    #[error("{0} is not an OSD's folder")]
    NotAnOsd(String),
    #[error("{0} was left half formatted; remove it and start again")]
    HalfFormatted(String),
    #[error("{folder} was written by a newer Holdfast (format {found}); upgrade")]
    NewerFormat { folder: String, found: u32 },
    #[error("{0} is damaged: {1}")]
    Damaged(String, String),
    #[error("{0}: there is no room for a segment")]
    NoRoom(String),
    #[error(transparent)]
    Io(#[from] DiskError),
}

/// What a start found.
#[derive(Debug, Clone)]
pub struct Start {
    pub recovery: Recovery,
    /// Shards held.
    pub shards: usize,
}

impl Osd {
    /// Makes an OSD in `dir`, which must be missing or empty. The superblock says that it is whole only when it is.
    pub fn format(disk: &dyn Disk, dir: &Path, options: FormatOptions) -> Result<(), OpenError> {
        let name = dir.display().to_string();
        match inspect(disk, dir)? {
            Inspect::Empty => {}
            Inspect::Foreign(first) => return Err(OpenError::NotEmpty(name, first)),
            _ => return Err(OpenError::NotEmpty(name, FILE.into())),
        }
        let superblock = Superblock {
            cluster: options.cluster,
            log_id: options.log_id,
            device: options.device,
            created_ns: options.created_ns,
            osd: options.osd,
            whole: false,
        };
        disk.create_dir_all(dir)?;
        disk.write_small(&dir.join(FILE), &superblock.encode(), 0o644)?;
        let config = log::Config { segment_bytes: options.segment_bytes, ..log::Config::osd() };
        Log::format(disk, &dir.join(LOG_DIR), options.log_id, &config).map_err(|e| refused(&name, e))?;
        disk.sync_dir(dir)?;
        disk.write_small(&dir.join(FILE), &Superblock { whole: true, ..superblock }.encode(), 0o644)?;
        Ok(())
    }

    /// Starts the OSD of `dir`: loads the newest checkpoint of its index and applies the records behind it. Faults do not
    /// stop it: they are in [`Start`], and their shards are not found. It must run within a runtime.
    pub async fn open(disk: Arc<dyn Disk>, dir: &Path, config: Config) -> Result<(Osd, Start), OpenError> {
        let name = dir.display().to_string();
        let superblock = match inspect(&*disk, dir)? {
            Inspect::Osd(s) => s,
            Inspect::Empty => return Err(OpenError::NotAnOsd(name)),
            Inspect::Foreign(first) => return Err(OpenError::NotEmpty(name, first)),
            Inspect::HalfFormatted => return Err(OpenError::HalfFormatted(name)),
            Inspect::NewerFormat(found) => return Err(OpenError::NewerFormat { folder: name, found }),
            Inspect::Damaged(why) => return Err(OpenError::Damaged(name, why)),
        };
        let log_dir = dir.join(LOG_DIR);
        let root = log::identity(&*disk, &log_dir).map_err(|e| refused(&name, e))?;
        if root.log_id != superblock.log_id {
            return Err(OpenError::Damaged(name, "its log is another OSD's".into()));
        }
        let log_config = log_config(&*disk, &log_dir, root.segment_bytes, &config)?;
        let mut replay = Replay::default();
        let (log, recovery) = Log::open(disk, &log_dir, log_config, &mut replay).await.map_err(|e| refused(&name, e))?;
        let Replay { mut index, bytes, unknown } = replay;
        index.settle(&log.segments().iter().map(|s| s.life).collect());
        if unknown > 0 {
            tracing::warn!(osd = %superblock.osd, records = unknown, "records that are none of an OSD's");
        }
        let metrics = Metrics { log: log.counters().clone(), ..Metrics::default() };
        metrics.records_recovered.inc_by(recovery.records);
        metrics.torn_tails.inc_by(recovery.torn.is_some() as u64);
        metrics.faults.inc_by(recovery.faults.len() as u64);
        let start = Start { shards: index.shards.len(), recovery };
        let state = State {
            index,
            pending: HashMap::new(),
            moving: BTreeMap::new(),
            deleting: HashMap::new(),
            cleaning: Default::default(),
            corrupt: HashSet::new(),
            failure: None,
            stamp: Default::default(),
            keeping: Due { bytes, something_died: true, ..Due::default() },
        };
        let inner = Inner {
            superblock,
            config,
            log,
            state: Mutex::new(state),
            metrics,
            read_errors: AtomicU32::new(0),
            housekeeper: Semaphore::new(1),
            pressing: AtomicU32::new(0),
            eased: Notify::new(),
            steps: AtomicU64::new(0),
        };
        let osd = Osd(Arc::new(inner));
        osd.0.housekeep();
        Ok((osd, start))
    }
}

/// Turns the capacity into segments: all there may be, and those kept back.
fn log_config(disk: &dyn Disk, log_dir: &Path, segment_bytes: u64, config: &Config) -> Result<log::Config, DiskError> {
    let total = match config.capacity_bytes {
        Some(bytes) => bytes,
        None => {
            let files = disk.list(log_dir)?.iter().filter(|n| n.ends_with(".segment")).count() as u64;
            files * segment_bytes + disk.space(log_dir)?.free
        }
    };
    let segments_max = u32::try_from(total / segment_bytes).unwrap_or(u32::MAX).max(2);
    // Two of a hundred, so that deletes, restarts and copies of cleaning always have where to go: at least three, two where there
    // are few, but never all.
    let few = segments_max < 16;
    let segments_reserve = segments_max.div_ceil(50).max(if few { 2 } else { 3 }).min(segments_max - 1);
    // What is dead in stripes that are partly alive comes back only as those are rewritten: one of thirty-two, two at least, so that
    // users cannot take the room it needs to begin with.
    let segments_background = if few { 0 } else { (segments_max / 32).max(2) };
    Ok(log::Config {
        segment_bytes,
        segments_max,
        segments_reserve,
        segments_background,
        segments_cleaning: (segments_reserve > 1) as u32,
        segments_ahead: 1,
        cache_bytes: config.cache_bytes,
        on_corruption: OnCorruption::Report,
        blocking: config.blocking,
    })
}

fn refused(name: &str, e: log::Error) -> OpenError {
    match e {
        log::Error::Io(e) => OpenError::Io(e),
        log::Error::NewerFormat { found, .. } => OpenError::NewerFormat { folder: name.into(), found },
        log::Error::Full => OpenError::NoRoom(name.into()),
        e => OpenError::Damaged(name.into(), e.to_string()),
    }
}
