//! What one session sees of another's buffered and cached things.

use super::rig::*;
use crate::Service;
use holdfast_meta_client::{Grant, Use};
use holdfast_objstore_proto::meta::{AttrChange, Command, Kind, MetaError, RenameMode, Reply, Request};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn excl(grant: Grant) -> bool {
    matches!(grant, Grant::Excl { .. })
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

/// What a holder does about a recall every few seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    Publish,
    GrantStripes,
    Progress,
    PublishAnother,
}

#[tokio::test(start_paused = true)]
async fn a_holder_keeps_its_session_while_it_flushes_and_not_for_ever() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["meta.recall_unanswered", "meta.evicted"]);
    for doing in [Doing::Publish, Doing::GrantStripes, Doing::Progress, Doing::PublishAnother] {
        let service = Service::in_memory();
        let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
        let root = home(&a).await;
        let (f, other) = (a.file(root, "f").await, a.file(root, "other").await);
        a.meta.acquire(f, Use::Write).await.expect("acquires");
        a.events.stuck.store(true, Ordering::SeqCst);
        let start = tokio::time::Instant::now();
        let asks = tokio::spawn({
            let meta = b.meta.clone();
            async move { meta.getattr(f).await }
        });
        // It flushes for half a minute, then it stands still.
        let mut refused = false;
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(6)).await;
            refused |= match doing {
                Doing::Publish => publish(&*a.meta, f, 9).await.map(drop),
                Doing::PublishAnother => publish(&*a.meta, other, 9).await.map(drop),
                Doing::GrantStripes => a.meta.submit(Command::GrantStripes { count: 1 }).await.map(drop),
                Doing::Progress => {
                    a.meta.progress(f);
                    Ok(())
                }
            }
            .is_err();
        }
        asks.await.expect("no panic").expect("reads");
        let took = start.elapsed().as_secs();
        if doing == Doing::PublishAnother {
            assert!(refused && took < 31, "{doing:?}: {took} s");
        } else {
            assert!(!refused && (40..42).contains(&took), "{doing:?}: {took} s");
        }
        assert_eq!(a.events.evicted.load(Ordering::SeqCst), 1);
    }
    // One that only ever says so is not waited for longer than the bound.
    let service = Service::in_memory();
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    a.events.stuck.store(true, Ordering::SeqCst);
    let start = tokio::time::Instant::now();
    let says = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            a.meta.progress(f);
        }
    };
    tokio::select! {
        read = b.meta.getattr(f) => drop(read.expect("reads")),
        () = says => {}
    }
    assert_eq!(start.elapsed().as_secs(), 120);
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
