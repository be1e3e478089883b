//! Scrubs find what nobody read, go on over restarts, and fall due.

use crate::rig::Rig;
use holdfast_objstore_client::Objects;
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_repair::Depth;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn a_deep_scrub_finds_bit_rot_and_it_is_repaired() {
    let mut rig = Rig::new(6).await;
    rig.fill(25, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.rot(1, 11);
    rig.rot(4, 12);
    rig.repair.scrub(Depth::Deep);
    rig.until("scrubbed", || rig.repair.scrub_status().state.deep.is_some()).await;
    rig.settled().await;
    let ended = rig.repair.scrub_status().state.deep.unwrap();
    assert!(ended.faults >= 25 && ended.stripes == 25 && ended.bytes > 0, "{ended:?}");
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_light_scrub_finds_absent_shards_and_reads_no_blocks() {
    let mut rig = Rig::new(6).await;
    let ids = rig.fill(20, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    for id in &ids[..5] {
        let meta = rig.record(*id);
        rig.osd_of(&meta, 3).drop_shards(vec![Rig::key(&meta, 3)]).await.unwrap();
    }
    rig.repair.scrub(Depth::Light);
    rig.until("scrubbed", || rig.repair.scrub_status().state.light.is_some()).await;
    rig.settled().await;
    let ended = rig.repair.scrub_status().state.light.unwrap();
    assert_eq!((ended.stripes, ended.bytes), (20, 0));
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn nothing_is_deleted_while_the_records_may_be_old() {
    let mut rig = Rig::new(6).await;
    let ids = rig.fill(20, 100_000).await;
    // As after the restore of a backup from before the last ten: nothing names them, and no session may publish them any more.
    rig.map.old.store(true, Ordering::Relaxed);
    ids[10..].iter().for_each(|id| drop(rig.map.stripes.lock().remove(id)));
    let shards = || rig.devices.iter().map(|d| d.osd.as_ref().unwrap().shards()).sum::<usize>();
    let before = shards();
    rig.repair.start();
    rig.settled().await;
    rig.repair.look_at_all();
    rig.settled().await;
    for depth in [Depth::Deep, Depth::Light] {
        rig.repair.scrub(depth);
        let ended = || rig.repair.scrub_status().state;
        rig.until("scrubbed", || if depth == Depth::Deep { ended().deep.is_some() } else { ended().light.is_some() }).await;
        rig.settled().await;
    }
    assert_eq!(shards(), before);
    rig.all_whole().await;
    // An operator confirms.
    rig.map.old.store(false, Ordering::Relaxed);
    rig.repair.look_at_all();
    rig.until("dropped", || shards() == before / 2).await;
    assert!(rig.nothing_unnamed().await);
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_scrub_goes_on_where_it_stopped() {
    let mut rig = Rig::new(6).await;
    rig.fill(40, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.repair.scrub(Depth::Deep);
    let part = || rig.repair.scrub_status().state.running.is_some_and(|r| r.stripes > 0);
    rig.until("part of it", part).await;
    rig.restart_repair().await;
    let kept = rig.repair.scrub_status().state.running;
    if let Some(kept) = kept {
        assert!(kept.stripes >= 7 && kept.after.is_some(), "{kept:?}");
    }
    rig.repair.start();
    rig.until("scrubbed", || rig.repair.scrub_status().state.deep.is_some()).await;
    assert_eq!(rig.repair.scrub_status().state.deep.unwrap().stripes, 40, "each stripe once");
    rig.repair.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scrubs_fall_due() {
    let mut rig = Rig::new(6).await;
    rig.fill(3, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    assert!(rig.repair.scrub_status().state.light.is_none());
    let day = Duration::from_secs(24 * 3600);
    rig.clock.advance(day.as_nanos() as u64 + 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    rig.until("a light one", || rig.repair.scrub_status().state.light.is_some()).await;
    assert!(rig.repair.scrub_status().state.deep.is_none());
    rig.clock.advance(6 * day.as_nanos() as u64 + 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    rig.until("a deep one", || rig.repair.scrub_status().state.deep.is_some()).await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_scrub_ends_however_much_is_written_meanwhile_and_what_is_deleted_under_it_is_no_fault() {
    let mut rig = Rig::new(6).await;
    let mut ids = rig.fill(30, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.repair.scrub(Depth::Deep);
    let mut rounds = 0;
    while rig.repair.scrub_status().state.deep.is_none() {
        // Faster than it looks: by itself it would never come to an end.
        ids.extend(rig.fill(10, 20_000).await);
        for id in ids.drain(..10) {
            let gone = rig.map.stripes.lock().remove(&id).unwrap();
            rig.cluster.delete(vec![gone]).await.unwrap();
        }
        rounds += 1;
        assert!(rounds < 2000, "{:?}", rig.repair.scrub_status());
    }
    let ended = rig.repair.scrub_status().state.deep.unwrap();
    // Ten may have been written before it looked what there is.
    assert!(ended.stripes <= 40 && ended.faults == 0, "{ended:?}");
    rig.settled().await;
    rig.repair.stop().await;
}
