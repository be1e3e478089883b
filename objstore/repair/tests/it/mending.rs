//! What is lost is made anew, in the right place, and nothing else is touched.

use crate::rig::{BUCKET, CODE, Device, Rig, quick};
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Objects, ShardFault, Upkeep};
use holdfast_objstore_proto::shard::{Hint, ShardService};
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use holdfast_objstore_repair::{Begun, Config};
use std::sync::Arc;

#[tokio::test]
async fn a_replaced_osd_gets_its_shards_again_and_then_any_two_others_may_go() {
    let mut rig = Rig::new(6).await;
    rig.fill(40, 100_000).await;
    rig.fill(20, 3_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.devices[2].osd = None;
    rig.changed();
    rig.settled().await;
    rig.replace(2).await;
    rig.settled().await;
    rig.all_whole().await;
    let p = rig.repair.progress();
    assert!(p.repaired_stripes >= 40 && p.repaired_bytes >= 40 * 100_000, "{p:?}");
    for gone in [[0, 1], [3, 5]] {
        let kept: Vec<_> = gone.iter().map(|id| (*id, rig.devices[*id].osd.take())).collect();
        rig.changed();
        let all: Vec<_> = rig.map.stripes.lock().values().cloned().collect();
        for meta in all {
            expect(&*rig.cluster, &meta, 0..meta.len).await;
        }
        for (id, osd) in kept {
            rig.devices[id].osd = osd;
        }
        rig.changed();
    }
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_shard_that_a_reader_could_not_use_is_repaired() {
    let mut rig = Rig::new(6).await;
    let id = rig.fill(1, 200_000).await[0];
    rig.repair.start();
    rig.settled().await;
    let meta = rig.record(id);
    rig.rot(meta.osds[1].0 as usize, 3);
    rig.repair.sink().report(meta.clone(), 1, ShardFault::Corrupt);
    assert_eq!(rig.repair.suspects(meta.osds[1]), 1, "until it is repaired its OSD is named");
    rig.until("repaired", || rig.repair.progress().repaired_stripes == 1).await;
    rig.settled().await;
    assert_eq!(rig.repair.suspects(meta.osds[1]), 0);
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_shard_missing_since_its_stripe_was_published_is_made() {
    let mut rig = Rig::new(6).await;
    let id = rig.fill(1, 200_000).await[0];
    let meta = rig.record(id);
    rig.osd_of(&meta, 4).drop_shards(vec![Rig::key(&meta, 4)]).await.unwrap();
    // One bit for a shard that is not there, one for a shard that came late.
    rig.map.stripes.lock().insert(id, Arc::new(StripeMeta { missing: 0b10001, ..(*meta).clone() }));
    rig.repair.start();
    rig.until("no longer missing", || rig.record(id).missing == 0).await;
    rig.settled().await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn fewer_survivors_come_first() {
    let mut rig = Rig::with(6, Config { in_flight_bytes: 1, ..quick() }).await;
    let ids = rig.fill(6, 100_000).await;
    // The last has lost two shards, the others one.
    for (nth, id) in ids.iter().enumerate() {
        let meta = rig.record(*id);
        for shard in 0..if nth == 5 { 2 } else { 1 } {
            rig.osd_of(&meta, shard).drop_shards(vec![Rig::key(&meta, shard)]).await.unwrap();
            rig.repair.sink().report(meta.clone(), shard as u8, ShardFault::NotFound);
        }
    }
    rig.repair.start();
    rig.settled().await;
    let heads = futures::future::join_all(ids.iter().map(|id| {
        let meta = rig.record(*id);
        let osd = rig.osd_of(&meta, 0).clone();
        async move { osd.head(Rig::key(&meta, 0)).await.unwrap().epoch }
    }))
    .await;
    assert!(heads[..5].iter().all(|task| *task > heads[5]), "{heads:?}");
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn an_osd_that_is_left_is_emptied() {
    let mut rig = Rig::new(7).await;
    rig.fill(30, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.cluster.set_leaving(OsdId(3), true);
    rig.repair.look_at_all();
    rig.until("emptied", || rig.map.stripes.lock().values().all(|s| !s.osds.contains(&OsdId(3)))).await;
    rig.settled().await;
    rig.until("dropped", || rig.devices[3].osd.as_ref().unwrap().shards() == 0).await;
    rig.all_whole().await;
    assert!(rig.nothing_unnamed().await);
    rig.repair.stop().await;
}

#[tokio::test]
async fn stripes_written_narrower_are_written_again_when_osds_are_back() {
    let mut rig = Rig::new(4).await;
    let large = rig.fill(10, 150_000).await;
    assert!(large.iter().all(|id| rig.record(*id).code == Code::new(2, 2)));
    rig.repair.start();
    rig.settled().await;
    for id in 4..6 {
        rig.devices.push(Device::new(id).await);
    }
    rig.changed();
    rig.until("all wide", || rig.map.stripes.lock().values().all(|s| s.code == CODE)).await;
    rig.settled().await;
    rig.all_whole().await;
    assert_eq!(rig.repair.progress().reencoded_stripes, 10);
    let begun = tokio::time::Instant::now();
    while !rig.nothing_unnamed().await {
        assert!(begun.elapsed().as_secs() < 30, "the narrow shards stay");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    rig.repair.stop().await;
}

#[tokio::test]
async fn what_cannot_be_repaired_is_said_and_repaired_when_it_can_be() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["repair.lost"]);
    let mut rig = Rig::new(6).await;
    let id = rig.fill(1, 200_000).await[0];
    let meta = rig.record(id);
    rig.osd_of(&meta, 5).drop_shards(vec![Rig::key(&meta, 5)]).await.unwrap();
    let kept: Vec<_> = meta.osds[..2].iter().map(|o| (o.0 as usize, rig.devices[o.0 as usize].osd.take())).collect();
    rig.changed();
    rig.repair.start();
    rig.until("lost", || rig.repair.progress().lost == 1).await;
    assert_eq!(rig.repair.progress().state, "waiting");
    for (id, osd) in kept {
        rig.devices[id].osd = osd;
    }
    rig.changed();
    rig.settled().await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn an_osd_that_comes_back_is_held_against_the_records() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["repair.unnamed_shard"]);
    let mut rig = Rig::new(7).await;
    let ids = rig.fill(20, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    let away = rig.devices[0].osd.take();
    rig.cluster.set_leaving(OsdId(0), true);
    rig.changed();
    rig.cluster.set_leaving(OsdId(0), true);
    rig.repair.look_at_all();
    rig.until("moved", || rig.map.stripes.lock().values().all(|s| !s.osds.contains(&OsdId(0)))).await;
    // Meanwhile one is deleted, and an unpublished one of a session that lives stays.
    let dead = rig.map.stripes.lock().remove(&ids[3]).unwrap();
    rig.cluster.delete(vec![dead]).await.unwrap();
    let osd = away.unwrap();
    let shards = osd.shards();
    assert!(shards > 5);
    rig.devices[0].osd = Some(osd.clone());
    rig.changed();
    let mut write = stripe(1_000, CODE, 100_000);
    write.hint = Hint { bucket: BUCKET, ..Hint::default() };
    rig.map.open.lock().insert(write.id);
    let open = rig.cluster.write(write).await.unwrap();
    rig.repair.look_at_all();
    rig.until("dropped", || osd.shards() <= 1).await;
    rig.settled().await;
    assert!(rig.nothing_unnamed().await);
    assert_eq!(rig.cluster.examine(&open, 0).await.good, 0b111111, "what may still be published stays");
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_swap_that_fails_gives_back_what_was_written_and_tries_again() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["repair.swap_lost", "repair.swap_failed"]);
    let mut rig = Rig::new(7).await;
    let id = rig.fill(1, 200_000).await[0];
    let meta = rig.record(id);
    rig.cluster.set_leaving(meta.osds[2], true);
    *rig.map.refuse_swaps.lock() = 2;
    rig.repair.start();
    rig.until("moved", || rig.record(id).osds[2] != meta.osds[2]).await;
    rig.settled().await;
    assert_eq!(rig.repair.metrics().swaps_lost.get(), 2);
    rig.all_whole().await;
    let begun = tokio::time::Instant::now();
    while !rig.nothing_unnamed().await {
        assert!(begun.elapsed().as_secs() < 30, "shards that no record names stay");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_stripe_deleted_while_it_was_repaired_leaves_nothing() {
    let mut rig = Rig::new(6).await;
    let id = rig.fill(1, 200_000).await[0];
    let meta = rig.record(id);
    rig.repair.start();
    rig.settled().await;
    rig.map.stripes.lock().remove(&id);
    rig.cluster.delete(vec![meta.clone()]).await.unwrap();
    // As a repair that was overtaken would leave it.
    rig.cluster.write(stripe(id.counter, CODE, 200_000)).await.unwrap();
    rig.repair.sink().report(meta, 0, ShardFault::NotFound);
    rig.repair.look_at_all();
    rig.settled().await;
    rig.until("dropped", || rig.devices.iter().all(|d| d.osd.as_ref().unwrap().shards() == 0)).await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_stripe_published_after_its_osd_was_removed_is_made_whole_on_another() {
    let mut rig = Rig::new(7).await;
    rig.fill(20, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.devices.pop();
    rig.changed();
    rig.until("moved", || rig.map.stripes.lock().values().all(|s| !s.osds.contains(&OsdId(6)))).await;
    rig.settled().await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn an_osd_counts_after_a_walk_that_began_after_it_came_but_for_what_it_lacks() {
    let mut rig = Rig::new(6).await;
    let ids = rig.fill(20, 100_000).await;
    assert!(!rig.repair.looked_since(Begun::default()));
    rig.repair.start();
    rig.settled().await;
    assert!(rig.repair.looked_since(Begun::default()) && !rig.repair.looked_since(rig.repair.now()));
    // An empty one in the place of another, and too few others to fill it from.
    let away = [4, 5].map(|id| (id, rig.devices[id].osd.take()));
    let came = rig.repair.now();
    rig.replace(0).await;
    assert!(!rig.repair.looked_since(came));
    rig.until("looked at", || rig.repair.looked_since(came)).await;
    let on_the_new = |id| rig.record(id).osds.iter().position(|osd| *osd == OsdId(0)).map_or(0, |shard| 1 << shard);
    for id in &ids {
        assert_eq!(rig.repair.suspects_of(*id), on_the_new(*id));
    }
    // After a restart as before it: nothing is known until it was looked at.
    rig.restart_repair().await;
    assert!(!rig.repair.looked_since(Begun::default()));
    rig.repair.start();
    rig.until("looked at again", || rig.repair.looked_since(Begun::default())).await;
    let lacks = |rig: &Rig| ids.iter().filter(|id| rig.repair.suspects_of(**id) != 0).count();
    assert_eq!(lacks(&rig), ids.len());
    for (id, osd) in away {
        rig.devices[id].osd = osd;
    }
    rig.changed();
    rig.until("filled", || lacks(&rig) == 0 && rig.repair.progress().settled()).await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn what_the_queue_passes_over_is_not_known() {
    let mut rig = Rig::with(6, Config { queue_max: 2, ..quick() }).await;
    rig.fill(20, 100_000).await;
    for id in 3..6 {
        rig.devices[id].osd = None;
    }
    rig.replace(0).await;
    rig.repair.start();
    // All twenty are beyond repair, and two of them are remembered.
    rig.until("all were tried", || rig.repair.metrics().failures.get() >= 20).await;
    rig.until("the walk ended", || rig.repair.progress().state == "waiting").await;
    assert!(!rig.repair.looked_since(Begun::default()));
    rig.repair.stop().await;
}
