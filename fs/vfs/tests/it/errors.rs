//! Failures of the object cluster and what handles hear of them.

use crate::rig::*;
use holdfast_fs_vfs::{Config, Error, ROOT, WriteArgs};
use holdfast_objstore_client::Error as Fault;
use holdfast_objstore_client::fake::Point;
use std::time::Duration;

#[tokio::test]
async fn a_write_error_is_reported_exactly_once_per_handle() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let a = m.file("f").await;
    let b = (a.0, m.open_as(a.0, libc::O_RDWR).await);
    let other = m.file("g").await;
    m.put(a, 0, vec![1; 100]).await;
    rig.fake.fail_next(Point::Write, Fault::Full);
    assert_eq!(m.fsync(a.1, false).await, Err(Error::NoSpace));
    assert_eq!(m.fsync(a.1, false).await, Ok(()), "once");
    assert_eq!(m.flush(a.1).await, Ok(()));
    assert_eq!(m.flush(b.1).await, Err(Error::NoSpace), "each handle hears of it");
    assert_eq!(m.flush(b.1).await, Ok(()));
    assert_eq!(m.flush(other.1).await, Ok(()));
    assert_eq!(m.get(a, 0, 200).await, [0; 100], "what could not be written is dropped");
    m.put(a, 0, vec![2; 100]).await;
    assert_eq!(m.fsync(a.1, false).await, Ok(()), "and the file works on");
    assert_eq!(m.get(a, 0, 200).await, [2; 100]);
}

#[tokio::test]
async fn an_error_of_the_background_comes_at_the_next_write_or_close() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    rig.fake.fail_next(Point::Write, Fault::Full);
    rig.clock.advance(6_000_000_000);
    soon(m.tick()).await;
    assert_eq!(m.write(m.args(f, 0, vec![1])).await, Err(Error::NoSpace));
    assert_eq!(m.write(m.args(f, 0, vec![1])).await, Ok(1));
    m.release(f.1);
    // Nobody has it open: the next to open hears of it.
    rig.fake.fail_next(Point::Write, Fault::Full);
    rig.clock.advance(6_000_000_000);
    soon(m.tick()).await;
    let h = m.open_as(f.0, libc::O_RDWR).await;
    assert_eq!(m.flush(h).await, Err(Error::NoSpace));
    let h = m.open_as(f.0, libc::O_RDWR).await;
    assert_eq!(m.flush(h).await, Ok(()));
}

#[tokio::test]
async fn a_direct_write_that_fails_says_so_itself_and_changes_nothing() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put_direct(f, 0, vec![1; 4096]).await;
    m.fsync(f.1, false).await.unwrap();
    rig.fake.fail_next(Point::Write, Fault::Full);
    let args = WriteArgs { direct: true, ..m.args(f, 0, vec![2; 8192]) };
    assert_eq!(m.write(args).await, Err(Error::NoSpace));
    assert_eq!(m.get(f, 0, 10_000).await, [1; 4096]);
    assert_eq!(m.fsync(f.1, false).await, Ok(()));
}

#[tokio::test]
async fn a_write_without_room_is_made_again_once_what_it_overwrites_was_let_go() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put_direct(f, 0, vec![1; 8192]).await;
    let before = m.metrics().vfs_publishes.get();
    rig.fake.fail_next(Point::Write, Fault::Full);
    m.put_direct(f, 0, vec![2; 8192]).await;
    assert_eq!(m.metrics().vfs_publishes.get(), before + 1, "what had landed was published for it");
    assert_eq!(m.get(f, 0, 8192).await, [2; 8192]);
}

#[tokio::test]
async fn a_failed_append_leaves_no_hole() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.make(ROOT, "f", libc::O_RDWR | libc::O_APPEND).await;
    rig.fake.fail_next(Point::Write, Fault::Full);
    let args = WriteArgs { direct: true, ..m.args(f, 0, vec![2; 4096]) };
    assert_eq!(m.write(args).await, Err(Error::NoSpace));
    m.put(f, 77, vec![1; 10]).await;
    assert_eq!(m.get(f, 0, 100).await, [1; 10]);
}

#[tokio::test]
async fn a_failed_flush_loses_what_it_was_for_and_says_so() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    m.fsync(f.1, false).await.unwrap();
    m.put(f, 0, vec![2; 50]).await;
    let down = || Fault::Unavailable { up: 0, need: 6 };
    rig.fake.fail_next(Point::Flush, down());
    rig.fake.fail_next(Point::Flush, down());
    assert_eq!(m.fsync(f.1, false).await, Err(Error::Io));
    assert_eq!(m.fsync(f.1, false).await, Ok(()));
    assert_eq!(m.get(f, 0, 100).await, [1; 100]);
    // One bad stripe among good ones takes only itself.
    m.put_direct(f, 0, vec![3; 50]).await;
    m.put_direct(f, 50, vec![4; 50]).await;
    rig.fake.fail_next(Point::Flush, down());
    rig.fake.fail_next(Point::Flush, down());
    assert_eq!(m.fsync(f.1, false).await, Err(Error::Io));
    assert_eq!(m.get(f, 0, 100).await, [vec![1; 50], vec![4; 50]].concat());
}

#[tokio::test]
async fn writes_wait_for_osds_and_then_give_up() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["vfs.write_unavailable"]);
    let rig = Rig::new().await;
    let config = Config { unavailable_wait: Duration::from_secs(30), ..Config::default() };
    let m = rig.mount_with(64 << 20, config, true).await;
    let f = m.file("f").await;
    rig.fake.set_up(1);
    let write = tokio::spawn({
        let (vfs, args) = (m.vfs.clone(), WriteArgs { direct: true, ..m.args(f, 0, vec![1; 4096]) });
        async move { vfs.write(args).await }
    });
    tokio::task::yield_now().await;
    rig.fake.set_up(6);
    assert_eq!(soon(write).await.unwrap(), Ok(4096));
    rig.fake.set_up(1);
    let write = tokio::spawn({
        let (vfs, args) = (m.vfs.clone(), WriteArgs { direct: true, ..m.args(f, 0, vec![2; 4096]) });
        async move { vfs.write(args).await }
    });
    tokio::task::yield_now().await;
    rig.clock.advance(31_000_000_000);
    assert_eq!(soon(write).await.unwrap(), Err(Error::Io));
    rig.fake.set_up(6);
    assert_eq!(m.get(f, 0, 4096).await, [1; 4096]);
}

#[tokio::test]
async fn a_stripe_that_went_away_makes_the_map_be_read_again_once() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["vfs.read_again"]);
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 4096]).await;
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(m.get(f, 0, 10).await, [1; 10]);
    let reads = m.metrics().vfs_map_reads.get();
    rig.fake.fail_next(Point::Read, Fault::Gone { stripe: rig.fake.stripes()[0].id });
    assert_eq!(m.get(f, 0, 10).await, [1; 10]);
    assert_eq!(m.metrics().vfs_map_reads.get(), reads + 1);
    for _ in 0..2 {
        rig.fake.fail_next(Point::Read, Fault::Gone { stripe: rig.fake.stripes()[0].id });
    }
    assert_eq!(m.try_get(f, 0, 10).await, Err(Error::Io));
    rig.fake.lose(rig.fake.stripes()[0].id);
    assert_eq!(m.try_get(f, 0, 10).await, Err(Error::Io));
}

#[tokio::test]
async fn a_read_dropped_half_way_does_not_hold_up_a_recall() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 4096]).await;
    m.fsync(f.1, false).await.unwrap();
    let hold = rig.fake.hold(Point::Read);
    let read = tokio::spawn({
        let vfs = m.vfs.clone();
        async move { vfs.read(holdfast_fs_vfs::ReadArgs { node: f.0, handle: f.1, offset: 0, len: 10 }).await }
    });
    soon(rig.fake.parked(Point::Read, 1)).await;
    read.abort();
    let _ = read.await;
    let write_hold = rig.fake.hold(Point::Write);
    let write = tokio::spawn({
        let (vfs, args) = (m.vfs.clone(), WriteArgs { direct: true, ..m.args(f, 0, vec![1; 4096]) });
        async move { vfs.write(args).await }
    });
    soon(rig.fake.parked(Point::Write, 1)).await;
    write.abort();
    let _ = write.await;
    drop((hold, write_hold));
    assert_eq!(soon(rig.admin.getattr(holdfast_objstore_proto::InodeId(f.0.0))).await.unwrap().0.size, 4096);
}

#[tokio::test]
async fn what_a_dropped_sync_had_begun_to_write_is_written() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    // More stripes than may be in flight at once, as runs that are not contiguous.
    for i in 0..20u64 {
        m.put(f, i * (8 << 20), vec![1; 2 << 20]).await;
    }
    let hold = rig.fake.hold(Point::Write);
    let sync = tokio::spawn({
        let vfs = m.vfs.clone();
        async move { vfs.fsync(f.1, false).await }
    });
    soon(rig.fake.parked(Point::Write, Config::default().stripes_in_flight_max)).await;
    sync.abort();
    let _ = sync.await;
    drop(hold);
    assert_eq!(soon(m.sync_all()).await, Ok(()));
    assert_eq!((m.dirty_bytes(), m.flush(f.1).await), (0, Ok(())));
    assert_eq!(m.metrics().vfs_extents_published.get(), 20);
    for i in 0..20u64 {
        assert_eq!(m.get(f, i * (8 << 20), 2 << 20).await, vec![1; 2 << 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_gets_nothing_done_gives_up() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["vfs.sync_stalled"]);
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    let _hold = rig.fake.hold(Point::Write);
    let drained = tokio::time::timeout(Duration::from_secs(200), m.shutdown()).await;
    assert_eq!(drained.expect("it gives up"), Err(Error::Io));
}
