//! Reads: how many shards and blocks they touch, and when they stop waiting.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::Objects;
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_proto::{Code, StripeMeta};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const CODE: Code = Code::new(4, 2);

#[tokio::test]
async fn a_small_read_asks_one_shard_for_its_bytes_alone() {
    for domains in [Domains::One, Domains::Each] {
        let rig = Rig::new(6, domains);
        let meta = rig.cluster.write(stripe(1, CODE, 4 << 20)).await.unwrap();
        expect(&*rig.cluster, &meta, 8192..12288).await;
        assert_eq!(rig.gets(), (1, 4096));
        expect(&*rig.cluster, &meta, (1 << 20) - 4096..(1 << 20) + 4096).await;
        assert_eq!(rig.gets(), (3, 3 * 4096));
        let copies = rig.cluster.write(stripe(2, CODE, 4096)).await.unwrap();
        expect(&*rig.cluster, &copies, 0..4096).await;
        assert_eq!(rig.gets(), (4, 4 * 4096));
        assert_eq!(rig.cluster.metrics().gets(), 4);
    }
}

#[tokio::test]
async fn reads_of_copies_spread_over_them() {
    let rig = Rig::new(3, Domains::One);
    for counter in 0..30 {
        let meta = rig.cluster.write(stripe(counter, CODE, 4096)).await.unwrap();
        expect(&*rig.cluster, &meta, 0..4096).await;
    }
    assert!(rig.osds.iter().all(|o| o.state.lock().gets > 3));
}

#[tokio::test(start_paused = true)]
async fn a_slow_shard_is_read_round_when_it_is_on_another_device() {
    for len in [4096, 400_000] {
        let rig = Rig::new(6, Domains::Each);
        let meta = rig.cluster.write(stripe(3, CODE, len)).await.unwrap();
        (0..meta.code.n().min(2)).for_each(|i| rig.home(&meta, i).state.lock().get_takes = Duration::from_secs(30));
        let begun = Instant::now();
        expect(&*rig.cluster, &meta, 0..4096).await;
        assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
        assert!(rig.cluster.metrics().read_hedges() >= 1 || len == 4096);
        assert!(rig.reports.0.lock().is_empty(), "slow is not broken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_shard_is_waited_for_when_nothing_else_will_do() {
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, CODE, 400_000)).await.unwrap();
    rig.home(&meta, 0).state.lock().get_takes = Duration::from_secs(30);
    for shard in 4..6 {
        rig.lose(&meta, shard);
    }
    let begun = Instant::now();
    expect(&*rig.cluster, &meta, 0..400_000).await;
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert_eq!(rig.cluster.metrics().decoded_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn on_one_device_nothing_is_asked_twice() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, 400_000)).await.unwrap();
    rig.home(&meta, 0).state.lock().get_takes = Duration::from_secs(30);
    expect(&*rig.cluster, &meta, 0..400_000).await;
    assert_eq!(rig.gets().0, 4);
}

#[tokio::test(start_paused = true)]
async fn two_slow_shards_and_a_lost_one_in_the_way_still_read() {
    let rig = Rig::new(9, Domains::Each);
    let meta = rig.cluster.write(stripe(1, Code::new(4, 3), 400_000)).await.unwrap();
    rig.home(&meta, 0).state.lock().get_takes = Duration::from_secs(30);
    rig.home(&meta, 4).state.lock().get_takes = Duration::from_secs(30);
    rig.lose(&meta, 1);
    let begun = Instant::now();
    expect(&*rig.cluster, &meta, 0..400_000).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_small_read_is_a_small_future() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, 4096)).await.unwrap();
    let read = rig.cluster.read(&meta, 0..4096);
    assert!(size_of_val(&*read) <= 512, "{} bytes to allocate for each read", size_of_val(&*read));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_read_leaves_nothing_behind() {
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, CODE, 400_000)).await.unwrap();
    rig.osds.iter().for_each(|o| o.state.lock().get_takes = Duration::from_secs(1));
    rig.cluster.prefetch(&meta, 0..65_536);
    let read = rig.cluster.read(&meta, 0..400_000);
    assert!(tokio::time::timeout(Duration::from_millis(10), read).await.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    expect(&*rig.cluster, &meta, 0..400_000).await;
    rig.cluster.drop_caches();
    assert_eq!(rig.budget.bytes_used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_shard_waits_for_a_slow_one_it_cannot_do_without() {
    let rig = Rig::new(3, Domains::Each);
    let meta = rig.cluster.write(stripe(1, Code::new(2, 1), 400_000)).await.unwrap();
    rig.home(&meta, 0).state.lock().get_takes = Duration::from_secs(3);
    rig.lose(&meta, 1);
    expect(&*rig.cluster, &meta, 0..400_000).await;
    expect(&*rig.cluster, &meta, meta.shard_bytes()..400_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_hangs_for_ever_holds_up_nothing_that_can_do_without_it() {
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, CODE, 400_000)).await.unwrap();
    rig.home(&meta, 0).state.lock().get_takes = Duration::MAX;
    rig.home(&meta, 2).state.lock().get_takes = Duration::from_secs(3);
    rig.lose(&meta, 1);
    let begun = Instant::now();
    expect(&*rig.cluster, &meta, 0..400_000).await;
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_piece_that_arrives_while_decoding_is_used() {
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, CODE, 160_000)).await.unwrap();
    let meta = Arc::new(StripeMeta { missing: 1, ..(*meta).clone() });
    for shard in [0, 2] {
        rig.home(&meta, shard).state.lock().get_takes = Duration::from_secs(4);
    }
    rig.lose(&meta, 3);
    rig.lose(&meta, 4);
    expect(&*rig.cluster, &meta, 0..160_000).await;
}
