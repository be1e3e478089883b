//! What a file does: appends, holes, truncation, sync flags, suid, unlink while open.

use crate::rig::*;
use bytes::Bytes;
use holdfast_fs_vfs::{Error, OpenFlags, ROOT, Seek, SetAttrArgs, SetTime, WriteArgs};
use holdfast_objstore_client::fake::Point;

#[tokio::test]
async fn appends_of_two_handles_never_overlap_whatever_offset_the_kernel_guessed() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let a = m.make(ROOT, "f", libc::O_WRONLY | libc::O_APPEND).await;
    let b = (a.0, m.open_as(a.0, libc::O_RDWR | libc::O_APPEND).await);
    let hold = rig.fake.hold(Point::Write);
    let mut tasks = Vec::new();
    for i in 0..20u8 {
        let f = if i % 2 == 0 { a } else { b };
        let args = WriteArgs { direct: i % 3 != 0, ..m.args(f, 0, vec![i + 1; 1000]) };
        let vfs = m.vfs.clone();
        tasks.push(tokio::spawn(async move { vfs.write(args).await }));
    }
    soon(rig.fake.parked(Point::Write, 4)).await;
    drop(hold);
    for t in tasks {
        assert_eq!(soon(t).await.unwrap(), Ok(1000));
    }
    assert_eq!(m.size(a.0).await, 20_000);
    let data = m.get(b, 0, 30_000).await;
    let mut seen: Vec<u8> =
        data.chunks(1000).map(|c| c.iter().all(|x| *x == c[0]).then_some(c[0]).expect("one append's bytes stay together")).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=20).collect::<Vec<u8>>());
}

#[tokio::test]
async fn overlapping_direct_writes_keep_their_order_of_arrival() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![9; 10_000]).await;
    let hold = rig.fake.hold(Point::Write);
    let mut tasks = Vec::new();
    for (i, offset) in [(1u8, 0u64), (2, 2048), (3, 1024)] {
        let args = WriteArgs { direct: true, ..m.args(f, offset, vec![i; 4096]) };
        let vfs = m.vfs.clone();
        tasks.push(tokio::spawn(async move { vfs.write(args).await }));
        soon(rig.fake.parked(Point::Write, i as usize + 1)).await;
    }
    let want = [vec![1; 1024], vec![3; 4096], vec![2; 1024], vec![9; 10_000 - 6144]].concat();
    assert_eq!(m.get(f, 0, 20_000).await, want, "what is on its way is read");
    drop(hold);
    for t in tasks {
        soon(t).await.unwrap().unwrap();
    }
    assert_eq!(m.get(f, 0, 20_000).await, want);
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(m.get(f, 0, 20_000).await, want);
}

#[tokio::test]
async fn a_truncated_tail_reads_zero_when_the_file_grows_again_from_every_layer() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    for stage in 0..4 {
        let f = m.file(&format!("f{stage}")).await;
        match stage {
            0 => m.put(f, 0, vec![1; 9000]).await,
            1 => m.put_direct(f, 0, vec![1; 9000]).await,
            _ => {
                m.put(f, 0, vec![1; 9000]).await;
                m.fsync(f.1, false).await.unwrap();
                if stage == 3 {
                    m.get(f, 0, 1).await;
                }
            }
        }
        m.resize(f.0, 3000).await;
        assert_eq!(m.size(f.0).await, 3000);
        m.resize(f.0, 9000).await;
        let want = [vec![1; 3000], vec![0; 6000]].concat();
        assert_eq!(m.get(f, 0, 10_000).await, want, "stage {stage}");
        m.put(f, 8000, vec![2; 10]).await;
        m.fsync(f.1, false).await.unwrap();
        assert_eq!(m.get(f, 7990, 30).await, [vec![0; 10], vec![2; 10], vec![0; 10]].concat());
    }
}

#[tokio::test]
async fn a_size_is_published_only_as_far_as_the_data_before_it_is_written() {
    let rig = Rig::new().await;
    let config = holdfast_fs_vfs::Config { pending_extents_max: 0, ..Default::default() };
    let m = rig.mount_with(64 << 20, config.clone(), true).await;
    let f = m.file("f").await;
    m.put(f, 8192, vec![1; 4096]).await;
    m.put_direct(f, 0, vec![2; 4096]).await;
    assert_eq!(m.size(f.0).await, 12_288);
    soon(async {
        while m.metrics().vfs_extents_published.get() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(m);
    rig.fake.crash();
    let m = rig.mount_with(64 << 20, config, true).await;
    assert_eq!(m.all(m.find(ROOT, "f").await.unwrap().attr.node).await, [2; 4096], "no zeroes where data was never written");
}

#[tokio::test]
async fn synchronous_writes_are_published_when_they_return() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.make(ROOT, "f", libc::O_RDWR | libc::O_DSYNC).await;
    m.put(f, 0, vec![1; 100]).await;
    assert_eq!(m.metrics().vfs_publishes.get(), 1);
    let g = m.file("g").await;
    let args = WriteArgs { sync: true, direct: true, ..m.args(g, 0, vec![1; 4096]) };
    m.write(args).await.unwrap();
    assert_eq!(m.metrics().vfs_publishes.get(), 2);
    assert!(rig.fake.stripes().iter().all(|s| rig.fake.flushed(s.id) == Some(true)));
}

#[tokio::test]
async fn an_unlinked_file_lives_until_its_last_handle_goes() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 5000]).await;
    m.fsync(f.1, false).await.unwrap();
    m.put(f, 5000, vec![2; 5000]).await;
    m.unlink(ROOT, name("f")).await.unwrap();
    assert!(m.find(ROOT, "f").await.is_none());
    assert_eq!(m.getattr(f.0, Some(f.1)).await.unwrap().attr.nlink, 0);
    m.put(f, 10_000, vec![3; 10]).await;
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(m.get(f, 4999, 6000).await, [vec![1; 1], vec![2; 5000], vec![3; 10]].concat());
    m.put(f, 0, vec![4; 10]).await;
    m.release(f.1);
    m.forget(&[(f.0, 1)]);
    soon(async {
        while m.dirty_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    rig.collect().await;
    rig.left(0).await;
}

#[tokio::test]
async fn a_file_renamed_over_stays_readable_through_its_handle() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let (old, new) = (m.file("old").await, m.file("new").await);
    m.put(old, 0, vec![1; 100]).await;
    m.put(new, 0, vec![2; 100]).await;
    let args = holdfast_fs_vfs::RenameArgs { parent: ROOT, name: name("new"), new_parent: ROOT, new_name: name("old"), flags: 0 };
    m.rename(args).await.unwrap();
    rig.collect().await;
    assert_eq!(m.get(old, 0, 200).await, [1; 100]);
    assert_eq!(m.find(ROOT, "old").await.unwrap().attr.node, new.0);
    assert_eq!(m.getattr(old.0, None).await.unwrap().attr.nlink, 0);
}

#[tokio::test]
async fn suid_goes_with_a_write_a_truncation_and_a_change_of_owner() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let mode = |m: u32| SetAttrArgs { mode: Some(m), ..Default::default() };
    let now = async || m.getattr(f.0, None).await.unwrap().attr.mode;
    m.setattr(WHO, f.0, mode(0o6755)).await.unwrap();
    m.write(WriteArgs { kill_suidgid: true, ..m.args(f, 0, vec![1; 10]) }).await.unwrap();
    assert_eq!(now().await, 0o755);
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(now().await, 0o755);
    m.setattr(WHO, f.0, mode(0o4755)).await.unwrap();
    m.put(f, 0, vec![1; 10]).await;
    assert_eq!(now().await, 0o4755, "a privileged write keeps it");
    m.setattr(WHO, f.0, SetAttrArgs { size: Some(1), kill_suidgid: true, ..Default::default() }).await.unwrap();
    assert_eq!(now().await, 0o755);
    m.setattr(WHO, f.0, mode(0o2745)).await.unwrap();
    m.setattr(WHO, f.0, SetAttrArgs { uid: Some(5), ..Default::default() }).await.unwrap();
    assert_eq!(now().await, 0o2745, "sgid without group execute is a lock mode");
    m.setattr(WHO, f.0, mode(0o6775)).await.unwrap();
    m.setattr(WHO, f.0, SetAttrArgs { gid: Some(5), ..Default::default() }).await.unwrap();
    assert_eq!(now().await, 0o775);
}

#[tokio::test]
async fn times_that_were_set_survive_later_publishes_of_older_data() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 10]).await;
    let set = SetAttrArgs { mtime: Some(SetTime::At(12_345)), atime: Some(SetTime::At(1)), ..Default::default() };
    m.setattr(WHO, f.0, set).await.unwrap();
    m.fsync(f.1, false).await.unwrap();
    let attr = m.getattr(f.0, None).await.unwrap().attr;
    assert_eq!((attr.mtime, attr.atime, attr.size), (12_345, 1, 10));
    drop(m);
    let m = rig.mount().await;
    assert_eq!(m.find(ROOT, "f").await.unwrap().attr.mtime, 12_345);
}

#[tokio::test]
async fn holes_and_data_are_found_through_all_layers() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let (mib, chunk) = (1u64 << 20, 4u64 << 20);
    m.put(f, mib, vec![1; 4096]).await;
    m.fsync(f.1, false).await.unwrap();
    m.put_direct(f, 2 * chunk, vec![1; 4096]).await;
    m.put(f, 5 * chunk, vec![1; 10]).await;
    m.resize(f.0, 9 * chunk).await;
    let data = async |o| m.lseek(f.1, o, Seek::Data).await;
    let hole = async |o| m.lseek(f.1, o, Seek::Hole).await;
    assert_eq!(data(0).await, Ok(mib));
    assert_eq!(hole(mib + 5).await, Ok(mib + 4096));
    assert_eq!(data(mib + 4096).await, Ok(2 * chunk));
    assert_eq!(data(2 * chunk + 4096).await, Ok(5 * chunk));
    assert_eq!(hole(5 * chunk).await, Ok(5 * chunk + 10));
    assert_eq!(data(6 * chunk).await, Err(Error::NoSuchOffset));
    assert_eq!(hole(8 * chunk).await, Ok(8 * chunk));
    assert_eq!(hole(9 * chunk).await, Err(Error::NoSuchOffset));
}

#[tokio::test]
async fn o_trunc_empties_and_wrong_uses_of_handles_are_refused() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    let w = m.open(f.0, OpenFlags { flags: libc::O_WRONLY | libc::O_TRUNC, kill_suidgid: false }).await.unwrap().handle;
    assert_eq!(m.size(f.0).await, 0);
    assert_eq!(m.try_get((f.0, w), 0, 1).await, Err(Error::BadHandle));
    let r = m.open_as(f.0, libc::O_RDONLY).await;
    assert_eq!(m.write(m.args((f.0, r), 0, vec![1])).await, Err(Error::BadHandle));
    assert_eq!(m.write(m.args((f.0, w), 1 << 62, vec![1])).await, Err(Error::FileTooLarge));
    assert_eq!(m.write(m.args((f.0, w), 0, Bytes::new())).await, Ok(0));
    assert_eq!(m.fallocate(w, 0, 0, 10).await, Err(Error::NotSupported));
    assert_eq!(m.size(f.0).await, 0);
}

#[tokio::test]
async fn blocks_count_what_is_written_before_it_is_published() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 8192]).await;
    assert_eq!(m.getattr(f.0, None).await.unwrap().attr.blocks, 16);
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(m.getattr(f.0, None).await.unwrap().attr.blocks, 16);
}

#[tokio::test]
async fn what_a_truncation_cut_off_does_not_come_back_with_a_map_read_meanwhile() {
    let rig = Rig::new().await;
    let (m, slow) = rig.mount_slow().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 10_000]).await;
    m.fsync(f.1, false).await.unwrap();
    // So that nothing is known of the map.
    soon(rig.admin.getattr(holdfast_objstore_proto::InodeId(f.0.0))).await.unwrap();
    m.put(f, 0, vec![1; 1]).await;
    slow.shut(At::Truncate);
    let vfs = m.vfs.clone();
    let cut = tokio::spawn(async move {
        let to = SetAttrArgs { size: Some(5000), ..Default::default() };
        vfs.setattr(WHO, f.0, to).await
    });
    slow.parked(At::Truncate).await;
    assert_eq!(m.get(f, 0, 10_000).await, [1; 5000]);
    slow.open(At::Truncate);
    soon(cut).await.unwrap().unwrap();
    m.resize(f.0, 10_000).await;
    assert_eq!(m.get(f, 0, 10_000).await, [vec![1; 5000], vec![0; 5000]].concat());
}
