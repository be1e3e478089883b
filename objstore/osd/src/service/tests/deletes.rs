//! Deletes: space comes back, and nothing deleted does.

use super::*;

#[tokio::test]
async fn a_deleted_stripe_is_gone_at_once_and_after_a_flush_for_good() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..6 {
        put(&osd, n, 2).await;
    }
    osd.delete(vec![stripe(1), stripe(4), stripe(99)]).await.unwrap();
    assert!(!has(&osd, 1, 2).await && !has(&osd, 4, 2).await && has(&osd, 2, 2).await);
    osd.flush().await.unwrap();
    for seed in 0..20 {
        let osd = open(&disk.crash(seed)).await;
        assert_eq!(osd.shards(), 4);
        assert!(!has(&osd, 1, 2).await && has(&osd, 2, 2).await);
    }
}

#[tokio::test]
async fn dead_segments_come_back_at_once_and_the_files_stay_few() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..600u64 {
        put(&osd, n, 3).await;
        if n >= 8 {
            osd.delete(vec![stripe(n - 8)]).await.unwrap();
        }
    }
    settle(&osd).await;
    let used = osd.space().used;
    assert!(used <= 20 * SEGMENT, "eight live shards in {} segments", used / SEGMENT);
    assert!(osd.metrics().log.segments_recycled.get() > 50);
    let osd = open(&disk.crash(3)).await;
    assert_eq!(osd.shards(), 8);
}

#[tokio::test]
async fn a_delete_outlives_its_segment_only_while_a_recovery_could_miss_it() {
    // A shard and a neighbour in one segment; the delete in another, which dies; no checkpoint stands behind it.
    let disk = rig();
    let big = Config { checkpoint_bytes: u64::MAX, ..config() };
    let (osd, _) = open_with(&disk, big.clone()).await;
    put(&osd, 1, 1).await;
    put(&osd, 2, 1).await; // keeps the first segment
    osd.0.log.roll().await.unwrap();
    osd.delete(vec![stripe(1)]).await.unwrap();
    osd.0.log.roll().await.unwrap();
    put(&osd, 3, 1).await;
    settle(&osd).await;
    assert!(osd.0.log.covered_twice().is_none());
    // The delete's segment holds no live byte, and must stay.
    for seed in 0..10 {
        let (again, _) = open_with(&disk.crash(seed), big.clone()).await;
        assert!(!has(&again, 1, 1).await, "it came back");
    }
    let segments = osd.0.log.segments().len();
    // With its target gone, it may go.
    osd.delete(vec![stripe(2)]).await.unwrap();
    osd.0.log.roll().await.unwrap();
    settle(&osd).await;
    assert!(osd.0.log.segments().len() < segments);
    let (again, _) = open_with(&disk.crash(99), big).await;
    assert_eq!(again.shards(), 1);
}

#[tokio::test]
async fn segments_of_deletes_alone_are_let_go_by_checkpoints_and_either_slot_suffices() {
    let disk = rig();
    let osd = open(&disk).await;
    // Every segment keeps one live shard, so no target is ever retired.
    for n in 0..100u64 {
        put(&osd, n, 2).await;
    }
    osd.flush().await.unwrap();
    for n in (0..100u64).filter(|n| n % 5 != 0) {
        osd.delete(vec![stripe(n)]).await.unwrap();
    }
    settle(&osd).await;
    settle(&osd).await;
    osd.flush().await.unwrap();
    let kept = osd.0.log.segments().len();
    assert!(kept <= 25 + 6, "{kept} segments: 80 deletes are five segments, and may not all stay");
    for slot in 0..2 {
        let after = disk.crash(slot);
        assert!(after.corrupt(&dir().join("log").join(format!("checkpoint.{slot}")), 4096..4100, 1));
        let osd = open(&after).await;
        assert_eq!(osd.shards(), 20, "slot {slot} lost");
    }
}

#[tokio::test]
async fn a_full_osd_refuses_puts_takes_deletes_survives_restarts_and_has_room_again() {
    let disk = rig();
    let small = Config { capacity_bytes: Some(8 * SEGMENT), ..config() };
    let (osd, _) = open_with(&disk, small.clone()).await;
    let mut held = 0;
    loop {
        match osd.put(shard(key(held), 0, 2)).await {
            Ok(()) => held += 1,
            Err(Error::Full { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(held >= 20 && osd.failure().is_none());
    assert!(osd.space().free < 3 * 4096, "{:?}", osd.space());
    let mut disk = disk.crash(1);
    // Each start takes a fresh segment; the reserve must not be eaten up by them.
    for round in 0..12 {
        let (osd, recovery) = open_with(&disk, small.clone()).await;
        assert_eq!((osd.shards() as u64, recovery.faults.len()), (held - round, 0), "round {round}");
        assert!(matches!(osd.put(shard(key(1000), 0, 2)).await, Err(Error::Full { .. })) || round > 0);
        osd.delete(vec![stripe(round)]).await.unwrap();
        osd.delete(vec![stripe(1000)]).await.unwrap();
        osd.flush().await.unwrap();
        settle(&osd).await;
        disk = disk.crash(round);
    }
    let (osd, _) = open_with(&disk, small).await;
    osd.delete((0..held).map(stripe).collect()).await.unwrap();
    osd.flush().await.unwrap();
    settle(&osd).await;
    for n in 2000..2000 + held - 6 {
        put(&osd, n, 2).await;
    }
}

#[tokio::test]
async fn a_dropped_shard_is_gone_for_good_and_its_neighbour_in_the_stripe_stays() {
    let disk = rig();
    let osd = open(&disk).await;
    let key = |n: u8| ShardKey { stripe: stripe(7), shard: n };
    for n in [1, 3] {
        osd.put(shard(key(n), n as u64, 2)).await.unwrap();
    }
    osd.drop_shards(vec![key(1), key(5)]).await.unwrap();
    assert!(matches!(osd.head(key(1)).await, Err(Error::NotFound { .. })));
    // The place is free for another writing of the same shard.
    osd.put(shard(key(1), 9, 2)).await.unwrap();
    osd.drop_shards(vec![key(1)]).await.unwrap();
    osd.flush().await.unwrap();
    for seed in 0..20 {
        let osd = open(&disk.crash(seed)).await;
        assert_eq!((osd.shards(), osd.verify(key(3)).await.unwrap().key), (1, key(3)));
        assert!(matches!(osd.look(key(1)).await, Err(Error::NotFound { .. })));
    }
}

#[tokio::test]
async fn verifying_reads_the_device_whatever_is_cached() {
    let disk = rig();
    let osd = open(&disk).await;
    put(&osd, 1, 2).await;
    assert!(osd.look(key(1)).await.is_ok() && osd.verify(key(1)).await.is_ok());
    let life = osd.0.state.lock().index.shards.values().next().unwrap().position;
    let number = osd.0.log.segments().iter().find(|s| s.life == life.life).unwrap().number;
    let at = life.block as u64 * 4096;
    disk.corrupt(&segment_path(number), at..at + 64, 5);
    assert!(osd.head(key(1)).await.is_ok(), "the cache has it");
    assert!(matches!(osd.look(key(1)).await, Err(Error::Corrupt { .. })));
    assert!(matches!(osd.verify(key(1)).await, Err(Error::Corrupt { .. })));
}
