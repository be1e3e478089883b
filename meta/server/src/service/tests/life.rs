//! Sessions come and go; callers lose interest; the log breaks.

use super::rig::*;
use crate::Service;
use holdfast_meta_client::{MetaService, NoEvents, Use};
use holdfast_objstore_proto::meta::{Command, MetaError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn a_closed_session_holds_nothing_and_is_refused_ever_after() {
    let service = Service::in_memory();
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    assert_eq!((service.status().grants, service.status().sessions.len()), (1, 1));
    a.meta.close_session().await;
    assert_eq!((service.status().grants, service.status().sessions.len()), (0, 0));
    assert_eq!(a.meta.getattr(f).await.err(), Some(MetaError::Evicted));
    assert_eq!(a.unlink(root, "f").await.err(), Some(MetaError::Evicted));
    a.meta.close_session().await;
    assert_eq!(a.events.evicted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_session_nobody_keeps_is_closed() {
    let service = Service::in_memory();
    drop(service.connect("short", true, Arc::new(NoEvents)).await.expect("connects"));
    eventually("the session is closed", || service.status().sessions.is_empty()).await;
}

#[tokio::test]
async fn a_command_goes_on_when_its_caller_lets_go() {
    let (service, gate) = gated(config(), Arc::new(clock()));
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    a.file(root, "f").await;
    gate.close();
    drop(a.meta.submit(Command::Unlink { dir: root, name: n("f") }));
    gate.stands(1).await;
    gate.open();
    eventually("the name is gone", || service.status().stats.inodes == 1).await;
    assert!(a.meta.lookup(root, n("f")).await.expect("looks").entry.is_none());
}

#[tokio::test]
async fn sessions_are_bounded() {
    let service = Service::in_memory_with(crate::Config { sessions_max: 2, ..config() }, Arc::new(clock()));
    let (_a, _b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    assert!(matches!(service.connect("c", false, Arc::new(NoEvents)).await.err(), Some(MetaError::Retry(_))));
}

#[tokio::test]
async fn clients_cannot_send_what_only_the_service_sends() {
    let service = Service::in_memory();
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let evict = a.meta.submit(Command::Evict { session: b.meta.session().0 }).await;
    assert_eq!(evict.err(), Some(MetaError::NotPermitted));
}

#[tokio::test(start_paused = true)]
async fn a_broken_log_is_told_to_everybody_and_nobody_hangs() {
    let (service, gate) = gated(config(), Arc::new(clock()));
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    a.events.stuck.store(true, Ordering::SeqCst);
    gate.close();
    let change = a.meta.submit(Command::Unlink { dir: root, name: n("g") });
    let look = b.meta.getattr(f);
    gate.broken.store(true, Ordering::SeqCst);
    gate.open();
    let all = futures::future::join(change, look);
    let (change, look) = tokio::time::timeout(Duration::from_secs(60), all).await.expect("nobody hangs");
    assert!(matches!(change.err(), Some(MetaError::Failed(_))));
    assert!(matches!(look.err(), Some(MetaError::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_for_a_holder_fails_when_its_eviction_cannot_be_committed() {
    let (service, gate) = gated(config(), Arc::new(clock()));
    let (a, b) = (Client::mount(&service, "a").await, Client::mount(&service, "b").await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.acquire(f, Use::Write).await.expect("acquires");
    a.events.stuck.store(true, Ordering::SeqCst);
    let meta = b.meta.clone();
    let look = tokio::spawn(async move { meta.getattr(f).await });
    eventually("the recall is under way", || !a.recalled().is_empty()).await;
    gate.broken.store(true, Ordering::SeqCst);
    let look = tokio::time::timeout(Duration::from_secs(60), look).await.expect("does not hang").expect("runs");
    assert!(matches!(look.err(), Some(MetaError::Failed(_))));
    assert!(service.status().failed.is_some());
}
