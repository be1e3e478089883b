//! The whole service on a simulated disk, with the real log: restarts, kills and power cuts.

use super::rig::*;
use crate::superblock::{Found, inspect};
use crate::testing::seeds;
use crate::{Deps, FormatError, OpenError, Service, StateConfig, format};
use holdfast_meta_client::Use;
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, Kind, MetaError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub const CLUSTER: [u8; 16] = [9; 16];

pub fn log_config() -> raft::Config {
    let mut c = raft::Config::new(77, false);
    c.log.segment_bytes = 256 << 10;
    c.checkpoint_bytes = 128 << 10;
    c.wal_bytes_max = 1 << 20;
    c.log.segments_max = 64;
    c
}

pub async fn make(disk: &SimDisk) -> Result<(), FormatError> {
    format(Arc::new(disk.clone()), Path::new("meta"), CLUSTER, Arc::new(clock()), log_config()).await
}

pub async fn open(disk: &SimDisk) -> Result<Arc<Service>, OpenError> {
    open_with(disk, config()).await
}

pub async fn open_with(disk: &SimDisk, config: crate::Config) -> Result<Arc<Service>, OpenError> {
    open_log(disk, config, log_config()).await
}

/// With what `--accept-stale` says.
pub async fn open_stale(disk: &SimDisk, config: crate::Config) -> Result<Arc<Service>, OpenError> {
    let mut log = log_config();
    log.mirrors.accept_stale = true;
    open_log(disk, config, log).await
}

/// Makes a new log behind the state, as a restored one has.
pub async fn empty_log(disk: &SimDisk) {
    let wal = crate::superblock::wal_path(Path::new("meta"));
    for file in disk.list(&wal).expect("lists") {
        disk.remove(&wal.join(file)).expect("removes");
    }
    let file = disk.open(&crate::superblock::state_path(Path::new("meta")), holdfast_objstore_base::disk::Open::Existing).expect("opens");
    let mut log = log_config();
    let store = crate::state::Store::open(file, 1 << 20, log.log.blocking).expect("opens");
    let state = crate::state::State::open(store, StateConfig::default(), crate::Metrics::default()).expect("opens");
    (log.create, log.mirrors.behind_state) = (true, true);
    let log = raft::open(Arc::new(disk.clone()), vec![wal], log, Arc::new(clock()), state.clone()).await.expect("makes a log");
    log.shutdown().await;
    state.close().await.expect("closes");
}

/// Restores a backup into an empty place.
pub async fn restore_at(disk: &SimDisk, image: &[u8]) {
    let reader = crate::image::Reader::open(image).expect("an image");
    let done =
        crate::image::restore(Arc::new(disk.clone()), Path::new("meta"), CLUSTER, reader, Arc::new(clock()), log_config(), |_| ()).await;
    done.expect("restores");
}

pub async fn open_log(disk: &SimDisk, config: crate::Config, log: raft::Config) -> Result<Arc<Service>, OpenError> {
    let state = StateConfig { overlay_bytes: 256 << 10, overlay_bytes_max: 4 << 20, cache_bytes: 1 << 20, ..StateConfig::default() };
    let deps = Deps {
        disk: Arc::new(disk.clone()),
        dir: "meta".into(),
        cluster: Some(CLUSTER),
        clock: Arc::new(clock()),
        config: crate::Config { state, ..config },
        log,
    };
    Service::open(deps).await
}

#[tokio::test]
async fn a_restart_keeps_everything_answered_and_ends_former_sessions() {
    let disk = SimDisk::new(1);
    make(&disk).await.expect("formats");
    let service = open(&disk).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let stripe = a.write(f, 10_000).await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    a.file(root, "gone").await;
    a.meta.opened(a.meta.lookup(root, n("gone")).await.expect("looks").entry.expect("is there").ino).await.expect("opens");
    a.unlink(root, "gone").await.expect("unlinks");
    // Nothing is told to the service: the process is killed.
    let after = disk.kill();
    let service = open(&after).await.expect("opens again");
    assert!(service.status().sessions.is_empty());
    let b = Client::gateway(&service).await;
    let entry = b.meta.lookup(root, n("f")).await.expect("looks").entry.expect("is there");
    assert_eq!((entry.ino, entry.attr.size), (f, 10_000));
    assert_eq!(b.meta.extents(f, 0..1).await.expect("reads")[0].stripe, stripe);
    eventually("the orphan of the former run is freed", || service.status().stats.inodes == 2).await;
    assert!(b.ids.inode().await.expect("an id") > f, "ids are not given twice");
    service.shutdown().await.expect("stops");
    assert_eq!(b.meta.getattr(f).await.err(), Some(MetaError::Evicted));
    let service = open(&after.kill()).await.expect("opens after an orderly stop");
    assert_eq!(service.status().stats.inodes, 2);
}

/// Makes files of these numbers, many at a time.
async fn make_files(a: &Client, dir: InodeId, numbers: std::ops::Range<u64>) {
    let name = |n: u64| holdfast_objstore_proto::meta::Name::from(format!("file-{n:08}"));
    let all: Vec<u64> = numbers.collect();
    for some in all.chunks(256) {
        let created = some.iter().map(|number| async {
            let ino = a.ids.inode().await.expect("an id");
            let (name, target) = (name(*number), Default::default());
            let command = Command::Create { dir, name, ino, kind: Kind::File, mode: 0o644, owner: OWNER, rdev: 0, target };
            a.meta.submit(command).await.expect("creates");
        });
        futures::future::join_all(created).await;
    }
}

/// What a start after a kill reads, with so many files and the same work since the last checkpoint.
struct Start {
    /// Reads of the state's database when it is opened, and the pages it has.
    database: u64,
    pages: u64,
    /// All the others.
    rest: u64,
}

async fn start_with(files: u64) -> Start {
    let disk = SimDisk::new(files);
    make(&disk).await.expect("formats");
    let service = open(&disk).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    make_files(&a, root, 0..files).await;
    service.checkpoint().await.expect("checkpoints");
    make_files(&a, root, files..files + 300).await;
    let disk = disk.kill();
    let reads = |disk: &SimDisk| disk.metrics().reads();
    let (database, pages) = {
        let disk = disk.kill();
        let before = reads(&disk);
        let path = crate::superblock::state_path(Path::new("meta"));
        let file = disk.open(&path, holdfast_objstore_base::disk::Open::Existing).expect("opens");
        let pages = file.len().expect("has a length") / 4096;
        let _store = crate::state::Store::open(file, 1 << 20, log_config().log.blocking).expect("opens");
        (reads(&disk) - before, pages)
    };
    let before = reads(&disk);
    let service = open(&disk).await.expect("opens again");
    let all = reads(&disk) - before;
    assert_eq!(service.status().stats.inodes, files + 301);
    service.shutdown().await.expect("stops");
    Start { database, pages, rest: all.saturating_sub(database) }
}

#[tokio::test]
async fn a_start_reads_the_same_for_500_files_as_for_20_000() {
    let (few, many) = (start_with(500).await, start_with(20_000).await);
    assert!(many.rest < few.rest + 64, "{} reads beside the database's for 500 files, {} for 20,000", few.rest, many.rest);
    // redb itself: its debug build looks at every page once. A repair, which no checkpoint leaves to be made, would do so three times.
    let most = if cfg!(debug_assertions) { many.pages * 5 / 4 } else { few.database + 64 };
    assert!(many.database < most, "the database has {} pages, and {} reads opened it", many.pages, many.database);
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_refused_with_a_sentence() {
    let refused = |r: Result<Arc<Service>, OpenError>| match r.err() {
        Some(OpenError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let disk = SimDisk::new(2);
    assert!(refused(open(&disk).await).contains("holds no metadata"));
    disk.create_dir_all(Path::new("meta")).expect("makes");
    disk.write_small(Path::new("meta/notes"), b"mine", 0o600).expect("writes");
    assert!(refused(open(&disk).await).contains("foreign"));
    assert!(matches!(make(&disk).await, Err(FormatError::NotEmpty { .. })));
    let disk = SimDisk::new(3);
    format(Arc::new(disk.clone()), Path::new("meta"), [1; 16], Arc::new(clock()), log_config()).await.expect("formats");
    assert!(refused(open(&disk).await).contains("another cluster"));
}

#[tokio::test]
async fn a_lost_log_does_not_pass_for_an_empty_one() {
    let disk = SimDisk::new(4);
    make(&disk).await.expect("formats");
    for name in disk.list(Path::new("meta/wal")).expect("lists") {
        disk.remove(&Path::new("meta/wal").join(name)).expect("removes");
    }
    assert!(matches!(open(&disk).await, Err(OpenError::Log(_))));
}

#[tokio::test]
async fn a_format_is_whole_or_says_so_after_any_power_cut() {
    let whole = SimDisk::new(1);
    make(&whole).await.expect("formats");
    assert_eq!(inspect(&whole, Path::new("meta")).ok(), Some(Found::Ready(CLUSTER)));
    let steps = whole.steps();
    for part in 0..24 {
        let cut = steps * part / 24;
        let disk = SimDisk::new(cut);
        disk.cut_after(cut);
        let formatted = make(&disk).await.is_ok();
        let after = disk.crash(cut);
        match inspect(&after, Path::new("meta")).expect("reads") {
            Found::Nothing | Found::HalfFormatted(_) => assert!(!formatted, "cut {cut}"),
            Found::Ready(_) => drop(open(&after).await.expect("opens")),
            other => panic!("cut {cut}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn answered_changes_survive_power_cuts() {
    for seed in seeds(0..6) {
        if let Err(lost) = cuts(seed, false).await {
            panic!("seed {seed}: {lost}");
        }
    }
}

/// The control: the same check finds the losses of a disk whose flushes do nothing.
#[tokio::test]
async fn the_check_of_power_cuts_finds_what_a_lying_disk_loses() {
    let mut lost = 0;
    for seed in 0..6 {
        lost += usize::from(cuts(seed, true).await.is_err());
    }
    assert!(lost >= 3, "only {lost} of 6 runs lost anything");
}

/// Creates and removes names at random and loses power at random; an error says which answered change is not there.
async fn cuts(seed: u64, lying: bool) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut disk = SimDisk::new(seed);
    make(&disk).await.expect("formats");
    let mut root: Option<InodeId> = None;
    let mut names: BTreeMap<&'static str, InodeId> = BTreeMap::new();
    // A name whose change was not answered: it may be there or not, as this or as that.
    let mut unsure: Option<&'static str> = None;
    for round in 0..5 {
        disk.lying_flush(lying);
        if rng.below(3) == 0 && !lying {
            // It fails while the last failure is being recovered from.
            disk.cut_after(rng.below(60));
            let opened = open(&disk).await.is_ok();
            assert!(opened || disk.is_cut(), "a start fails without a cause");
            disk = disk.crash(seed * 1000 + round);
        }
        let service = open(&disk).await.map_err(|e| e.to_string())?;
        let a = Client::mount(&service, "a").await;
        let root = match root {
            Some(r) => r,
            None => *root.insert(home(&a).await),
        };
        let (entries, _) = a.meta.readdir(root, 0, 10_000).await.map_err(|e| e.to_string())?;
        let seen: BTreeMap<_, _> = entries.iter().map(|(e, _)| (e.name.clone(), e.ino)).collect();
        if let Some(name) = unsure.take() {
            match seen.get(&n(name)) {
                Some(ino) => drop(names.insert(name, *ino)),
                None => drop(names.remove(name)),
            }
        }
        let want: BTreeMap<_, _> = names.iter().map(|(name, ino)| (n(name), *ino)).collect();
        if seen != want {
            return Err(format!("round {round}: {seen:?} is not {want:?}"));
        }
        // In half of the rounds the power fails in the middle of something.
        if rng.coin() && !lying {
            disk.cut_after(rng.below(300));
        }
        for _ in 0..60 {
            let name = NAMES[rng.below(NAMES.len() as u64) as usize];
            let changed = match names.get(name) {
                Some(_) => a.unlink(root, name).await.map(|_| None),
                None => a.create(root, name, Kind::File).await.map(|attr| Some(attr.ino)),
            };
            match changed {
                Ok(Some(ino)) => drop(names.insert(name, ino)),
                Ok(None) => drop(names.remove(name)),
                Err(e) => {
                    assert!(disk.is_cut() && matches!(e, MetaError::Failed(_)), "{e}");
                    unsure = Some(name);
                    break;
                }
            }
            if rng.below(20) == 0 && service.checkpoint().await.is_err() {
                assert!(disk.is_cut());
                break;
            }
        }
        let next = if rng.coin() { disk.crash(seed * 100 + round) } else { disk.kill() };
        disk.cut_now();
        disk = next;
    }
    Ok(())
}

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
