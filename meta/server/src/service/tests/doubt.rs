//! Starts with a log that may lack what was acknowledged: no id is given twice, and what is at hand stays at hand.

use super::packs::{Store, lazy};
use super::restart::{CLUSTER, log_config, open_log};
use super::rig::*;
use crate::superblock::{self, is_restored};
use crate::{OpenError, Service, format};
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint::must_reach;
use holdfast_objstore_base::sim::SimDisk;
use holdfast_objstore_proto::InodeId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIRS: [&str; 3] = ["meta/wal", "b/wal", "c/wal"];

/// A log on so many of three devices.
fn mirrored(copies: usize) -> raft::Config {
    let mut c = log_config();
    c.mirrors.dirs = DIRS.map(PathBuf::from).to_vec();
    c.mirrors.copies = copies;
    c
}

async fn open(disk: &SimDisk, copies: usize, accept_stale: bool) -> Result<Arc<Service>, OpenError> {
    let mut log = mirrored(copies);
    log.mirrors.accept_stale = accept_stale;
    open_log(disk, lazy(), log).await
}

async fn make(disk: &SimDisk, copies: usize) {
    for dir in DIRS {
        disk.create_dir_all(Path::new(dir).parent().expect("a folder above")).expect("makes");
    }
    disk.remove(Path::new("meta")).ok();
    format(Arc::new(disk.clone()), Path::new("meta"), CLUSTER, Arc::new(clock()), mirrored(copies)).await.expect("formats");
}

/// Takes files of a folder away.
fn lose(disk: &SimDisk, dir: &str, which: impl Fn(&str) -> bool) {
    for name in disk.list(Path::new(dir)).expect("lists").into_iter().filter(|n| which(n)) {
        disk.remove(&Path::new(dir).join(name)).expect("removes");
    }
}

/// A client that has written, the bucket's root and the file.
async fn written(service: &Service, bytes: &[u8]) -> (Client, InodeId, InodeId) {
    let a = Client::mount(service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.send(f, 0, bytes).await.expect("sends");
    (a, root, f)
}

#[tokio::test]
async fn a_stale_log_is_gone_on_with_in_a_new_incarnation_and_loses_nothing_it_has() {
    let _reached = must_reach(&["meta.parted_from_lost"]);
    let disk = SimDisk::new(1);
    make(&disk, 2).await;
    let service = open(&disk, 2, false).await.expect("opens");
    let (a, root, f) = written(&service, b"kept").await;
    let stripe = a.ids.stripe().await.expect("an id");
    let (older, disk) = (disk.kill(), disk.kill());
    // The state gets ahead of the copies that will be left.
    let service = open(&disk, 2, false).await.expect("opens");
    Client::mount(&service, "a").await.file(root, "later").await;
    service.shutdown().await.expect("stops");
    let state = superblock::state_path(Path::new("meta"));
    let newer = disk.read_small(&state).expect("reads").expect("is there");
    older.write_small(&state, &newer, 0o600).expect("writes");
    lose(&older, DIRS[0], |_| true);
    lose(&older, DIRS[2], |_| true);

    let refused = open(&older.kill(), 2, false).await.err().expect("nobody can tell which copy is the newest").to_string();
    assert!(refused.contains("--accept-stale"), "{refused}");
    let service = open(&older, 2, true).await.expect("opens when told to");
    // Killed at once, and started as always.
    let mut disk = older.kill();
    drop(service);
    for _ in 0..2 {
        assert!(is_restored(&disk, Path::new("meta")).expect("reads"), "an operator is to confirm");
        let service = open(&disk, 2, false).await.expect("opens");
        let b = Client::mount(&service, "b").await;
        assert_eq!(b.bytes(f, &Store::default()).await.expect("reads")[..4], *b"kept");
        assert!(b.meta.lookup(root, n("later")).await.expect("looks").entry.is_some(), "the state is the newer one");
        let next = b.ids.stripe().await.expect("an id");
        assert!(next.incarnation > stripe.incarnation + 1, "{next} after {stripe}");
        disk = disk.kill();
    }
    superblock::confirm(&disk, Path::new("meta"), CLUSTER).expect("confirms");
    let service = open(&disk, 2, false).await.expect("opens");
    assert!(!is_restored(&disk, Path::new("meta")).expect("reads"));
    service.shutdown().await.expect("stops");
}

#[tokio::test]
async fn a_doubt_that_was_written_down_is_acted_upon_by_the_next_start() {
    let disk = SimDisk::new(2);
    make(&disk, 2).await;
    let service = open(&disk, 2, false).await.expect("opens");
    let (a, _, f) = written(&service, b"kept").await;
    let before = a.ids.stripe().await.expect("an id").incarnation;
    let disk = disk.kill();
    superblock::write_to_raise(&disk, Path::new("meta"), CLUSTER, true).expect("writes");
    let service = open(&disk, 2, false).await.expect("opens");
    let b = Client::mount(&service, "b").await;
    assert_eq!(b.bytes(f, &Store::default()).await.expect("reads")[..4], *b"kept");
    assert!(b.ids.stripe().await.expect("an id").incarnation > before);
    assert!(is_restored(&disk, Path::new("meta")).expect("reads") && !superblock::is_to_raise(&disk, Path::new("meta")).expect("reads"));
}

#[tokio::test]
async fn one_copy_of_three_is_gone_on_with_in_a_new_incarnation() {
    let _reached = must_reach(&["wal.one_of_many", "meta.parted_from_lost"]);
    let disk = SimDisk::new(3);
    make(&disk, 3).await;
    let service = open(&disk, 3, false).await.expect("opens");
    let (a, _, f) = written(&service, b"kept").await;
    let before = a.ids.stripe().await.expect("an id").incarnation;
    let disk = disk.kill();
    for dir in [DIRS[1], DIRS[2]] {
        lose(&disk, dir, |name| name != "mirrors");
    }
    let service = open(&disk, 3, false).await.expect("opens");
    let b = Client::mount(&service, "b").await;
    assert_eq!(b.bytes(f, &Store::default()).await.expect("reads")[..4], *b"kept");
    assert!(b.ids.stripe().await.expect("an id").incarnation > before);
    assert!(!is_restored(&disk, Path::new("meta")).expect("reads"), "nothing is to be confirmed");
}
