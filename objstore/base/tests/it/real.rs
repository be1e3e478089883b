//! What only the machine's disk shows: routes, shared flushes across threads, dead rings.

use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, File, Open, write_zeroes};
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_base::real::{RealDisk, ring, runtime};
use holdfast_objstore_base::units::BLOCK;
use std::sync::Arc;
use std::time::Duration;

fn block(byte: u8) -> Bytes {
    AlignedBuf::copy_of(&[byte; BLOCK]).freeze()
}

async fn ready(disk: &RealDisk, dir: &std::path::Path, name: &str, blocks: u64) -> Arc<dyn File> {
    let f = disk.open(&dir.join(name), Open::Create).expect("opens");
    write_zeroes(&*f, 0, blocks * BLOCK as u64).await.expect("writes zeroes");
    f.flush_all().await.expect("flushes");
    f
}

#[test]
fn alone_goes_in_place_and_more_in_hand_goes_through_the_ring() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    let m = disk.metrics().clone();
    runtime::block_on(async {
        let f = ready(&disk, dir.path(), "f", 4).await;
        let _one = InHand::new();
        let (ring0, place0) = (m.ring_ops(), m.blocking_ops());
        f.write_at(0, vec![block(1)]).await.expect("writes");
        f.flush().await.expect("flushes");
        assert_eq!((m.ring_ops() - ring0, m.blocking_ops() - place0), (0, 2));
        let _two = InHand::new();
        f.write_at(0, vec![block(2), block(3)]).await.expect("writes");
        f.flush().await.expect("flushes");
        f.flush_all().await.expect("flushes");
        assert_eq!(f.read_at(4096, AlignedBuf::zeroed(BLOCK)).await.expect("reads")[0], 3);
        assert_eq!((m.ring_ops() - ring0, m.blocking_ops() - place0), (4, 2));
        assert_eq!(ring::outstanding(), 0);
    })
    .expect("runs");
}

#[test]
fn one_flush_serves_all_who_asked_before_it_started() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    let m = disk.metrics().clone();
    runtime::block_on(async {
        let f = ready(&disk, dir.path(), "f", 64).await;
        let (flushes, served) = (m.flushes(), m.flush_waiters());
        let _two = (InHand::new(), InHand::new());
        let waits = futures::future::join_all((0..64).map(|_| f.flush()));
        for r in waits.await {
            r.expect("flushes");
        }
        // Nothing was written since the first one started: it serves those who came while it ran, too.
        assert_eq!((m.flushes() - flushes, m.flush_waiters() - served), (1, 64));
    })
    .expect("runs");
}

#[test]
fn threads_share_the_flushes_of_one_device() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    let per_thread = 200;
    let threads: Vec<_> = (0..4u8)
        .map(|t| {
            let (disk, path) = (disk.clone(), dir.path().to_path_buf());
            let work = move || async move {
                let f = ready(&disk, &path, &format!("f{t}"), 8).await;
                // Some threads use their ring, some block.
                let _hands: Vec<InHand> = (0..t).map(|_| InHand::new()).collect();
                for i in 0..per_thread {
                    f.write_at(0, vec![block(i as u8)]).await.expect("writes");
                    tokio::time::timeout(Duration::from_secs(20), f.flush()).await.expect("in time").expect("flushes");
                }
                f.domain()
            };
            runtime::spawn_thread(&format!("worker{t}"), work).expect("starts")
        })
        .collect();
    let domains: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic").expect("runs")).collect();
    let m = disk.metrics();
    assert_eq!(m.flush_waiters(), 4 * per_thread);
    if domains.iter().all(|d| *d == domains[0]) {
        assert!(m.flushes() <= 4 * per_thread + 4, "never more flushes than callers");
    }
}

#[test]
fn a_runtime_that_ends_with_calls_in_its_ring_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    let f = runtime::block_on(async {
        let f = ready(&disk, dir.path(), "f", 64).await;
        for i in 0..64u64 {
            let f = f.clone();
            tokio::spawn(async move {
                let _two = (InHand::new(), InHand::new());
                f.write_at(i * BLOCK as u64, vec![block(7)]).await.expect("writes");
                f.flush().await.expect("flushes");
            });
        }
        tokio::task::yield_now().await;
        f
    })
    .expect("runs");
    // The thread has no living ring now, and the domain no dead leader.
    futures::executor::block_on(async {
        f.write_at(0, vec![block(8)]).await.expect("writes");
        f.flush().await.expect("flushes");
        assert_eq!(f.read_at(0, AlignedBuf::zeroed(BLOCK)).await.expect("reads")[0], 8);
    });
}

#[test]
fn a_future_moved_to_another_thread_still_ends() {
    let dir = tempfile::tempdir().expect("tempdir");
    let disk = RealDisk::new();
    runtime::block_on(async {
        let f = ready(&disk, dir.path(), "f", 4).await;
        let _two = (InHand::new(), InHand::new());
        let mut moved: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move { f.write_at(0, vec![block(5)]).await });
        assert!(futures::poll!(moved.as_mut()).is_pending());
        let (tx, rx) = tokio::sync::oneshot::channel();
        let other = std::thread::spawn(move || {
            let _ = tx.send(futures::executor::block_on(moved));
        });
        let r = tokio::time::timeout(Duration::from_secs(20), rx).await.expect("in time").expect("answers");
        r.expect("writes");
        other.join().expect("no panic");
    })
    .expect("runs");
}

#[test]
fn a_full_device_is_an_error_with_its_errno() {
    // /dev/full is a character device that refuses every write; its flush fails too, which poisons its own domain only.
    let disk = RealDisk::new();
    let Ok(full) = disk.open(std::path::Path::new("/dev/full"), Open::Existing) else { return };
    let dir = tempfile::tempdir().expect("tempdir");
    runtime::block_on(async {
        assert!(full.write_at(0, vec![block(1)]).await.is_err_and(|e| e.is_no_space()));
        let failed = full.flush().await;
        assert!(failed.is_err(), "fsync of a character device is refused");
        assert!(matches!(full.write_at(0, vec![block(1)]).await, Err(holdfast_objstore_base::disk::DiskError::Poisoned { .. })));
        let f = ready(&disk, dir.path(), "f", 1).await;
        f.flush().await.expect("another domain is well");
    })
    .expect("runs");
    assert!(disk.metrics().errors() >= 2);
}
