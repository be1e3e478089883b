//! What every disk promises, run over the machine's and over the simulated one.

use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, DiskError, File, Open, write_zeroes};
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_base::real::{RealDisk, runtime};
use holdfast_objstore_base::sim::SimDisk;
use holdfast_objstore_base::units::BLOCK;
use std::path::Path;
use std::sync::Arc;

pub fn block(byte: u8) -> Bytes {
    AlignedBuf::copy_of(&[byte; BLOCK]).freeze()
}

pub async fn read(f: &dyn File, at: u64, blocks: usize) -> Vec<u8> {
    f.read_at(at, AlignedBuf::zeroed(blocks * BLOCK)).await.expect("reads").to_vec()
}

pub async fn suite(disk: Arc<dyn Disk>, root: &Path) {
    folders(&*disk, root);
    bytes(&*disk, root).await;
    errors(&*disk, root).await;
    many_at_once(&*disk, root).await;
}

fn folders(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    assert!(disk.list(&dir).is_err_and(|e| e.is_not_found()));
    disk.create_dir_all(&dir).expect("makes folders");
    disk.create_dir_all(&dir).expect("and does not mind that they are there");
    assert!(disk.open(&dir.join("x"), Open::Existing).is_err_and(|e| e.is_not_found()));
    disk.open(&dir.join("x"), Open::CreateNew).expect("makes a file");
    assert!(disk.open(&dir.join("x"), Open::CreateNew).is_err_and(|e| e.errno() == libc::EEXIST));
    disk.write_small(&dir.join("small"), b"one", 0o600).expect("writes");
    disk.write_small(&dir.join("small"), b"two!", 0o600).expect("replaces");
    assert_eq!(disk.read_small(&dir.join("small")).expect("reads"), Some(b"two!".to_vec()));
    assert_eq!(disk.read_small(&dir.join("none")).expect("reads"), None);
    disk.rename(&dir.join("x"), &dir.join("y")).expect("renames");
    disk.sync_dir(&dir).expect("syncs");
    assert_eq!(disk.list(&dir).expect("lists"), ["small", "y"]);
    assert_eq!(disk.list(root).expect("lists"), ["a"]);
    assert!(disk.exists(&dir.join("y")) && !disk.exists(&dir.join("x")));
    disk.remove(&dir.join("y")).expect("removes");
    assert!(disk.remove(&dir.join("y")).is_err_and(|e| e.is_not_found()));
    let space = disk.space(root).expect("tells");
    assert!(space.total >= space.free && space.free > 0);
}

async fn bytes(disk: &dyn Disk, root: &Path) {
    let path = root.join("bytes");
    let f = disk.open(&path, Open::Create).expect("opens");
    assert_eq!(f.path(), path);
    write_zeroes(&*f, 0, 3 << 20).await.expect("writes zeroes");
    f.flush_all().await.expect("flushes");
    assert_eq!(f.len().expect("len"), 3 << 20);
    f.write_at(8192, vec![block(1), Bytes::new(), block(2), block(3)]).await.expect("writes");
    f.flush().await.expect("flushes");
    let got = read(&*f, 4096, 5).await;
    for (i, want) in [0, 1, 2, 3, 0].into_iter().enumerate() {
        assert!(got[i * BLOCK..(i + 1) * BLOCK].iter().all(|b| *b == want), "block {i}");
    }
    let again = disk.open(&path, Open::Existing).expect("opens again");
    assert_eq!(again.domain(), f.domain(), "one file is in one domain, however often it is opened");
    assert_eq!(read(&*again, 8192, 1).await, vec![1; BLOCK]);
    again.set_len(1 << 20).expect("shrinks");
    again.set_len(2 << 20).expect("grows");
    again.flush_all().await.expect("flushes");
    assert_eq!(f.len().expect("len"), 2 << 20);
    assert_eq!(read(&*f, (1 << 20) + 4096, 1).await, vec![0; BLOCK]);
}

async fn errors(disk: &dyn Disk, root: &Path) {
    let f = disk.open(&root.join("errors"), Open::Create).expect("opens");
    f.write_at(0, vec![block(9)]).await.expect("writes");
    match f.read_at(0, AlignedBuf::zeroed(2 * BLOCK)).await {
        Err(DiskError::Short { got: BLOCK, want: 8192, .. }) => {}
        other => panic!("a read past the end: {:?}", other.map(|_| ())),
    }
    assert!(f.read_at(1 << 20, AlignedBuf::zeroed(BLOCK)).await.is_err());
    assert!(f.write_at(512, vec![block(1)]).await.is_err_and(|e| e.errno() == libc::EINVAL));
    assert!(f.write_at(0, vec![block(1).slice(1..)]).await.is_err_and(|e| e.errno() == libc::EINVAL));
    assert!(f.read_at(0, AlignedBuf::zeroed(100)).await.is_err());
    assert_eq!(read(&*f, 0, 1).await, vec![9; BLOCK], "refused writes change nothing");
}

async fn many_at_once(disk: &dyn Disk, root: &Path) {
    let f = disk.open(&root.join("many"), Open::Create).expect("opens");
    write_zeroes(&*f, 0, 64 * BLOCK as u64).await.expect("writes zeroes");
    f.flush_all().await.expect("flushes");
    let one = |i: u8| {
        let f = f.clone();
        async move {
            let _hand = InHand::new();
            let at = u64::from(i) * BLOCK as u64;
            f.write_at(at, vec![block(i + 1)]).await?;
            f.flush().await?;
            f.read_at(at, AlignedBuf::zeroed(BLOCK)).await
        }
    };
    for (i, got) in futures::future::join_all((0..64).map(one)).await.into_iter().enumerate() {
        assert!(got.expect("succeeds").iter().all(|b| *b == i as u8 + 1), "block {i}");
    }
    // Dropped half way: the write still happens, sooner or later, whole; nobody else is disturbed.
    for i in 0..32u8 {
        let _two = (InHand::new(), InHand::new());
        let mut dropped = Box::pin(f.write_at(u64::from(i) * BLOCK as u64, vec![block(200)]));
        let _ = futures::poll!(dropped.as_mut());
        drop(dropped);
        let mut dropped = Box::pin(f.flush());
        let _ = futures::poll!(dropped.as_mut());
        drop(dropped);
        f.flush().await.expect("another waiter is served");
    }
    f.flush().await.expect("flushes");
    for i in 0..32u64 {
        let got = read(&*f, i * BLOCK as u64, 1).await;
        assert!(got.iter().all(|b| *b == 200) || got.iter().all(|b| *b == i as u8 + 1));
    }
}

#[test]
fn the_real_disk_keeps_the_promises_on_a_thread_with_a_ring() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    runtime::block_on(suite(Arc::new(disk.clone()), dir.path())).expect("runs");
    assert!(disk.metrics().ring_ops() > 0 && disk.metrics().blocking_ops() > 0);
}

#[test]
fn the_real_disk_keeps_the_promises_on_a_plain_thread() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    futures::executor::block_on(suite(Arc::new(disk.clone()), dir.path()));
    assert_eq!(disk.metrics().ring_ops(), 0);
}

#[test]
fn the_simulated_disk_keeps_the_promises() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("root")).expect("makes the root");
        futures::executor::block_on(suite(Arc::new(disk), Path::new("root")));
    }
}
