//! Small writes that travel in their Publish: what they cost, and where they are read from.

use crate::rig::*;
use bytes::Bytes;
use holdfast_fs_vfs::{ROOT, WriteArgs};
use holdfast_objstore_client::Objects;
use holdfast_objstore_client::fake::Point;
use holdfast_objstore_proto::InodeId;

const ROOM: usize = 1 << 20;

fn costs(rig: &Rig, m: &Mount) -> (u64, u64, u64) {
    let c = rig.fake.counts();
    (c.writes, c.flushes, m.metrics().vfs_publishes.get())
}

#[tokio::test]
async fn a_small_write_and_fsync_cost_one_publish_and_no_stripe() {
    let rig = Rig::new().await.inline(ROOM);
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 5000, vec![7; 4096]).await;
    m.put(f, 100_000, vec![8; 100]).await;
    m.fsync(f.1, true).await.unwrap();
    assert_eq!(costs(&rig, &m), (0, 0, 1));
    let want = [vec![0; 5000], vec![7; 4096]].concat();
    assert_eq!(m.get(f, 0, 9096).await, want);
    // By others too: without a map, through another mount, and after the bytes were packed.
    let other = rig.mount().await;
    let g = other.find(ROOT, "f").await.unwrap().attr.node;
    assert_eq!(other.all(g).await[100_000..], [8; 100]);
    assert_eq!(rig.pack().await, 1);
    assert_eq!((other.all(g).await[..9096].to_vec(), costs(&rig, &m).0), (want, 1));
}

#[tokio::test]
async fn what_was_read_inline_is_read_again_from_the_pack() {
    let rig = Rig::new().await.inline(ROOM);
    let m = rig.mount_with(256 << 20, holdfast_fs_vfs::Config { inline_cache_bytes_max: 0, ..Default::default() }, true).await;
    let f = m.file("f").await;
    for n in 0..3u8 {
        m.put(f, n as u64 * 4096, vec![n + 1; 4096]).await;
        m.fsync(f.1, true).await.unwrap();
        assert_eq!(m.get(f, n as u64 * 4096, 4096).await, [n + 1; 4096]);
    }
    let reads = m.metrics().vfs_map_reads.get();
    assert!(reads >= 3, "nothing is kept: {reads} map reads");
    rig.pack().await;
    rig.collect().await;
    // What is known of the map still shows the bytes; a new write makes it known anew.
    assert_eq!(m.get(f, 0, 4096).await, [1; 4096]);
    m.put(f, 0, vec![9; 100]).await;
    m.fsync(f.1, true).await.unwrap();
    assert_eq!(m.get(f, 0, 12_288).await, [vec![9; 100], vec![1; 3996], vec![2; 4096], vec![3; 4096]].concat());
}

#[tokio::test]
async fn a_direct_handle_that_syncs_after_each_write_pays_for_one_flush_of_the_log() {
    let rig = Rig::new().await.inline(ROOM);
    let m = rig.mount().await;
    let f = m.make(ROOT, "f", libc::O_RDWR | libc::O_DIRECT).await;
    let step = async |n: u64| {
        let before = costs(&rig, &m);
        m.put_direct(f, n * 4096, vec![n as u8; 4096]).await;
        let wrote = costs(&rig, &m);
        m.fsync(f.1, true).await.unwrap();
        let after = costs(&rig, &m);
        ((wrote.0 - before.0, wrote.1 - before.1, wrote.2 - before.2), (after.0 - wrote.0, after.1 - wrote.1, after.2 - wrote.2))
    };
    assert_eq!(step(1).await, ((1, 0, 0), (0, 1, 1)), "at first the devices get it when it is written");
    step(2).await;
    for n in 3..6 {
        assert_eq!(step(n).await, ((0, 0, 1), (0, 0, 0)), "then it is durable when it is written, and the sync is free");
    }
    // Two writes without a sync between them: no more than a guess.
    m.put_direct(f, 0, vec![1; 4096]).await;
    m.put_direct(f, 4096, vec![2; 4096]).await;
    let c = costs(&rig, &m);
    m.put_direct(f, 8192, vec![3; 4096]).await;
    assert_eq!((costs(&rig, &m).0 - c.0, costs(&rig, &m).2 - c.2), (1, 0));
    m.fsync(f.1, true).await.unwrap();
    assert_eq!(m.get(f, 0, 12_288).await, [[1; 4096], [2; 4096], [3; 4096]].concat());
}

#[tokio::test]
async fn a_synced_write_is_one_publish_with_and_without_a_grant() {
    let rig = Rig::new().await.inline(ROOM);
    let m = rig.mount().await;
    let f = m.file("f").await;
    let args = WriteArgs { sync: true, direct: true, ..m.args(f, 0, vec![5; 512]) };
    soon(m.write(args)).await.unwrap();
    assert_eq!(costs(&rig, &m), (0, 0, 1));
    // The admin's session caches nothing, so a change of its own in between takes the grant away.
    let other = rig.mount().await;
    let node = other.find(ROOT, "f").await.unwrap().attr.node;
    let h = other.open_as(node, libc::O_RDWR).await;
    other.put((node, h), 512, vec![6; 512]).await;
    other.fsync(h, true).await.unwrap();
    assert_eq!(m.get(f, 0, 1024).await, [[5; 512], [6; 512]].concat());
    assert_eq!(rig.fake.counts().writes, 0);
}

#[tokio::test]
async fn without_room_small_writes_are_stripes() {
    let rig = Rig::new().await.inline(6000);
    let m = rig.mount().await;
    let f = m.file("f").await;
    for n in 0..2u64 {
        m.put(f, n * 4096, vec![1; 4096]).await;
        m.fsync(f.1, true).await.unwrap();
    }
    assert_eq!((rig.fake.counts().writes, rig.fake.counts().flushes), (1, 1), "the second found no room");
    rig.pack().await;
    m.put(f, 8192, vec![1; 4096]).await;
    m.fsync(f.1, true).await.unwrap();
    assert_eq!(m.metrics().vfs_inline.get(), 8192);
    m.put(f, 0, vec![2; 20_000]).await;
    m.fsync(f.1, true).await.unwrap();
    assert_eq!(m.metrics().vfs_inline.get(), 8192, "much at once is a stripe");
    assert_eq!(m.get(f, 0, 20_000).await, [2; 20_000]);
}

#[tokio::test]
async fn inline_bytes_do_not_wait_for_devices_that_fail() {
    let rig = Rig::new().await.inline(ROOM);
    let m = rig.mount().await;
    let f = m.file("f").await;
    let _held = rig.fake.hold(Point::Write);
    m.put(f, 0, Bytes::from_static(b"small")).await;
    soon(m.fsync(f.1, true)).await.unwrap();
    assert_eq!(m.get(f, 0, 100).await, b"small");
    let (attr, _) = rig.admin.getattr(InodeId(f.0.0)).await.unwrap();
    assert_eq!(attr.size, 5);
    assert!(rig.fake.stripes().is_empty() && rig.fake.osds().iter().all(|(_, why)| why.is_none()));
}
