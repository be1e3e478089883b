//! What the seam promises, asked of the service and of `Local`, the one in memory that others test with.

use super::rig::*;
use crate::Service;
use holdfast_meta_client::local::Local;
use holdfast_meta_client::{Grant, MetaService, Use};
use holdfast_objstore_proto::meta::{AttrChange, Command, ListItem, ListQuery, MetaError, RenameMode};
use std::sync::atomic::Ordering;
use std::time::Duration;

macro_rules! asked_of_both {
    ($($name:ident),* $(,)?) => {
        mod service {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&*super::Service::in_memory()).await;
            })*
        }
        mod local {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Local::new()).await;
            })*
        }
    };
}

asked_of_both! {
    a_foreign_getattr_recalls_the_writer_and_sees_what_it_had,
    every_kind_of_foreign_read_sees_what_the_writer_had,
    a_holders_own_calls_never_recall_from_itself,
    a_foreign_change_recalls_the_directory_with_its_name_and_the_file,
    a_put_through_the_other_door_recalls_the_directory_that_cached_the_name_as_absent,
    crossing_recalls_do_not_wait_for_each_other,
    stamps_tell_a_late_answer_from_a_new_grant,
    a_listing_recalls_all_writers_on_its_page,
    a_closed_session_is_refused_and_holds_nothing,
    an_open_inode_is_there_until_its_last_close,
}

fn excl(grant: Grant) -> bool {
    matches!(grant, Grant::Excl { .. })
}

async fn a_foreign_getattr_recalls_the_writer_and_sees_what_it_had(service: &dyn MetaService) {
    let (a, b) = (Client::mount_at(service, "a").await, Client::mount_at(service, "b").await);
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

async fn every_kind_of_foreign_read_sees_what_the_writer_had(service: &dyn MetaService) {
    let (a, s3) = (Client::mount_at(service, "a").await, Client::gateway_at(service).await);
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

async fn a_holders_own_calls_never_recall_from_itself(service: &dyn MetaService) {
    let a = Client::mount_at(service, "a").await;
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

async fn a_foreign_change_recalls_the_directory_with_its_name_and_the_file(service: &dyn MetaService) {
    let (a, s3) = (Client::mount_at(service, "a").await, Client::gateway_at(service).await);
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

async fn a_put_through_the_other_door_recalls_the_directory_that_cached_the_name_as_absent(service: &dyn MetaService) {
    let (a, s3) = (Client::mount_at(service, "a").await, Client::gateway_at(service).await);
    let root = home(&a).await;
    let bucket = s3.meta.bucket(n("home")).await.expect("is there").id;
    assert!(a.meta.lookup(root, n("dir")).await.expect("looks").entry.is_none());
    let put = s3.put(bucket, "dir/file").await;
    s3.meta.submit(put).await.expect("puts");
    assert_eq!(a.recalled(), vec![root]);
    assert!(a.meta.lookup(root, n("dir")).await.expect("looks").entry.is_some());
}

async fn crossing_recalls_do_not_wait_for_each_other(service: &dyn MetaService) {
    let (a, b) = (Client::mount_at(service, "a").await, Client::mount_at(service, "b").await);
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

async fn stamps_tell_a_late_answer_from_a_new_grant(service: &dyn MetaService) {
    let (a, b) = (Client::mount_at(service, "a").await, Client::mount_at(service, "b").await);
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

async fn a_listing_recalls_all_writers_on_its_page(service: &dyn MetaService) {
    let (a, s3) = (Client::mount_at(service, "a").await, Client::gateway_at(service).await);
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

async fn a_closed_session_is_refused_and_holds_nothing(service: &dyn MetaService) {
    let (a, b) = (Client::mount_at(service, "a").await, Client::mount_at(service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    a.meta.close_session().await;
    assert_eq!(a.meta.getattr(f).await.err(), Some(MetaError::Evicted));
    assert_eq!(a.unlink(root, "f").await.err(), Some(MetaError::Evicted));
    assert_eq!(a.meta.acquire(f, Use::Read).await.err(), Some(MetaError::Evicted));
    assert!(excl(b.meta.acquire(f, Use::Write).await.expect("acquires").1));
    assert!(a.recalled().is_empty());
}

async fn an_open_inode_is_there_until_its_last_close(service: &dyn MetaService) {
    let (a, b) = (Client::mount_at(service, "a").await, Client::gateway_at(service).await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let stripe = a.write(f, 5000).await;
    a.meta.opened(f).await.expect("opens");
    b.unlink(root, "f").await.expect("unlinks");
    assert_eq!(a.meta.getattr(f).await.expect("is there").0.nlink, 0);
    assert_eq!(a.meta.extents(f, 0..1).await.expect("is there")[0].stripe, stripe);
    a.meta.closed(f);
    for _ in 0..100_000 {
        if is_stale(&a.meta.getattr(f).await) {
            assert!(is_stale(&a.meta.opened(f).await));
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never freed");
}
