//! What an operation costs: stripes, flushes, publishes, copies.

use crate::rig::*;
use bytes::Bytes;
use holdfast_fs_vfs::Config;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_client::fake::Point;

#[tokio::test]
async fn a_direct_4k_write_and_fsync_cost_one_stripe_one_flush_one_publish() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.make(holdfast_fs_vfs::ROOT, "f", libc::O_RDWR | libc::O_DIRECT).await;
    m.put_direct(f, 8192, AlignedBuf::copy_of(&[7; 4096]).freeze()).await;
    assert_eq!((rig.fake.counts().writes, rig.fake.counts().flushes, m.metrics().vfs_publishes.get()), (1, 0, 0));
    m.fsync(f.1, true).await.unwrap();
    let c = rig.fake.counts();
    assert_eq!((c.writes, c.written_bytes, c.flushes, m.metrics().vfs_publishes.get()), (1, 4096, 1, 1));
    m.fsync(f.1, true).await.unwrap();
    assert_eq!((rig.fake.counts().flushes, m.metrics().vfs_publishes.get()), (1, 1), "nothing new: nothing to do");
    assert_eq!(m.metrics().vfs_copied.get(), 0);
    assert_eq!(m.get(f, 0, 20_000).await, [vec![0; 8192], vec![7; 4096]].concat());
}

#[tokio::test]
async fn an_aligned_1m_direct_write_copies_nothing() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put_direct(f, 0, AlignedBuf::copy_of(&vec![9; 1 << 20]).freeze()).await;
    assert_eq!((m.metrics().vfs_copied.get(), rig.fake.counts().writes), (0, 1));
    assert_eq!(m.size(f.0).await, 1 << 20);
}

#[tokio::test]
async fn a_sequential_64m_buffered_write_is_16_stripes() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let piece = Bytes::from((0..1 << 20).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    for i in 0..64u64 {
        m.put(f, i << 20, piece.clone()).await;
    }
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(rig.fake.counts().writes, 16);
    assert_eq!(m.metrics().vfs_publishes.get(), 1);
    assert!(m.metrics().vfs_copied.get() <= 66 << 20, "{} bytes copied", m.metrics().vfs_copied.get());
    assert_eq!(m.get(f, (33 << 20) + 5, 1000).await, &piece[5..1005]);
    assert_eq!(m.dirty_bytes(), 0);
}

#[tokio::test]
async fn small_scattered_runs_share_one_stripe() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    for i in 0..100u64 {
        m.put(f, i * 100_000, vec![i as u8; 100]).await;
    }
    m.fsync(f.1, false).await.unwrap();
    assert_eq!((rig.fake.counts().writes, rig.fake.counts().written_bytes, m.metrics().vfs_publishes.get()), (1, 10_000, 1));
    for i in 0..100u64 {
        assert_eq!(m.get(f, i * 100_000, 101).await[..100], [i as u8; 100]);
    }
}

#[tokio::test]
async fn fsyncs_that_wait_together_share_publishes() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let hold = rig.fake.hold(holdfast_objstore_client::fake::Point::Flush);
    let mut tasks = Vec::new();
    for i in 0..8u64 {
        m.put_direct(f, i * 4096, vec![i as u8; 4096]).await;
        let vfs = m.vfs.clone();
        tasks.push(tokio::spawn(async move { vfs.fsync(f.1, true).await }));
    }
    soon(rig.fake.parked(holdfast_objstore_client::fake::Point::Flush, 1)).await;
    tokio::task::yield_now().await;
    drop(hold);
    for t in tasks {
        soon(t).await.unwrap().unwrap();
    }
    assert!(m.metrics().vfs_publishes.get() <= 2, "{} publishes", m.metrics().vfs_publishes.get());
}

#[tokio::test]
async fn overwrites_between_publishes_leave_no_garbage() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    for i in 0..50u8 {
        m.put_direct(f, 0, vec![i; 4096]).await;
    }
    rig.clock.advance(6_000_000_000);
    soon(m.tick()).await;
    rig.left(1).await;
    assert_eq!(m.get(f, 0, 4096).await, [49; 4096]);
}

#[tokio::test]
async fn neither_a_recall_nor_a_refused_publish_nor_an_eviction_nor_the_end_leaves_garbage() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let ino = holdfast_objstore_proto::InodeId(f.0.0);
    for i in 0..50u8 {
        m.put_direct(f, 0, vec![i; 4096]).await;
    }
    soon(rig.admin.getattr(ino)).await.unwrap();
    rig.left(1).await;
    // A flush that fails for one of two.
    m.put_direct(f, 4096, vec![1; 4096]).await;
    m.put_direct(f, 8192, vec![1; 4096]).await;
    for _ in 0..2 {
        rig.fake.fail_next(Point::Flush, holdfast_objstore_client::Error::Unavailable { up: 0, need: 6 });
    }
    assert!(m.fsync(f.1, false).await.is_err());
    rig.left(2).await;
    // What an eviction takes was never published.
    m.put_direct(f, 0, vec![9; 4096]).await;
    m.put_direct(f, 0, vec![8; 4096]).await;
    rig.local.evict(rig.local.holder(ino).expect("it is held"));
    rig.left(2).await;
    // And what is superseded when the mount ends.
    assert!(m.flush(f.1).await.is_err());
    m.put_direct(f, 1 << 20, vec![7; 4096]).await;
    m.put_direct(f, 1 << 20, vec![6; 4096]).await;
    soon(m.shutdown()).await.unwrap();
    assert_eq!(rig.fake.stripes().len(), 3);
}

#[tokio::test]
async fn a_write_through_that_fails_leaves_no_garbage() {
    let rig = Rig::new().await;
    let (m, slow) = rig.mount_slow().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 10]).await;
    soon(rig.admin.getattr(holdfast_objstore_proto::InodeId(f.0.0))).await.unwrap();
    slow.deny(true);
    for _ in 0..2 {
        rig.fake.fail_next(Point::Flush, holdfast_objstore_client::Error::Unavailable { up: 0, need: 6 });
    }
    let writes = rig.fake.counts().writes;
    assert!(m.write(m.args(f, 0, vec![2; 5000])).await.is_err());
    assert_eq!(rig.fake.counts().writes, writes + 1);
    rig.left(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_superseded_stripe_stays_for_its_readers_for_a_while() {
    let rig = Rig::new().await;
    let m = rig.mount_with(64 << 20, Config::default(), true).await;
    let f = m.file("f").await;
    m.put_direct(f, 0, vec![1; 4096]).await;
    m.put_direct(f, 0, vec![2; 4096]).await;
    m.fsync(f.1, false).await.unwrap();
    rig.clock.advance(6_000_000_000);
    soon(m.tick()).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.fake.stripes().len(), 2);
    rig.left(1).await;
}

#[tokio::test]
async fn old_data_is_written_and_published_by_the_clock() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 10]).await;
    soon(m.tick()).await;
    assert_eq!(rig.fake.counts().writes, 0);
    rig.clock.advance(6_000_000_000);
    soon(m.tick()).await;
    assert_eq!((rig.fake.counts().writes, m.metrics().vfs_publishes.get()), (1, 1));
    soon(m.tick()).await;
    assert_eq!((rig.fake.counts().writes, m.metrics().vfs_publishes.get()), (1, 1));
}

#[tokio::test]
async fn a_big_write_completes_on_a_tiny_budget() {
    let rig = Rig::new().await;
    let m = rig.mount_with(256 << 10, Config::default(), true).await;
    let f = m.file("f").await;
    let piece: Vec<u8> = (0..128 << 10).map(|i| (i % 249) as u8).collect();
    for i in 0..128u64 {
        m.put(f, i * (128 << 10), piece.clone()).await;
        assert!(m.dirty_bytes() <= 128 << 10);
    }
    soon(m.fsync(f.1, false)).await.unwrap();
    assert!(m.metrics().vfs_budget_waits.get() > 0);
    assert_eq!(m.get(f, 77 * (128 << 10), 128 << 10).await, piece);
    assert_eq!(m.dirty_bytes(), 0);
}

#[tokio::test]
async fn sequential_reads_are_read_ahead() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    for i in 0..16u64 {
        m.put(f, i << 20, vec![i as u8; 1 << 20]).await;
    }
    m.fsync(f.1, false).await.unwrap();
    for i in 0..128u64 {
        m.get(f, i << 17, 1 << 17).await;
        tokio::task::yield_now().await;
    }
    assert!(m.metrics().vfs_prefetched.get() >= 14 << 20, "{} bytes", m.metrics().vfs_prefetched.get());
    assert!(m.metrics().vfs_readahead_hits.get() > 100);
}
