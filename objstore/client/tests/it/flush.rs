//! Flushes: how many, and what a failed or slow one leaves.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Error, Objects};
use holdfast_objstore_proto::{Code, OsdId};
use std::time::Duration;
use tokio::time::Instant;

const CODE: Code = Code::new(4, 2);
const LARGE: u32 = 400_000;

#[tokio::test]
async fn a_flush_asks_each_osd_of_its_stripes_once() {
    let rig = Rig::new(9, Domains::One);
    let a = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    let b = rig.cluster.write(stripe(2, CODE, LARGE)).await.unwrap();
    rig.cluster.flush(vec![a.clone(), b.clone()]).await.unwrap();
    for osd in &rig.osds {
        let id = OsdId(rig.osds.iter().position(|o| std::sync::Arc::ptr_eq(o, osd)).unwrap() as u16);
        let named = a.osds.contains(&id) || b.osds.contains(&id);
        assert_eq!(osd.state.lock().flushes, named as u64);
    }
    assert_eq!((rig.cluster.metrics().flushes(), rig.cluster.metrics().domain_flushes()), (1, 1));
}

#[tokio::test]
async fn a_failed_flush_leaves_its_shards_missing_and_below_the_quorum_fails() {
    for domains in [Domains::One, Domains::Each] {
        let rig = Rig::new(6, domains);
        let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
        rig.home(&meta, 4).state.lock().fail_flush = true;
        let flushed = rig.cluster.flush(vec![meta.clone()]).await.unwrap();
        assert_eq!(flushed[0].missing, 1 << 4);
        assert_eq!(flushed[0].digest, meta.digest);
        rig.home(&meta, 0).state.lock().fail_flush = true;
        let answer = rig.cluster.flush(flushed.clone()).await;
        assert!(matches!(answer, Err(Error::Unavailable { up: 4, need: 5 })), "{answer:?}");
        expect(&*rig.cluster, &meta, 0..LARGE).await;
    }
}

#[tokio::test]
async fn of_copies_two_must_be_stable() {
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, CODE, 4096)).await.unwrap();
    rig.home(&meta, 0).state.lock().fail_flush = true;
    assert_eq!(rig.cluster.flush(vec![meta.clone()]).await.unwrap()[0].missing, 1);
    rig.home(&meta, 1).state.lock().fail_flush = true;
    assert!(rig.cluster.flush(vec![meta]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_slow_domain_is_left_behind_when_every_stripe_has_its_quorum() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.flush_hedged"]);
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    rig.home(&meta, 3).state.lock().flush_takes = Duration::from_secs(60);
    let begun = Instant::now();
    let flushed = rig.cluster.flush(vec![meta.clone()]).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(1));
    assert_eq!((flushed[0].missing, rig.cluster.metrics().flush_hedges()), (1 << 3, 1));

    rig.home(&meta, 4).state.lock().flush_takes = Duration::from_secs(30);
    let begun = Instant::now();
    let flushed = rig.cluster.flush(vec![meta]).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 30, "two slow ones are one too many");
    assert_eq!(flushed[0].missing, 1 << 3);
}

#[tokio::test]
async fn a_delete_is_flushed_and_skips_osds_out_of_service() {
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    rig.home(&meta, 0).state.lock().down = true;
    rig.cluster.delete(vec![meta.clone()]).await.unwrap();
    assert_eq!(rig.cluster.metrics().deletes_skipped(), 1);
    for shard in 1..6 {
        let s = rig.home(&meta, shard).state.lock();
        assert_eq!((s.shards.len(), s.deletes, s.flushes), (0, 1, 1));
    }
}

#[tokio::test]
async fn a_delete_that_an_osd_in_service_refuses_fails_and_may_be_repeated() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.delete_refused"]);
    let rig = Rig::new(6, Domains::One);
    let meta = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
    rig.home(&meta, 2).state.lock().full_for_deletes = true;
    assert!(matches!(rig.cluster.delete(vec![meta.clone()]).await, Err(Error::Full)));
    assert_eq!(rig.cluster.metrics().deletes(), 0);
    rig.home(&meta, 2).state.lock().full_for_deletes = false;
    rig.cluster.delete(vec![meta]).await.unwrap();
    assert!(rig.osds.iter().all(|osd| osd.state.lock().shards.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn what_one_osd_acknowledged_another_in_its_place_does_not_answer_for() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.flush_of_another"]);
    for domains in [Domains::One, Domains::Each] {
        let mut rig = Rig::new(6, domains);
        let before = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap();
        rig.replace(before.osds[2]);
        let after = rig.cluster.write(stripe(2, CODE, LARGE)).await.unwrap();
        let flushed = rig.cluster.flush(vec![before.clone(), after.clone()]).await.unwrap();
        assert_eq!((flushed[0].missing, flushed[1].missing), (1 << 2, 0));
        // Below the quorum they are made anew, where enough others are there.
        rig.replace(before.osds[4]);
        let flushed = rig.cluster.flush(vec![before.clone()]).await.unwrap();
        assert_eq!(flushed[0].missing, 0);
        for shard in [2, 4] {
            assert!(rig.home(&before, shard).state.lock().stable.contains(&Rig::key(&before, shard)));
        }
        let home = after.osds.iter().position(|osd| *osd == before.osds[4]).unwrap();
        assert_eq!(rig.cluster.flush(vec![after.clone()]).await.unwrap()[0].missing, 1 << home);
        for shard in (0..6).filter(|shard| *shard != home).take(2) {
            rig.replace(after.osds[shard]);
        }
        let answer = rig.cluster.flush(vec![after]).await;
        assert!(matches!(answer, Err(Error::Unavailable { up: 3, need: 5 })), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_shard_counts_where_it_arrived() {
    let mut rig = Rig::new(6, Domains::Each);
    let id = rig.cluster.write(stripe(1, CODE, LARGE)).await.unwrap().osds[3];
    rig.osds[id.0 as usize].state.lock().put_takes = Duration::from_secs(5);
    let late = rig.cluster.write(stripe(2, CODE, LARGE)).await.unwrap();
    assert_ne!(late.missing, 0);
    rig.replace(id);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.cluster.flush(vec![late.clone()]).await.unwrap()[0].missing, late.missing);
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_a_change_of_osds_falls_into_ends_with_the_new_one() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.flush_again"]);
    let code = Code::new(2, 1);
    for domains in [Domains::One, Domains::Each] {
        let mut rig = Rig::new(3, domains);
        let meta = rig.cluster.write(stripe(1, code, LARGE)).await.unwrap();
        let old = rig.home(&meta, 1).clone();
        old.state.lock().flush_takes = Duration::from_secs(2);
        let (cluster, stripes) = (rig.cluster.clone(), vec![meta.clone()]);
        let flushing = tokio::spawn(async move { cluster.flush(stripes).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        // It is out of service for a while, and then another has its place.
        old.state.lock().down = true;
        rig.replace(meta.osds[1]);
        rig.home(&meta, 1).state.lock().down = true;
        tokio::time::sleep(Duration::from_secs(3)).await;
        rig.replace(meta.osds[1]);
        let flushed = flushing.await.unwrap().unwrap();
        assert_eq!((flushed[0].missing, &flushed[0].osds), (0, &meta.osds));
        assert!(rig.home(&meta, 1).state.lock().stable.contains(&Rig::key(&meta, 1)));
        expect(&*rig.cluster, &meta, 0..LARGE).await;
    }
}
