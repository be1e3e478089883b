//! Several sessions: caching mounts, and a gateway that caches nothing.

use crate::rig::*;
use bytes::Bytes;
use holdfast_fs_vfs::{Config, LookupReply, OpenFlags, ROOT, ReadArgs, WriteArgs};
use holdfast_meta_client::{Grant, MetaService, NoEvents, Use};
use holdfast_objstore_client::Objects;
use holdfast_objstore_client::StripeWrite;
use holdfast_objstore_client::fake::Point;
use holdfast_objstore_proto::meta::{AttrChange, Command, Condition, Extent, MetaError, Owner, PutObject, Reply};
use holdfast_objstore_proto::{Code, InodeId};
use std::sync::Arc;

impl Rig {
    /// The whole of a file as a gateway would read it.
    async fn gateway_read(&self, ino: InodeId) -> Vec<u8> {
        let (attr, _) = soon(self.admin.getattr(ino)).await.unwrap();
        let mut out = vec![0; attr.size as usize];
        for e in soon(self.admin.extents(ino, 0..8)).await.unwrap() {
            let end = (e.offset + e.len as u64).min(attr.size);
            let range = e.stripe_offset..e.stripe_offset + (end - e.offset) as u32;
            let data = match &e.inline {
                Some(data) => data[range.start as usize..range.end as usize].to_vec(),
                None => self.fake.read(&e.stripe, range).await.unwrap().concat(),
            };
            out[e.offset as usize..end as usize].copy_from_slice(&data);
        }
        out
    }

    /// A PUT, as a gateway does it.
    async fn gateway_put(&self, key: &str, data: Vec<u8>) -> InodeId {
        let Reply::Stripes(range) = self.admin.submit(Command::GrantStripes { count: 1 }).await.unwrap() else { panic!("ids") };
        let Reply::Inodes(inodes) = self.admin.submit(Command::GrantInodes { count: 1 }).await.unwrap() else { panic!("ids") };
        let (session, epoch) = self.admin.session();
        let len = data.len() as u32;
        let write = StripeWrite {
            id: range.first,
            code: Code::new(4, 2),
            data: vec![Bytes::from(data)],
            session,
            epoch,
            hint: Default::default(),
            background: false,
        };
        let stripe = self.fake.write(write).await.unwrap();
        let stripes = self.fake.flush(vec![stripe]).await.unwrap();
        let put = PutObject {
            bucket: self.bucket,
            key: name(key),
            ino: inodes.first,
            size: len as u64,
            extents: vec![Extent { offset: 0, len, stripe: range.first, stripe_offset: 0 }],
            stripes,
            inline: Vec::new(),
            info: Default::default(),
            owner: Owner { uid: 0, gid: 0 },
            condition: Condition::default(),
            copy_from: None,
        };
        match soon(self.admin.submit(Command::PutObject(put))).await.unwrap() {
            Reply::Put { attr, .. } => attr.ino,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_foreign_stat_and_read_see_buffered_writes() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let ino = InodeId(f.0.0);
    m.put(f, 0, vec![1; 5000]).await;
    m.put_direct(f, 8192, vec![2; 4096]).await;
    assert_eq!(soon(rig.admin.getattr(ino)).await.unwrap().0.size, 12_288);
    assert_eq!(rig.gateway_read(ino).await, [vec![1; 5000], vec![0; 3192], vec![2; 4096]].concat());
    let notes = m.kernel.notes.lock().clone();
    assert!(notes.contains(&Note::Inode(f.0, 0, 0)), "the kernel's pages went before the answer");
    assert_eq!(notes.last(), Some(&Note::Inode(f.0, -1, 0)), "and its attributes after it");
    m.put(f, 0, vec![3; 10]).await;
    assert_eq!(rig.gateway_read(ino).await[..11], [vec![3; 10], vec![1]].concat());
}

#[tokio::test]
async fn a_put_is_seen_by_name_at_once_and_the_old_file_stays_open() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    let LookupReply::Absent { .. } = m.lookup(WHO, ROOT, name("new")).await.unwrap() else { panic!("absent") };
    m.kernel.notes.lock().clear();
    rig.gateway_put("f", vec![9; 50]).await;
    let ino = rig.gateway_put("new", vec![8; 60]).await;
    assert!(m.kernel.notes.lock().contains(&Note::Epoch), "names went from the kernel");
    let now = m.find(ROOT, "f").await.unwrap().attr;
    assert_ne!(now.node, f.0);
    assert_eq!(m.all(now.node).await, [9; 50]);
    assert_eq!(m.get(f, 0, 200).await, [1; 100], "the old one is still open");
    let new = m.find(ROOT, "new").await.unwrap().attr;
    assert_eq!((new.node.0, new.size), (ino.0, 60));
}

#[tokio::test]
async fn without_epochs_each_remembered_name_is_taken_out() {
    let rig = Rig::new().await;
    let m = rig.mount_with(64 << 20, Config::default(), false).await;
    m.file("f").await;
    assert!(m.find(ROOT, "f").await.is_some() && m.find(ROOT, "absent").await.is_none());
    rig.gateway_put("other", vec![1; 5]).await;
    let notes = m.kernel.notes.lock().clone();
    for n in ["f", "absent", "other"] {
        assert!(notes.contains(&Note::Entry(ROOT, name(n))), "{n}");
    }
}

#[tokio::test]
async fn two_mounts_see_each_others_writes_and_names() {
    let rig = Rig::new().await;
    let (a, b) = (rig.mount().await, rig.mount().await);
    let fa = a.file("f").await;
    a.put(fa, 0, vec![1; 6000]).await;
    let e = b.find(ROOT, "f").await.unwrap();
    assert_eq!(e.attr.size, 6000);
    let fb = (e.attr.node, b.open_as(e.attr.node, libc::O_RDWR).await);
    for round in 0..20u8 {
        let (w, fw, r, fr) = if round % 2 == 0 { (&a, fa, &b, fb) } else { (&b, fb, &a, fa) };
        let at = round as u64 * 100;
        if round % 3 == 0 {
            w.put_direct(fw, at, vec![round; 300]).await;
        } else {
            w.put(fw, at, vec![round; 300]).await;
        }
        assert_eq!(r.get(fr, at, 300).await, [round; 300], "round {round}");
        assert_eq!(r.size(fr.0).await, 6000);
    }
    soon(a.unlink(ROOT, name("f"))).await.unwrap();
    assert!(b.find(ROOT, "f").await.is_none());
    assert_eq!(b.get(fb, 1900, 300).await, [19; 300]);
}

#[tokio::test]
async fn appends_of_two_mounts_never_overlap() {
    let rig = Rig::new().await;
    let (a, b) = (rig.mount().await, rig.mount().await);
    let fa = a.make(ROOT, "log", libc::O_WRONLY | libc::O_APPEND).await;
    let node = b.find(ROOT, "log").await.unwrap().attr.node;
    let fb = (node, b.open_as(node, libc::O_RDWR | libc::O_APPEND).await);
    let writers = [(a.vfs.clone(), fa, 1u8), (b.vfs.clone(), fb, 101)].map(|(vfs, (node, handle), first)| {
        tokio::spawn(async move {
            for i in 0..50 {
                let data = Bytes::from(vec![first + i; 100]);
                let args = WriteArgs {
                    node,
                    handle,
                    offset: 0,
                    data,
                    direct: i % 4 == 0,
                    sync: i % 7 == 0,
                    kill_suidgid: false,
                    from_cache: false,
                };
                assert_eq!(vfs.write(args).await, Ok(100));
                tokio::task::yield_now().await;
            }
        })
    });
    for w in writers {
        soon(w).await.unwrap();
    }
    let data = b.get(fb, 0, 20_000).await;
    let mut seen: Vec<u8> = data.chunks(100).map(|c| c.iter().all(|x| *x == c[0]).then_some(c[0]).expect("whole")).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=50).chain(101..=150).collect::<Vec<u8>>());
}

#[tokio::test]
async fn while_two_look_at_one_directory_nobody_may_keep_names() {
    let rig = Rig::new().await;
    let (a, b) = (rig.mount().await, rig.mount().await);
    a.file("f").await;
    assert!(!a.find(ROOT, "f").await.unwrap().entry_valid.is_zero());
    let e = b.find(ROOT, "f").await.unwrap();
    assert!(e.entry_valid.is_zero(), "the other holds the directory");
    b.file("g").await;
    assert!(a.find(ROOT, "g").await.is_some());
}

#[tokio::test]
async fn a_mapped_page_pushed_out_by_a_recall_is_taken_in_and_published() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 8192]).await;
    let vfs = m.vfs.clone();
    let first = std::sync::atomic::AtomicBool::new(true);
    *m.kernel.hook.lock() = Some(Box::new(move |node, offset| {
        if offset < 0 || !first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return None;
        }
        let vfs = vfs.clone();
        Some(Box::pin(async move {
            // The kernel waits for the write-back of the page, and a reader of another page waits for its own lock.
            let push = WriteArgs {
                node,
                handle: f.1,
                offset: 4096,
                data: vec![7; 4096].into(),
                direct: false,
                sync: false,
                kill_suidgid: false,
                from_cache: true,
            };
            soon(vfs.write(push)).await.unwrap();
            let read = soon(vfs.read(ReadArgs { node, handle: f.1, offset: 0, len: 8192 })).await.unwrap().concat();
            assert_eq!(read, [vec![1; 4096], vec![7; 4096]].concat());
            assert!(soon(vfs.getattr(node, None)).await.unwrap().attr_valid.is_zero(), "nothing may be kept during a recall");
        }))
    }));
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await, [vec![1; 4096], vec![7; 4096]].concat());
    *m.kernel.hook.lock() = None;
    let again = m.kernel.notes.lock().iter().filter(|n| matches!(n, Note::Inode(node, o, _) if *node == f.0 && *o >= 0)).count();
    assert!(again >= 2, "what was read during the recall was taken out again");
}

#[tokio::test]
async fn a_page_read_through_a_writable_handle_is_recalled_by_a_foreign_read() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 4096]).await;
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await, [1; 4096]);
    // A mapping faults the page in, and the kernel lets it be dirtied without asking.
    assert_eq!(m.get(f, 0, 4096).await, [1; 4096]);
    let vfs = m.vfs.clone();
    *m.kernel.hook.lock() = Some(Box::new(move |node, offset| {
        let vfs = vfs.clone();
        let push = WriteArgs {
            node,
            handle: f.1,
            offset: 0,
            data: vec![2; 4096].into(),
            direct: false,
            sync: false,
            kill_suidgid: false,
            from_cache: true,
        };
        (offset >= 0).then(|| Box::pin(async move { assert_eq!(soon(vfs.write(push)).await, Ok(4096)) }) as _)
    }));
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await, [2; 4096]);
}

#[tokio::test]
async fn writers_wait_for_the_end_of_a_recall_and_pages_the_kernel_writes_back_do_not() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 4096]).await;
    let hold = rig.fake.hold(Point::Write);
    let reader = tokio::spawn({
        let (local, admin) = (rig.local.clone(), rig.admin.clone());
        async move {
            let _keep = local;
            admin.getattr(InodeId(f.0.0)).await.unwrap().0.size
        }
    });
    soon(rig.fake.parked(Point::Write, 1)).await;
    let writes = [true, false].map(|direct| {
        let (vfs, args) = (m.vfs.clone(), WriteArgs { direct, ..m.args(f, 8192 + 4096 * direct as u64, vec![3; 4096]) });
        tokio::spawn(async move { vfs.write(args).await })
    });
    let push = WriteArgs { from_cache: true, ..m.args(f, 4096, vec![2; 4096]) };
    assert_eq!(soon(m.write(push)).await, Ok(4096));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(writes.iter().all(|w| !w.is_finished()), "nothing becomes dirty that the recall would have to write");
    assert_eq!(m.get(f, 0, 4096).await, [1; 4096], "readers go on");
    drop(hold);
    assert_eq!(soon(reader).await.unwrap(), 8192);
    for w in writes {
        soon(w).await.unwrap().unwrap();
    }
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await, [vec![1; 4096], vec![2; 4096], vec![3; 8192]].concat());
}

#[tokio::test]
async fn a_busy_reader_does_not_hold_up_a_recall() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 8192]).await;
    // A kernel in which every invalidation is followed by another read.
    let vfs = m.vfs.clone();
    *m.kernel.hook.lock() = Some(Box::new(move |node, offset| {
        if offset < 0 {
            return None;
        }
        let vfs = vfs.clone();
        Some(Box::pin(async move {
            tokio::spawn(async move { vfs.read(ReadArgs { node, handle: f.1, offset: 0, len: 10 }).await });
            tokio::task::yield_now().await;
        }))
    }));
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await.len(), 8192);
    *m.kernel.hook.lock() = None;
    assert_eq!(m.get(f, 0, 3).await, [1; 3]);
}

#[tokio::test]
async fn a_handle_opened_under_a_grant_is_cached_and_one_with_o_direct_is_direct() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let cached = m.open(f.0, OpenFlags { flags: libc::O_RDONLY, kill_suidgid: false }).await.unwrap();
    assert!(!cached.direct_io && cached.keep_cache && !cached.parallel_direct_writes);
    let direct = m.open(f.0, OpenFlags { flags: libc::O_RDWR | libc::O_DIRECT, kill_suidgid: false }).await.unwrap();
    assert!(direct.direct_io && direct.parallel_direct_writes);
}

#[tokio::test]
async fn pages_that_a_cached_handle_reads_without_a_grant_do_not_stay_in_the_kernel() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    m.release(f.1);
    let f = (f.0, m.open_as(f.0, libc::O_RDONLY).await);
    let ino = InodeId(f.0.0);
    let change = AttrChange { mode: Some(0o600), ..Default::default() };
    soon(rig.admin.submit(Command::SetAttr { ino, change })).await.unwrap();
    // Another mount now holds it for reading: this one can only read beside it.
    let other = rig.local.connect("other", true, Arc::new(NoEvents)).await.unwrap();
    assert!(matches!(soon(other.acquire(ino, Use::Read)).await.unwrap().1, Grant::Excl { .. }));
    m.kernel.notes.lock().clear();
    assert_eq!(m.get(f, 10, 50).await, [1; 50]);
    assert!(m.getattr(f.0, None).await.unwrap().attr_valid.is_zero());
    soon(async {
        while !m.kernel.notes.lock().contains(&Note::Inode(f.0, 10, 50)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let opened = m.open(f.0, OpenFlags { flags: libc::O_RDONLY, kill_suidgid: false }).await.unwrap();
    assert!(opened.direct_io && !opened.keep_cache, "a handle opened while the file is shared is direct");
}

#[tokio::test]
async fn a_gateway_that_publishes_between_two_truncations_does_not_stop_the_mount() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 100]).await;
    let ino = InodeId(f.0.0);
    let (attr, _) = soon(rig.admin.getattr(ino)).await.unwrap();
    soon(rig.admin.submit(Command::Truncate { ino, number: attr.number + 1, size: 40, mtime: 5 })).await.unwrap();
    assert_eq!(m.size(f.0).await, 40);
    m.resize(f.0, 60).await;
    assert_eq!(m.get(f, 0, 100).await, [vec![1; 40], vec![0; 20]].concat());
    let wrong = rig.admin.submit(Command::Truncate { ino, number: 1, size: 0, mtime: 5 });
    assert!(matches!(soon(wrong).await, Err(MetaError::PublishRefused(_))));
    assert_eq!(m.get(f, 0, 100).await.len(), 60);
}

#[tokio::test]
async fn a_released_inode_is_granted_anew() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let ino = InodeId(f.0.0);
    m.put(f, 0, vec![1; 10]).await;
    m.release(f.1);
    assert!(rig.local.holder(ino).is_some());
    m.forget(&[(f.0, 1)]);
    soon(async {
        while rig.local.holder(ino).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(rig.gateway_read(ino).await, [1; 10], "it was published before the grant went");
    assert_eq!(m.find(ROOT, "f").await.unwrap().attr.size, 10);
}

/// A file of 100 bytes that this mount holds no longer and is not granted.
async fn denied(rig: &Rig, m: &Mount, slow: &Slow, flags: i32) -> (holdfast_fs_vfs::NodeId, holdfast_fs_vfs::HandleId) {
    let f = m.make(ROOT, "f", flags).await;
    m.put(f, 0, vec![1; 100]).await;
    soon(rig.admin.getattr(InodeId(f.0.0))).await.unwrap();
    slow.deny(true);
    slow.shut(At::GetAttr);
    f
}

#[tokio::test]
async fn a_write_through_that_a_grant_overtakes_begins_again_under_it() {
    let rig = Rig::new().await;
    let (m, slow) = rig.mount_slow().await;
    let f = denied(&rig, &m, &slow, libc::O_RDWR | libc::O_APPEND).await;
    let through = tokio::spawn({
        let (vfs, args) = (m.vfs.clone(), m.args(f, 0, vec![2; 100]));
        async move { vfs.write(args).await }
    });
    slow.parked(At::GetAttr).await;
    slow.deny(false);
    m.put(f, 0, vec![3; 50]).await;
    slow.open(At::GetAttr);
    assert_eq!(soon(through).await.unwrap(), Ok(100));
    let want = [vec![1; 100], vec![3; 50], vec![2; 100]].concat();
    assert_eq!(m.get(f, 0, 1000).await, want);
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await, want);
}

#[tokio::test]
async fn a_truncation_that_a_grant_overtakes_cuts_what_was_written_under_it() {
    let rig = Rig::new().await;
    let (m, slow) = rig.mount_slow().await;
    let f = denied(&rig, &m, &slow, libc::O_RDWR).await;
    let cut = tokio::spawn({
        let vfs = m.vfs.clone();
        let to = holdfast_fs_vfs::SetAttrArgs { size: Some(10), ..Default::default() };
        async move { vfs.setattr(WHO, f.0, to).await }
    });
    slow.parked(At::GetAttr).await;
    slow.deny(false);
    m.put(f, 0, vec![3; 50]).await;
    slow.open(At::GetAttr);
    soon(cut).await.unwrap().unwrap();
    assert_eq!(m.get(f, 0, 1000).await, [3; 10]);
    m.resize(f.0, 20).await;
    assert_eq!(rig.gateway_read(InodeId(f.0.0)).await, [vec![3; 10], vec![0; 10]].concat());
}

#[tokio::test]
async fn a_write_under_the_recall_of_a_hold_for_reading_is_published_before_its_reply() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let cached = m.file("f").await;
    let f = (cached.0, m.open_as(cached.0, libc::O_RDWR | libc::O_DIRECT).await);
    m.put(f, 0, vec![1; 100]).await;
    m.release(cached.1);
    let ino = InodeId(f.0.0);
    assert_eq!(rig.gateway_read(ino).await, [1; 100]);
    assert_eq!(m.get(f, 0, 1000).await, [1; 100], "held for reading now");
    // The kernel takes its time over the invalidation.
    let go = tokio::sync::watch::Sender::new(false);
    let (receiver, node) = (go.subscribe(), f.0);
    *m.kernel.hook.lock() = Some(Box::new(move |n, offset| {
        let mut receiver = receiver.clone();
        (n == node && offset == 0).then(|| {
            Box::pin(async move {
                receiver.wait_for(|go| *go).await.unwrap();
            }) as _
        })
    }));
    let change = tokio::spawn({
        let (local, admin) = (rig.local.clone(), rig.admin.clone());
        async move {
            let _keep = local;
            admin.submit(Command::SetAttr { ino, change: AttrChange { mode: Some(0o600), ..Default::default() } }).await
        }
    });
    soon(async {
        while m.metrics().vfs_recalls.get() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let published = m.metrics().vfs_extents_published.get() + m.metrics().vfs_publishes.get();
    m.put(f, 100, vec![2; 100]).await;
    m.put_direct(f, 200, vec![3; 100]).await;
    assert_eq!(m.metrics().vfs_extents_published.get() + m.metrics().vfs_publishes.get(), published + 2);
    assert_eq!(m.dirty_bytes(), 0, "nothing that others would look past");
    assert_eq!(m.get(f, 0, 1000).await, [vec![1; 100], vec![2; 100], vec![3; 100]].concat());
    go.send(true).unwrap();
    soon(change).await.unwrap().unwrap();
    assert_eq!(rig.gateway_read(ino).await.len(), 300);
}

#[tokio::test]
async fn a_nameless_file_that_another_mount_has_open_shows_what_was_written_after_its_writer_closed_it() {
    let rig = Rig::new().await;
    let (a, b) = (rig.mount().await, rig.mount().await);
    let f = a.file("f").await;
    let there = b.find(ROOT, "f").await.unwrap().attr.node;
    let seen = (there, b.open_as(there, libc::O_RDONLY).await);
    a.unlink(ROOT, name("f")).await.unwrap();
    a.put(f, 0, vec![7; 4096]).await;
    a.release(f.1);
    a.forget(&[(f.0, 1)]);
    assert_eq!(b.get(seen, 0, 8192).await, [7; 4096]);
}
