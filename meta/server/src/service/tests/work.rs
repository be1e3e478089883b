//! Open orphans live, others are freed; retired stripes are deleted, then forgotten.

use super::rig::*;
use crate::{Service, StripeReaper};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::{Command, MetaError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Notes what it is asked to delete; the first `failures` calls fail.
#[derive(Default)]
struct Deleted {
    stripes: Mutex<Vec<Arc<StripeMeta>>>,
    failures: Mutex<usize>,
}

/// The service's way to it.
struct To(Arc<Deleted>);

impl StripeReaper for To {
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>> {
        let mut failures = self.0.failures.lock();
        let result = if *failures > 0 {
            *failures -= 1;
            Err("the test says so".into())
        } else {
            self.0.stripes.lock().extend(stripes);
            Ok(())
        };
        Box::pin(std::future::ready(result))
    }
}

#[tokio::test]
async fn an_open_file_outlives_its_unlink_by_another_until_the_last_close() {
    let service = Service::in_memory();
    let deleted = Arc::new(Deleted::default());
    service.reap_stripes(Arc::new(To(deleted.clone())));
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let stripe = a.write(f, 5000).await;
    a.meta.opened(f).await.expect("opens");
    a.meta.opened(f).await.expect("opens");
    s3.unlink(root, "f").await.expect("unlinks");
    // Another orphan that nobody has open passes through the same queue behind it.
    a.file(root, "g").await;
    s3.unlink(root, "g").await.expect("unlinks");
    eventually("g is freed", || service.status().stats.inodes == 2).await;
    assert_eq!(a.meta.getattr(f).await.expect("still there").0.nlink, 0);
    assert_eq!(a.meta.extents(f, 0..1).await.expect("still there")[0].stripe, stripe);
    assert!(deleted.stripes.lock().is_empty());
    a.meta.closed(f);
    assert_eq!(a.meta.getattr(f).await.expect("one handle is left").0.nlink, 0);
    a.meta.closed(f);
    eventually("f is freed and its stripe forgotten", || {
        let s = service.status().stats;
        (s.inodes, s.stripes, s.retired) == (1, 0, 0)
    })
    .await;
    assert_eq!(*deleted.stripes.lock(), vec![stripe]);
    assert!(is_stale(&a.meta.getattr(f).await) && is_stale(&a.meta.opened(f).await));
}

#[tokio::test]
async fn the_end_of_a_session_frees_what_it_had_open() {
    let service = Service::in_memory();
    let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.meta.opened(f).await.expect("opens");
    a.unlink(root, "f").await.expect("unlinks");
    assert!(s3.meta.getattr(f).await.is_ok());
    a.meta.close_session().await;
    eventually("f is freed", || service.status().stats.inodes == 1).await;
    assert_eq!(s3.meta.getattr(f).await.err(), Some(MetaError::Stale));
}

/// What has the service look at its orphans while the file still has its name.
#[derive(Clone, Copy)]
enum Before {
    /// Anything may have become one.
    Truncate,
    /// The file itself may.
    Close,
}

#[tokio::test(start_paused = true)]
async fn who_found_a_name_just_before_it_went_can_open_the_file_whatever_else_happens() {
    let grace = Duration::from_secs(2);
    for before in [Before::Truncate, Before::Close] {
        let service = Service::in_memory_with(crate::Config { orphan_grace: grace, ..config() }, Arc::new(clock()));
        let (a, s3) = (Client::mount(&service, "a").await, Client::gateway(&service).await);
        let root = home(&a).await;
        let (f, other) = (a.file(root, "f").await, a.file(root, "other").await);
        tokio::time::sleep(2 * grace).await;
        // An orphan of its own begins a batch, with the look in it.
        s3.unlink(root, "other").await.expect("unlinks");
        match before {
            Before::Truncate => {
                let number = a.meta.getattr(f).await.expect("is there").0.number + 1;
                a.meta.submit(Command::Truncate { ino: f, number, size: 0, mtime: 1 }).await.expect("truncates");
            }
            Before::Close => {
                a.meta.opened(f).await.expect("opens");
                a.meta.closed(f);
            }
        }
        tokio::time::sleep(grace - Duration::from_millis(10)).await;
        s3.unlink(root, "f").await.expect("unlinks");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(is_stale(&s3.meta.getattr(other).await), "the batch is done");
        tokio::time::sleep(grace - Duration::from_millis(200)).await;
        a.meta.opened(f).await.expect("can still be opened");
        tokio::time::sleep(2 * grace).await;
        assert_eq!(a.meta.getattr(f).await.expect("is open").0.nlink, 0);
        a.meta.closed(f);
        tokio::time::sleep(2 * grace).await;
        assert!(is_stale(&a.meta.opened(f).await));
    }
}

#[tokio::test(start_paused = true)]
async fn retired_stripes_wait_out_the_grace_and_failures_are_tried_again() {
    let grace = Duration::from_secs(2);
    let service = Service::in_memory_with(crate::Config { stripe_grace: grace, ..config() }, Arc::new(clock()));
    let deleted = Arc::new(Deleted { failures: Mutex::new(2), ..Deleted::default() });
    service.reap_stripes(Arc::new(To(deleted.clone())));
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let first = a.write(f, 4096).await;
    let start = tokio::time::Instant::now();
    let second = a.write(f, 4096).await;
    assert_eq!(service.status().stats.retired, 1);
    tokio::time::sleep(grace / 2).await;
    assert!(deleted.stripes.lock().is_empty());
    while service.status().stats.retired > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "never deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(start.elapsed() >= grace);
    assert_eq!(*deleted.stripes.lock(), vec![first]);
    assert_eq!(service.metrics().stripe_delete_failures.get(), 2);
    assert_eq!(a.meta.extents(f, 0..1).await.expect("reads")[0].stripe, second);
}
