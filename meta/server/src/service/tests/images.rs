//! Backups: what is in them, what a restore makes of them, and that a damaged one changes nothing.

use super::rig::*;
use crate::image::{Export, Reader, RestoreError, newest, restore};
use crate::superblock::{self, Found, inspect};
use crate::{Deps, Service, StateConfig, format};
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::SimDisk;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, Kind, Name};
use std::path::Path;
use std::sync::Arc;

const CLUSTER: [u8; 16] = [9; 16];
const DIR: &str = "meta";

fn log_config(seed: u128) -> raft::Config {
    let mut c = raft::Config::new(seed, false);
    c.log.segment_bytes = 256 << 10;
    c.checkpoint_bytes = 128 << 10;
    c.wal_bytes_max = 1 << 20;
    c.log.segments_max = 32;
    c
}

async fn open(disk: &SimDisk) -> Arc<Service> {
    let state = StateConfig { overlay_bytes: 256 << 10, overlay_bytes_max: 4 << 20, cache_bytes: 1 << 20, ..StateConfig::default() };
    let deps = Deps {
        disk: Arc::new(disk.clone()),
        dir: DIR.into(),
        cluster: Some(CLUSTER),
        clock: Arc::new(clock()),
        config: crate::Config { state, ..config() },
        log: log_config(78),
    };
    Service::open(deps).await.expect("opens")
}

/// A service with 300 files, its image, and a file that came after it.
async fn backed_up(disk: &SimDisk) -> (Arc<Service>, Vec<u8>, InodeId) {
    format(Arc::new(disk.clone()), Path::new(DIR), CLUSTER, Arc::new(clock()), log_config(77)).await.expect("formats");
    let service = open(disk).await;
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let kept = a.file(root, "kept").await;
    a.write(kept, 10_000).await;
    for n in 0..300u32 {
        let ino = a.ids.inode().await.expect("an id");
        let name = format!("f{n}").into();
        let command = Command::Create { dir: root, name, ino, kind: Kind::File, mode: 0o644, owner: OWNER, rdev: 0, target: Name::new() };
        a.meta.submit(command).await.expect("creates");
    }
    let export = service.export(CLUSTER).await.expect("exports");
    a.file(root, "later").await;
    let image = whole(export).await;
    (service, image, root)
}

async fn whole(mut export: Export) -> Vec<u8> {
    tokio::task::spawn_blocking(move || {
        let mut bytes = export.start();
        while let Some(more) = export.next().expect("reads") {
            bytes.extend(more);
        }
        assert!(export.check().is_empty(), "a sound state");
        bytes
    })
    .await
    .expect("no panic")
}

async fn put_back(disk: &SimDisk, image: &[u8]) -> Result<crate::image::Restored, RestoreError> {
    let reader = Reader::open(image)?;
    restore(Arc::new(disk.clone()), Path::new(DIR), CLUSTER, reader, Arc::new(clock()), log_config(79), |_| ()).await
}

#[tokio::test]
async fn a_restored_backup_has_what_it_was_made_of_and_names_new_stripes_apart() {
    let disk = SimDisk::new(1);
    let (service, image, root) = backed_up(&disk).await;
    let stripe_before = {
        let a = Client::mount(&service, "b").await;
        let f = a.file(root, "probe").await;
        a.write(f, 1000).await.id
    };
    service.shutdown().await.expect("stops");
    // Over what there is, and into an empty place.
    for disk in [disk.kill(), SimDisk::new(2)] {
        let known = newest(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DIR), CLUSTER, &log_config(1)).await;
        let done = put_back(&disk, &image).await.expect("restores");
        assert!(known.log.is_none_or(|(index, now)| index > done.applied && now > 0), "{known:?}");
        assert_eq!(
            (inspect(&disk, Path::new(DIR)).ok(), superblock::is_restored(&disk, Path::new(DIR)).ok()),
            (Some(Found::Ready(CLUSTER)), Some(true))
        );
        let service = open(&disk.crash(3)).await;
        let b = Client::mount(&service, "b").await;
        assert_eq!(b.meta.lookup(root, n("kept")).await.expect("looks").entry.expect("is there").attr.size, 10_000);
        assert!(b.meta.lookup(root, n("f299")).await.expect("looks").entry.is_some());
        assert!(b.meta.lookup(root, n("later")).await.expect("looks").entry.is_none());
        let f = b.file(root, "new").await;
        let stripe = b.write(f, 1000).await.id;
        assert!(stripe.incarnation >= done.incarnation && stripe.incarnation > stripe_before.incarnation, "{stripe} after {stripe_before}");
        service.shutdown().await.expect("stops");
    }
}

#[tokio::test]
async fn a_restore_stays_unconfirmed_over_restarts_until_it_is_confirmed() {
    let disk = SimDisk::new(4);
    let (service, image, _) = backed_up(&disk).await;
    service.shutdown().await.expect("stops");
    put_back(&disk, &image).await.expect("restores");
    let dir = Path::new(DIR);
    let disk = disk.kill();
    open(&disk).await.shutdown().await.expect("stops");
    assert_eq!(superblock::is_restored(&disk, dir).ok(), Some(true));
    superblock::confirm(&disk, dir, CLUSTER).expect("confirms");
    assert_eq!(superblock::is_restored(&disk, dir).ok(), Some(false));
    open(&disk.kill()).await.shutdown().await.expect("stops");
}

#[tokio::test]
async fn a_damaged_backup_or_one_of_another_cluster_is_never_served() {
    let disk = SimDisk::new(5);
    let (service, image, _) = backed_up(&disk).await;
    service.shutdown().await.expect("stops");
    let dir = Path::new(DIR);
    for at in [image.len() / 3, image.len() - 30] {
        let empty = SimDisk::new(6);
        let mut bad = image.clone();
        bad[at] ^= 4;
        assert!(put_back(&empty, &bad).await.is_err());
        assert!(!matches!(inspect(&empty, dir), Ok(Found::Ready(_))), "half a restore is not ready");
        // The whole one can follow.
        put_back(&empty, &image).await.expect("restores");
    }
    let mut other = Reader::open(&image[..]).expect("reads").head().clone();
    other.cluster = [1; 16];
    let head = other.encode();
    let foreign = [head.as_slice(), &image[head.len()..]].concat();
    let disk = disk.kill();
    assert!(matches!(put_back(&disk, &foreign).await, Err(RestoreError::OtherCluster)));
    assert_eq!(inspect(&disk, dir).ok(), Some(Found::Ready(CLUSTER)), "nothing was changed");
}
