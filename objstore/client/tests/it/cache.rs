//! The cache: what fills it, who waits, what it may take.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Config, Objects};
use holdfast_objstore_proto::Code;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const CODE: Code = Code::new(4, 2);
const FULL: u32 = 4 << 20;

async fn settle(rig: &Rig, bytes: u64) {
    timeout(Duration::from_secs(10), async {
        while rig.cluster.cache_bytes() < bytes {
            tokio::task::yield_now().await;
        }
        // Bytes are taken when a fetch begins; let the fetches end as well.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the cache fills");
}

#[tokio::test]
async fn only_prefetching_fills_the_cache() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, FULL)).await.unwrap();
    expect(&*rig.cluster, &meta, 0..FULL).await;
    expect(&*rig.cluster, &meta, 0..4096).await;
    assert_eq!((rig.cluster.cache_bytes(), rig.budget.bytes_used()), (0, 0));
    let before = rig.gets();
    rig.cluster.prefetch(&meta, 100..200_000);
    settle(&rig, 256 << 10).await;
    expect(&*rig.cluster, &meta, 0..262_144).await;
    assert_eq!(rig.gets(), (before.0 + 1, before.1 + 262_144), "one get of whole units, none for the read");
    let m = rig.cluster.metrics();
    assert_eq!((m.prefetches(), m.cache_hit_bytes(), m.cache_miss_bytes()), (1, 262_144, 0));
    assert_eq!((rig.cluster.cache_bytes(), rig.budget.bytes_used()), (262_144, 262_144));
    rig.cluster.drop_caches();
    assert_eq!((rig.cluster.cache_bytes(), rig.budget.bytes_used()), (0, 0));
    expect(&*rig.cluster, &meta, 0..4096).await;
    assert_eq!(rig.gets().0, before.0 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_reader_joins_the_fetch_under_way() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, FULL)).await.unwrap();
    rig.osds.iter().for_each(|o| o.state.lock().get_takes = Duration::from_millis(80));
    rig.cluster.prefetch(&meta, 0..FULL);
    rig.cluster.prefetch(&meta, 0..FULL);
    let begun = Instant::now();
    expect(&*rig.cluster, &meta, 1000..FULL - 1000).await;
    assert_eq!(begun.elapsed().as_millis(), 80);
    assert_eq!(rig.gets(), (4, FULL as u64));
}

#[tokio::test(start_paused = true)]
async fn a_failed_fetch_leaves_its_reader_to_read() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, 65_536 * 4)).await.unwrap();
    for osd in &rig.osds {
        let mut s = osd.state.lock();
        (s.get_takes, s.sick) = (Duration::from_millis(80), true);
    }
    rig.cluster.prefetch(&meta, 0..65_536);
    let read = tokio::spawn({
        let (cluster, meta) = (rig.cluster.clone(), meta.clone());
        async move { expect(&*cluster, &meta, 0..65_536).await }
    });
    // Every gets fails once: the piece, then as many others as there are.
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.osds.iter().for_each(|o| o.state.lock().sick = false);
    read.await.unwrap();
    assert!(rig.cluster.metrics().shards_down() > 0);
}

#[tokio::test]
async fn the_cache_keeps_to_its_share_and_to_what_the_budget_has_left() {
    let rig = Rig::with(6, Domains::One, Config { cache_bytes: 3 << 20, ..Config::default() });
    let mut stripes = Vec::new();
    for counter in 1..=4 {
        stripes.push(rig.cluster.write(stripe(counter, CODE, FULL)).await.unwrap());
    }
    for meta in &stripes {
        rig.cluster.prefetch(meta, 0..FULL);
        assert!(rig.cluster.cache_bytes() <= 3 << 20 && rig.budget.bytes_used() <= 3 << 20);
        expect(&*rig.cluster, meta, 0..FULL).await;
    }
    assert!(rig.cluster.metrics().prefetches_refused() > 0);

    rig.cluster.drop_caches();
    let dirty = rig.budget.try_charge(rig.budget.bytes_max() - (1 << 20)).unwrap();
    rig.cluster.prefetch(&stripes[0], 0..FULL);
    assert_eq!(rig.budget.bytes_used(), rig.budget.bytes_max());
    expect(&*rig.cluster, &stripes[0], 0..FULL).await;
    drop(dirty);
    rig.cluster.drop_caches();
    assert_eq!(rig.budget.bytes_used(), 0);
}

#[tokio::test]
async fn fetches_at_once_are_bounded() {
    let rig = Rig::with(6, Domains::One, Config { prefetches_max: 2, ..Config::default() });
    let meta = rig.cluster.write(stripe(1, CODE, FULL)).await.unwrap();
    rig.cluster.prefetch(&meta, 0..FULL);
    let m = rig.cluster.metrics();
    assert_eq!((m.prefetches(), m.prefetches_refused()), (2, 2));
}

#[test]
fn a_fetch_that_dies_with_its_runtime_lets_go() {
    let rig = Rig::new(6, Domains::One);
    let first = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let meta = first.block_on(rig.cluster.write(stripe(1, CODE, FULL))).unwrap();
    first.block_on(async { rig.cluster.prefetch(&meta, 0..FULL) });
    rig.cluster.prefetch(&meta, 0..FULL);
    let second = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = {
        let (cluster, meta) = (rig.cluster.clone(), meta.clone());
        second.spawn(async move { expect(&*cluster, &meta, 0..FULL).await })
    };
    second.block_on(async { tokio::task::yield_now().await });
    drop(first);
    second.block_on(async { timeout(Duration::from_secs(10), read).await.unwrap().unwrap() });
    assert_eq!((rig.cluster.cache_bytes(), rig.budget.bytes_used()), (0, 0));
}
