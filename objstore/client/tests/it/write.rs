//! Writes: counts, quorum, spares, narrowing, fullness.

use crate::rig::{Domains, Rig};
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Config, DownOsd, Error, Objects, write_quorum};
use holdfast_objstore_proto::shard::{self, ShardService};
use holdfast_objstore_proto::{Code, OsdId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const CODE: Code = Code::new(4, 2);
const LARGE: u32 = 400_000;

fn down(osd: u16) -> shard::Error {
    shard::Error::Down { osd: OsdId(osd), why: "the test says so".into() }
}

#[tokio::test]
async fn quorums_let_any_one_device_be_lost() {
    for (code, want) in [((4, 2), 5), ((5, 0), 5), ((1, 0), 1), ((1, 1), 2), ((1, 2), 2), ((4, 1), 5), ((2, 2), 3)] {
        assert_eq!(write_quorum(Code::new(code.0, code.1)), want);
    }
}

#[tokio::test]
async fn a_small_write_is_three_puts_and_a_full_one_copies_nothing() {
    for hands in 0..3 {
        let rig = Rig::new(6, Domains::One);
        let _hands: Vec<_> = (0..hands).map(|_| InHand::new()).collect();
        rig.cluster.write(stripe(1, CODE, 4096)).await.unwrap();
        let m = rig.cluster.metrics();
        assert_eq!((m.puts(), m.copied_bytes(), m.parity_bytes()), (3, 0, 0));
        rig.cluster.write(stripe(2, CODE, 4 << 20)).await.unwrap();
        assert_eq!((m.puts(), m.copied_bytes(), m.parity_bytes()), (9, 0, 2 << 20));
        assert_eq!((m.writes(), m.write_bytes(), m.missing_shards()), (2, 4096 + (4 << 20), 0));
    }
}

#[tokio::test]
async fn a_refused_shard_goes_to_a_spare() {
    for domains in [Domains::One, Domains::Each] {
        for hands in [0, 2] {
            let rig = Rig::new(8, if matches!(domains, Domains::One) { Domains::One } else { Domains::Each });
            let _hands: Vec<_> = (0..hands).map(|_| InHand::new()).collect();
            rig.osds[1].state.lock().sick = true;
            rig.osds[4].state.lock().full = true;
            for counter in 1..10 {
                let meta = rig.cluster.write(stripe(counter, CODE, LARGE)).await.unwrap();
                assert_eq!((meta.code, meta.missing), (CODE, 0));
                assert!(!meta.osds.contains(&OsdId(1)) && !meta.osds.contains(&OsdId(4)));
                expect(&*rig.cluster, &meta, 0..LARGE).await;
            }
            assert!(rig.cluster.metrics().replaced_puts() > 0);
        }
    }
}

#[tokio::test]
async fn without_spares_one_failed_put_is_named_missing() {
    for domains in [Domains::One, Domains::Each] {
        let rig = Rig::new(6, domains);
        rig.osds[3].state.lock().fail_puts.push_back(down(3));
        let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
        let shard = meta.osds.iter().position(|o| *o == OsdId(3)).unwrap();
        assert_eq!((meta.code, meta.missing), (CODE, 1 << shard));
        assert_eq!(rig.cluster.metrics().missing_shards(), 1);
        expect(&*rig.cluster, &meta, 0..LARGE).await;
    }
}

#[tokio::test]
async fn below_the_quorum_the_write_goes_on_narrower_with_its_own_digest() {
    for hands in [0, 2] {
        let rig = Rig::new(6, Domains::One);
        let _hands: Vec<_> = (0..hands).map(|_| InHand::new()).collect();
        rig.osds[0].state.lock().sick = true;
        rig.osds[5].state.lock().sick = true;
        let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
        assert_eq!((meta.code, meta.missing), (Code::new(2, 2), 0));
        assert!(rig.cluster.metrics().write_rounds() >= 1);
        // Shards of the first round lie about under the same id; no loss makes a read decode them.
        for (a, b) in [(0, 1), (1, 2), (2, 3), (0, 3)] {
            for shard in [a, b] {
                rig.home(&meta, shard).state.lock().down = true;
            }
            expect(&*rig.cluster, &meta, 0..LARGE).await;
            for shard in [a, b] {
                rig.home(&meta, shard).state.lock().down = false;
            }
        }
        rig.cluster.delete(vec![meta.clone()]).await.unwrap();
        for osd in &rig.osds[1..5] {
            assert!(osd.state.lock().shards.is_empty(), "deleting takes the garbage along");
        }
    }
}

#[tokio::test]
async fn a_write_retried_in_another_code_finds_homes() {
    let rig = Rig::new(6, Domains::One);
    // The first attempt put shards everywhere, then its answer was lost; now two OSDs are away.
    rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    rig.osds[2].state.lock().down = true;
    rig.osds[3].state.lock().down = true;
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    assert_eq!((meta.code, meta.missing), (Code::new(2, 2), 0));
    expect(&*rig.cluster, &meta, 0..LARGE).await;
}

#[tokio::test]
async fn codes_narrow_with_the_osds_in_service() {
    let want = [None, None, Some((1, 1)), Some((1, 2)), Some((2, 2)), Some((2, 2)), Some((4, 2))];
    for (up, want) in want.into_iter().enumerate() {
        let rig = Rig::new(6, Domains::Each);
        rig.osds[up..].iter().for_each(|o| o.state.lock().down = true);
        for len in [4096, LARGE] {
            let answer = rig.cluster.write(stripe(len as u64, CODE, len)).await;
            match want {
                None => assert!(matches!(answer, Err(Error::Unavailable { up: u, need: 2 }) if u == up), "{answer:?}"),
                Some((k, m)) => {
                    let meta = answer.unwrap();
                    let wide = Code::new(if len == 4096 { 1 } else { k }, m);
                    assert_eq!((meta.code, meta.missing), (wide, 0));
                    expect(&*rig.cluster, &meta, 0..len).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn full_osds_are_left_out_and_at_last_the_write_is_refused() {
    let rig = Rig::new(7, Domains::One);
    rig.osds[0].state.lock().free = 8192;
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    assert!(meta.code == CODE && !meta.osds.contains(&OsdId(0)));
    rig.osds[1..4].iter().for_each(|o| o.state.lock().free = 0);
    let meta = rig.cluster.write(stripe(2, CODE, LARGE)).await.unwrap();
    assert_eq!(meta.code, Code::new(1, 2), "three have room");
    rig.osds[4..].iter().for_each(|o| o.state.lock().full = true);
    assert!(matches!(rig.cluster.write(stripe(3, CODE, LARGE)).await, Err(Error::Full)));
    rig.osds[4..].iter().for_each(|o| o.state.lock().free = 0);
    assert!(matches!(rig.cluster.write(stripe(4, CODE, 1)).await, Err(Error::Full)));
    rig.osds.iter().for_each(|o| o.state.lock().down = true);
    assert!(matches!(rig.cluster.write(stripe(5, CODE, 1)).await, Err(Error::Unavailable { up: 0, .. })));
}

#[tokio::test]
async fn a_fenced_write_stops() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.write_fenced"]);
    for domains in [Domains::One, Domains::Each] {
        let rig = Rig::new(6, domains);
        let write = stripe(1, CODE, LARGE);
        let key = shard::ShardKey { stripe: write.id, shard: 0 };
        rig.osds[2].state.lock().fail_puts.push_back(shard::Error::Fenced { osd: OsdId(2), key });
        assert!(matches!(rig.cluster.write(write).await, Err(Error::Fenced { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_put_is_left_behind_after_the_hedge_and_counts_when_it_arrives_before_the_flush() {
    let rig = Rig::new(6, Domains::Each);
    rig.osds[2].state.lock().put_takes = Duration::from_secs(5);
    let begun = Instant::now();
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(1));
    let shard = meta.osds.iter().position(|o| *o == OsdId(2)).unwrap();
    assert_eq!(meta.missing, 1 << shard);
    expect(&*rig.cluster, &meta, 0..LARGE).await;

    let early = rig.cluster.flush(vec![meta.clone()]).await.unwrap();
    assert_eq!(early[0].missing, 1 << shard, "it is not there yet");
    timeout(Duration::from_secs(30), async {
        while !rig.osds[2].holds(Rig::key(&meta, shard)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let whole = rig.cluster.flush(vec![meta.clone()]).await.unwrap();
    assert_eq!((whole[0].missing, rig.cluster.metrics().late_shards()), (0, 1));
    assert!(rig.osds[2].state.lock().stable.contains(&Rig::key(&meta, shard)));
}

#[tokio::test(start_paused = true)]
async fn below_the_quorum_a_slow_put_is_waited_for() {
    let rig = Rig::new(6, Domains::Each);
    for osd in [0, 1] {
        rig.osds[osd].state.lock().put_takes = Duration::from_secs(5);
    }
    let begun = Instant::now();
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(meta.missing.count_ones() <= 1);
}

#[tokio::test(start_paused = true)]
async fn the_hedge_follows_the_recent_past() {
    let rig = Rig::new(6, Domains::Each);
    rig.osds.iter().for_each(|o| o.state.lock().put_takes = Duration::from_millis(3));
    for counter in 1..=32 {
        assert_eq!(rig.cluster.write(stripe(counter, CODE, LARGE)).await.unwrap().missing, 0);
    }
    rig.osds[0].state.lock().put_takes = Duration::from_millis(900);
    let begun = Instant::now();
    let meta = rig.cluster.write(stripe(100, CODE, LARGE)).await.unwrap();
    assert_eq!(meta.missing.count_ones(), 1);
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_osd_that_owes_too_much_gets_nothing_new_until_it_answers() {
    let rig = Rig::with(7, Domains::Each, Config { owed_max: 2, ..Config::default() });
    rig.osds[0].state.lock().put_takes = Duration::from_secs(100);
    let mut holes = 0;
    for counter in 1..=30 {
        let meta = rig.cluster.write(stripe(counter, CODE, LARGE)).await.unwrap();
        holes += meta.missing.count_ones();
        assert_eq!(meta.code, CODE);
    }
    assert_eq!(holes, 2, "then the others take its place");
    let before = rig.osds[0].state.lock().puts;
    rig.osds[0].state.lock().put_takes = Duration::ZERO;
    tokio::time::sleep(Duration::from_secs(200)).await;
    for counter in 31..=60 {
        assert_eq!(rig.cluster.write(stripe(counter, CODE, LARGE)).await.unwrap().missing, 0);
    }
    assert!(rig.osds[0].state.lock().puts > before);
}

#[tokio::test(start_paused = true)]
async fn on_one_device_all_puts_are_waited_for() {
    let rig = Rig::new(6, Domains::One);
    rig.osds[2].state.lock().put_takes = Duration::from_secs(5);
    let _hands = [InHand::new(), InHand::new()];
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    assert_eq!(meta.missing, 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_osds_as_long_as_it_is_told() {
    let rig = Rig::with(2, Domains::Each, Config { unavailable_wait: Duration::from_secs(2), ..Config::default() });
    rig.osds[1].state.lock().down = true;
    let begun = Instant::now();
    assert!(matches!(rig.cluster.write(stripe(1, CODE, 1)).await, Err(Error::Unavailable { up: 1, need: 2 })));
    assert!(begun.elapsed() >= Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(3));
    let (back, osd) = (Duration::from_millis(700), rig.osds[1].clone());
    tokio::spawn(async move {
        tokio::time::sleep(back).await;
        osd.state.lock().down = false;
    });
    let begun = Instant::now();
    let meta = rig.cluster.write(stripe(1, CODE, 1)).await.unwrap();
    assert_eq!((meta.code, meta.missing), (Code::new(1, 1), 0));
    assert!(begun.elapsed() >= back && begun.elapsed() < back * 2);
}

#[tokio::test]
async fn lost_osds_keep_their_place() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    let services = rig.osds.iter().enumerate().map(|(i, o)| match i {
        2 => Arc::new(DownOsd { osd: OsdId(2), why: "its folder is gone".into() }) as Arc<dyn ShardService>,
        _ => o.clone() as Arc<dyn ShardService>,
    });
    let cluster = holdfast_objstore_client::Cluster::new(services.collect(), rig.budget.clone(), Config::default());
    expect(&*cluster, &meta, 0..LARGE).await;
    let osds = cluster.osds();
    assert_eq!((osds.len(), osds[2].1.as_deref()), (6, Some("its folder is gone")));
    let narrow = cluster.write(stripe(2, CODE, LARGE)).await.unwrap();
    assert_eq!(narrow.code, Code::new(2, 2));
    assert!(cluster.space(CODE).free < rig.cluster.space(CODE).free);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_write_may_be_retried() {
    for domains in [Domains::One, Domains::Each] {
        let rig = Rig::new(6, domains);
        for slow in [2, 5] {
            rig.osds[slow].state.lock().put_takes = Duration::from_secs(9);
        }
        let _hands = [InHand::new(), InHand::new()];
        let write = stripe(1, CODE, LARGE);
        assert!(timeout(Duration::from_millis(10), rig.cluster.write(write.clone())).await.is_err());
        // Some shards are there. Meanwhile an OSD with one of them and one without fail.
        rig.osds[0].state.lock().sick = true;
        rig.osds[2].state.lock().sick = true;
        rig.osds[5].state.lock().put_takes = Duration::ZERO;
        let meta = rig.cluster.write(write).await.unwrap();
        assert_eq!((meta.code, meta.missing), (Code::new(2, 2), 0));
        expect(&*rig.cluster, &meta, 0..LARGE).await;
    }
}
