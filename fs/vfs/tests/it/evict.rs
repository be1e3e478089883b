//! The end of a session that did not end in order.

use crate::rig::*;
use holdfast_fs_vfs::{Error, ROOT, Vfs};
use holdfast_objstore_proto::{InodeId, SessionId};

/// The session that holds the root.
async fn session_of(rig: &Rig, m: &Vfs) -> SessionId {
    m.getattr(ROOT, None).await.unwrap();
    rig.local.holder(rig.root).expect("the root is held")
}

#[tokio::test]
async fn an_eviction_drops_dirty_data_and_every_affected_handle_says_so_once() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let (f, clean) = (m.file("f").await, m.file("clean").await);
    m.put(f, 0, vec![1; 100]).await;
    m.put(clean, 0, vec![1; 100]).await;
    m.fsync(f.1, false).await.unwrap();
    m.fsync(clean.1, false).await.unwrap();
    let second = m.open_as(f.0, libc::O_RDWR).await;
    m.put(f, 0, vec![2; 50]).await;
    m.put_direct(f, 50, vec![2; 50]).await;
    let session = session_of(&rig, &m).await;
    m.kernel.notes.lock().clear();
    rig.local.evict(session);
    assert_eq!(soon(m.fsync(f.1, false)).await, Err(Error::Io));
    assert_eq!(soon(m.fsync(f.1, false)).await, Ok(()));
    assert_eq!(m.flush(second).await, Err(Error::Io));
    assert_eq!(m.flush(second).await, Ok(()));
    assert_eq!(m.flush(clean.1).await, Ok(()), "nothing of it was lost");
    assert_eq!(m.get(f, 0, 200).await, [1; 100], "back to what was synced");
    assert!(m.kernel.notes.lock().contains(&Note::Inode(f.0, 0, 0)), "the kernel's caches went");
    assert_eq!(m.dirty_bytes(), 0);
    m.put(f, 0, vec![3; 10]).await;
    m.fsync(f.1, false).await.unwrap();
    assert_eq!(m.get(f, 0, 11).await, [vec![3; 10], vec![1]].concat());
    m.mkdir(ROOT, "after").await;
    assert_eq!(m.metrics().vfs_evictions.get(), 1);
}

#[tokio::test]
async fn an_unlinked_file_does_not_survive_its_sessions_end() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    m.fsync(f.1, false).await.unwrap();
    m.unlink(ROOT, name("f")).await.unwrap();
    let session = session_of(&rig, &m).await;
    rig.local.evict(session);
    soon(async { while m.find(ROOT, "f").await.is_some() {} }).await;
    assert!(m.try_get(f, 0, 10).await.is_err());
    assert_eq!(m.flush(f.1).await, Err(Error::Stale));
    m.release(f.1);
    m.file("f").await;
}

#[tokio::test]
async fn an_eviction_found_out_by_a_refused_command_counts_too() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["vfs.publish_failed"]);
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    let hold = rig.fake.hold(holdfast_objstore_client::fake::Point::Flush);
    let sync = tokio::spawn({
        let vfs = m.vfs.clone();
        async move { vfs.fsync(f.1, false).await }
    });
    soon(rig.fake.parked(holdfast_objstore_client::fake::Point::Flush, 1)).await;
    let session = session_of(&rig, &m).await;
    rig.local.evict(session);
    drop(hold);
    assert_eq!(soon(sync).await.unwrap(), Err(Error::Io));
    assert_eq!(soon(m.fsync(f.1, false)).await, Ok(()), "once");
    assert_eq!(m.size(f.0).await, 0);
}

#[tokio::test]
async fn shutdown_publishes_everything_and_ends_the_session() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    soon(m.shutdown()).await.unwrap();
    assert_eq!(rig.admin.getattr(InodeId(f.0.0)).await.unwrap().0.size, 100);
    assert!(rig.local.holder(InodeId(f.0.0)).is_none());
    let again = rig.mount().await;
    assert_eq!(again.all(again.find(ROOT, "f").await.unwrap().attr.node).await, [1; 100]);
}

#[tokio::test]
async fn sync_all_drains_every_inode() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let mut files = Vec::new();
    for i in 0..50u8 {
        let f = m.file(&format!("f{i}")).await;
        m.put(f, 0, vec![i; 1000]).await;
        files.push(f);
    }
    soon(m.sync_all()).await.unwrap();
    assert_eq!(m.dirty_bytes(), 0);
    drop(m);
    rig.fake.crash();
    let m = rig.mount().await;
    for i in 0..50u8 {
        assert_eq!(m.all(m.find(ROOT, &format!("f{i}")).await.unwrap().attr.node).await, [i; 1000]);
    }
}

#[tokio::test]
async fn a_recall_that_outlives_its_session_leaves_the_next_one_alone() {
    let rig = Rig::new().await;
    let (m, _slow) = rig.mount_slow().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    m.fsync(f.1, false).await.unwrap();
    let session = session_of(&rig, &m).await;
    // The kernel takes its time over the first invalidation of the file.
    let go = tokio::sync::watch::Sender::new(false);
    let receiver = go.subscribe();
    let stuck = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = stuck.clone();
    *m.kernel.hook.lock() = Some(Box::new(move |node, _| {
        let mut receiver = receiver.clone();
        (node == f.0 && count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0).then(|| {
            Box::pin(async move {
                receiver.wait_for(|go| *go).await.unwrap();
            }) as _
        })
    }));
    let ask = tokio::spawn({
        let admin = rig.admin.clone();
        async move { admin.getattr(InodeId(f.0.0)).await.unwrap().0.size }
    });
    soon(async {
        while stuck.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    rig.local.evict(session);
    assert_eq!(soon(ask).await.unwrap(), 100);
    m.put(f, 100, vec![2; 100]).await;
    m.put_direct(f, 200, vec![3; 100]).await;
    go.send(true).unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(m.get(f, 0, 1000).await, [vec![1; 100], vec![2; 100], vec![3; 100]].concat());
    soon(m.fsync(f.1, false)).await.unwrap();
    assert_eq!(soon(rig.admin.getattr(InodeId(f.0.0))).await.unwrap().0.size, 300);
}

#[tokio::test]
async fn a_handle_closed_while_the_mount_reconnects_is_closed_in_the_new_session() {
    let rig = Rig::new().await;
    let (m, slow) = rig.mount_slow().await;
    let (f, g) = (m.file("f").await, m.file("g").await);
    for f in [f, g] {
        m.put(f, 0, vec![1; 100]).await;
        m.fsync(f.1, false).await.unwrap();
    }
    let session = session_of(&rig, &m).await;
    slow.shut(At::Opened);
    rig.local.evict(session);
    slow.parked(At::Opened).await;
    m.release(f.1);
    slow.open(At::Opened);
    m.unlink(ROOT, name("f")).await.unwrap();
    m.unlink(ROOT, name("g")).await.unwrap();
    m.forget(&[(f.0, 1)]);
    assert_eq!(m.get(g, 0, 1000).await, [1; 100], "this one is still open");
    soon(async {
        while rig.admin.getattr(InodeId(f.0.0)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(rig.admin.getattr(InodeId(g.0.0)).await.is_ok());
    m.release(g.1);
    m.forget(&[(g.0, 1)]);
    soon(async {
        while rig.admin.getattr(InodeId(g.0.0)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
