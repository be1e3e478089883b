//! What one session sees of another's buffered and cached things.

use super::rig::*;
use crate::Service;
use holdfast_meta_client::{Grant, Use};
use holdfast_objstore_proto::meta::{AttrChange, Command, Kind, ListItem, ListQuery, MetaError, RenameMode, Reply, Request};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn excl(grant: Grant) -> bool {
    matches!(grant, Grant::Excl { .. })
}

#[tokio::test]
async fn a_foreign_getattr_recalls_the_writer_and_sees_what_it_had() {
    let service = Service::in_memory();
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    assert!(excl(a.meta.acquire(f, Use::Write).await.expect("acquires").1));
    a.events.dirty.lock().insert(f, 12_345);
    let (attr, grant) = b.meta.getattr(f).await.expect("reads");
    assert_eq!(attr.size, 12_345);
    assert!(excl(grant), "the file is free after the recall");
    assert_eq!(a.recalled(), vec![f]);
    // Now b holds it for reading: a's look is let through, and nobody is asked.
    assert_eq!(a.meta.getattr(f).await.expect("reads").1, Grant::Through);
    assert!(b.recalled().is_empty());
}

#[tokio::test]
async fn every_kind_of_foreign_read_sees_what_the_writer_had() {
    let service = Service::in_memory();
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let bucket = s3.meta.bucket(n("home")).await.expect("is there").id;
    let f = a.file(root, "f").await;
    let mut size = 0;
    for way in 0..6 {
        size += 10;
        a.meta.acquire(f, Use::Write).await.expect("acquires");
        a.events.dirty.lock().insert(f, size);
        let seen = match way {
            0 => s3.meta.getattr(f).await.expect("reads").0.size,
            1 => s3.meta.lookup(root, n("f")).await.expect("reads").entry.expect("is there").attr.size,
            2 => s3.meta.resolve(bucket, n("f")).await.expect("reads").0.size,
            3 => s3.meta.readdir(root, 0, 10).await.expect("reads").0[0].1.size,
            4 => match &s3.meta.list(bucket, ListQuery { keys_max: 10, ..Default::default() }).await.expect("lists").items[0] {
                ListItem::Object { attr, .. } => attr.size,
                other => panic!("{other:?}"),
            },
            _ => {
                s3.meta.extents(f, 0..1).await.expect("reads");
                s3.meta.getattr(f).await.expect("reads").0.size
            }
        };
        // After three recalls the file is held down, so nothing is buffered any more: publish by hand.
        let held = a.events.dirty.lock().remove(&f).is_none();
        assert!(way >= 3 || (held && seen == size), "way {way}: saw {seen} of {size}");
        if !held {
            publish(&*a.meta, f, size).await.expect("publishes");
        }
    }
    assert!(s3.recalled().is_empty());
}

#[tokio::test]
async fn a_holders_own_calls_never_recall_from_itself() {
    let service = Service::in_memory();
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    a.meta.acquire(root, Use::Write).await.expect("acquires");
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    publish(&*a.meta, f, 10).await.expect("publishes");
    a.meta.submit(Command::SetAttr { ino: f, change: AttrChange { mode: Some(0o600), ..Default::default() } }).await.expect("changes");
    a.meta.readdir(root, 0, 10).await.expect("reads");
    a.meta.extents(f, 0..1).await.expect("reads");
    a.unlink(root, "f").await.expect("unlinks");
    assert!(a.recalled().is_empty());
}

#[tokio::test]
async fn a_foreign_change_recalls_the_directory_with_its_name_and_the_file() {
    let service = Service::in_memory();
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let looked = a.meta.lookup(root, n("f")).await.expect("looks");
    assert!(excl(looked.dir_grant) && excl(looked.grant));
    s3.meta.getattr(f).await.expect("reads");
    assert!(a.recalled().is_empty(), "a reader beside a reader");
    s3.unlink(root, "f").await.expect("unlinks");
    let recalls = a.events.recalls.lock().clone();
    assert_eq!(recalls.iter().map(|r| (r.ino, r.name.clone())).collect::<Vec<_>>(), vec![(root, Some(n("f"))), (f, None)]);
    let gone = a.meta.lookup(root, n("f")).await.expect("looks");
    assert!(gone.entry.is_none() && excl(gone.dir_grant), "an absent name is cached under the directory");
}

#[tokio::test]
async fn a_put_through_the_other_door_recalls_the_directory_that_cached_the_name_as_absent() {
    let service = Service::in_memory();
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let bucket = s3.meta.bucket(n("home")).await.expect("is there").id;
    assert!(a.meta.lookup(root, n("dir")).await.expect("looks").entry.is_none());
    let put = s3.put(bucket, "dir/file").await;
    s3.meta.submit(put).await.expect("puts");
    assert_eq!(a.recalled(), vec![root]);
    assert!(a.meta.lookup(root, n("dir")).await.expect("looks").entry.is_some());
}

#[tokio::test]
async fn what_a_path_leads_to_only_when_the_command_is_applied_is_recalled_too() {
    let (service, gate) = gated(config(), std::sync::Arc::new(clock()));
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let bucket = s3.meta.bucket(n("home")).await.expect("is there").id;
    let top = a.create(root, "top", Kind::Dir).await.expect("creates").ino;
    a.create(top, "sub", Kind::Dir).await.expect("creates");
    let put = s3.put(bucket, "top/sub/file").await;
    gate.close();
    let rmdir = a.meta.submit(Command::Rmdir { dir: top, name: n("sub") });
    let put = s3.meta.submit(put);
    gate.stands(2).await;
    gate.pass();
    rmdir.await.expect("removes");
    // The PUT was thought to change `sub`; now it will make another, in `top`.
    let looked = a.meta.lookup(top, n("sub")).await.expect("looks");
    assert!(looked.entry.is_none() && excl(looked.dir_grant));
    gate.pass();
    put.await.expect("puts");
    assert_eq!(a.recalled(), vec![top]);
    assert!(a.meta.lookup(top, n("sub")).await.expect("looks").entry.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_answer_is_evicted_at_the_deadline() {
    let service = Service::in_memory();
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    a.events.stuck.store(true, Ordering::SeqCst);
    let start = tokio::time::Instant::now();
    let (attr, grant) = b.meta.getattr(f).await.expect("reads");
    assert!(start.elapsed() >= Duration::from_secs(10) && start.elapsed() < Duration::from_secs(11));
    assert!(attr.size == 0 && excl(grant));
    assert_eq!(a.events.evicted.load(Ordering::SeqCst), 1);
    assert_eq!(a.meta.getattr(f).await.err(), Some(MetaError::Evicted));
    assert_eq!(publish(&*a.meta, f, 99).await.err(), Some(MetaError::Evicted));
    assert_eq!(a.meta.opened(f).await.err(), Some(MetaError::Evicted));
    let status = service.status();
    assert_eq!((status.sessions.len(), status.evictions), (1, 1));
}

#[tokio::test]
async fn nothing_is_granted_while_a_change_of_it_is_in_the_log() {
    let (service, gate) = gated(config(), std::sync::Arc::new(clock()));
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    gate.close();
    let change = s3.meta.submit(Command::SetAttr { ino: f, change: AttrChange { mode: Some(0o600), ..Default::default() } });
    gate.stands(1).await;
    let (old, grant) = a.meta.getattr(f).await.expect("reads");
    assert_eq!((old.mode, grant), (0o644, Grant::Through), "read before the change, and not to be kept");
    let mut acquire = a.meta.acquire(f, Use::Read);
    assert!(futures::poll!(&mut acquire).is_pending(), "acquire waits for the change");
    gate.open();
    change.await.expect("changes");
    let (new, grant) = acquire.await.expect("acquires");
    assert!(new.mode == 0o600 && excl(grant));
}

#[tokio::test]
async fn commands_that_do_not_wait_reach_the_log_in_the_order_of_the_calls() {
    let (service, gate) = gated(config(), std::sync::Arc::new(clock()));
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    gate.close();
    let mode = |m| a.meta.submit(Command::SetAttr { ino: f, change: AttrChange { mode: Some(m), ..Default::default() } });
    let (first, second) = (mode(0o601), mode(0o602));
    // Neither was waited for yet.
    let came: Vec<Command> =
        gate.came.lock().iter().rev().take(2).map(|c| postcard::from_bytes::<Request>(&c[1..]).expect("decodes").command).collect();
    assert!(matches!(&came[..], [Command::SetAttr { change: later, .. }, Command::SetAttr { change: earlier, .. }]
        if (earlier.mode, later.mode) == (Some(0o601), Some(0o602))));
    gate.open();
    second.await.expect("changes");
    first.await.expect("changes");
}

#[tokio::test]
async fn two_changes_of_one_name_are_made_one_after_the_other() {
    let (service, gate) = gated(config(), std::sync::Arc::new(clock()));
    let (a, b, c) = (Client::mount(&service, "a").await, Client::gateway(&service).await, Client::gateway(&service).await);
    let root = home(&a).await;
    let (x, y) = (a.file(root, "x").await, a.file(root, "y").await);
    for ino in [x, y] {
        a.meta.acquire(ino, Use::Read).await.expect("acquires");
    }
    gate.close();
    let replace = Command::Rename { from_dir: root, from: n("y"), to_dir: root, to: n("x"), mode: RenameMode::Replace };
    let rename = tokio::spawn({
        let meta = b.meta.clone();
        async move { meta.submit(replace).await }
    });
    gate.stands(1).await;
    let unlink = tokio::spawn({
        let meta = c.meta.clone();
        async move { meta.submit(Command::Unlink { dir: root, name: n("x") }).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(*gate.waiting.borrow(), 1, "the second change of x waits for the first");
    gate.open();
    rename.await.expect("runs").expect("renames");
    // It unlinked what stands under the name now, and that was recalled: nobody holds y.
    assert_eq!(unlink.await.expect("runs").expect("unlinks"), Reply::Unlinked { ino: y, nlink: 0 });
    assert_eq!(service.status().sessions[0].grants, 0);
}

#[tokio::test]
async fn crossing_recalls_do_not_wait_for_each_other() {
    let service = Service::in_memory();
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let (x, y) = (a.file(root, "x").await, a.file(root, "y").await);
    for round in 1..=20u64 {
        let _ = a.meta.acquire(x, Use::Write).await;
        let _ = b.meta.acquire(y, Use::Write).await;
        a.events.dirty.lock().insert(x, round);
        b.events.dirty.lock().insert(y, round);
        let rename = |from, to| Command::Rename { from_dir: root, from, to_dir: root, to, mode: RenameMode::Exchange };
        let both = futures::future::join(a.meta.submit(rename(n("x"), n("y"))), b.meta.submit(rename(n("y"), n("x"))));
        let (one, two) = tokio::time::timeout(Duration::from_secs(5), both).await.expect("nobody waits for ever");
        one.expect("renames");
        two.expect("renames");
    }
    assert_eq!(a.events.evicted.load(Ordering::SeqCst) + b.events.evicted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_inode_in_dispute_is_held_down_and_then_granted_again() {
    let time = clock();
    let service = Service::in_memory_with(config(), std::sync::Arc::new(time.clone()));
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let mut through = 0;
    for i in 0..6 {
        let client = if i % 2 == 0 { &a } else { &b };
        through += usize::from(!excl(client.meta.acquire(f, Use::Write).await.expect("acquires").1));
    }
    assert_eq!((through, a.recalled().len() + b.recalled().len()), (3, 3));
    time.advance(1_000_000_001);
    assert!(excl(a.meta.acquire(f, Use::Write).await.expect("acquires").1));
}

#[tokio::test]
async fn stamps_tell_a_late_answer_from_a_new_grant() {
    let service = Service::in_memory();
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let Grant::Excl { stamp: first } = a.meta.acquire(f, Use::Read).await.expect("acquires").1 else { panic!("free") };
    let Grant::Excl { stamp: same } = a.meta.acquire(f, Use::Write).await.expect("acquires").1 else { panic!("its own") };
    assert_eq!(first, same);
    b.meta.getattr(f).await.expect("reads");
    assert_eq!(a.events.recalls.lock()[0].stamp, first);
    b.meta.release(vec![f]);
    let Grant::Excl { stamp: again } = a.meta.acquire(f, Use::Read).await.expect("acquires").1 else { panic!("free") };
    assert!(again > first);
}

#[tokio::test]
async fn a_listing_recalls_all_writers_on_its_page() {
    let service = Service::in_memory();
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let names: Vec<&'static str> = (0..50).map(|i| &*Box::leak(format!("f{i:02}").into_boxed_str())).collect();
    for (i, name) in names.iter().enumerate() {
        let f = a.file(root, name).await;
        a.meta.acquire(f, Use::Write).await.expect("acquires");
        a.events.dirty.lock().insert(f, 100 + i as u64);
    }
    let (entries, grant) = s3.meta.readdir(root, 0, 100).await.expect("reads");
    assert_eq!(grant, Grant::Through);
    let sizes: Vec<u64> = entries.iter().map(|(_, attr)| attr.size).collect();
    assert_eq!(sizes, (100..150).collect::<Vec<u64>>());
}
