//! Cleaning: space comes back from segments that are partly dead, and nothing that lives is lost.

use super::*;
use holdfast_objstore_base::sim::Rng;

/// Puts shards until the device refuses; how many there are then.
async fn fill(osd: &Osd, blocks: usize) -> u64 {
    let mut n = 0;
    loop {
        match osd.put(shard(key(n), 0, blocks)).await {
            Ok(()) => n += 1,
            Err(Error::Full { .. }) => return n,
            Err(e) => panic!("{e}"),
        }
    }
}

#[tokio::test]
async fn a_device_overwritten_twenty_times_at_four_fifths_never_says_full_and_gives_all_but_the_reserve_back() {
    for seed in 0..3 {
        let disk = rig();
        let osd = open(&disk).await;
        let all = fill(&osd, 2).await;
        let empty_again = osd.delete((0..all).map(stripe).collect());
        empty_again.await.unwrap();
        settle(&osd).await;
        let (at_start, mut rng) = (osd.space(), Rng::new(seed));
        // Each is put anew under another id before the old one is deleted, as an overwrite does it.
        let held = all * 4 / 5 - 1;
        let mut ids: Vec<u64> = (1000..1000 + held).collect();
        for id in &ids {
            put(&osd, *id, 2).await;
        }
        let mut next = 10_000;
        for _ in 0..20 * held {
            let at = rng.below(held) as usize;
            osd.pace(8192).await;
            put(&osd, next, 2).await;
            osd.delete(vec![stripe(ids[at])]).await.unwrap();
            ids[at] = next;
            next += 1;
        }
        assert!(osd.metrics().segments_cleaned.get() > 100, "{} segments were cleaned", osd.metrics().segments_cleaned.get());
        for id in &ids {
            assert!(has(&osd, *id, 2).await, "{id}");
        }
        osd.flush().await.unwrap();
        let osd = open(&disk.crash(seed)).await;
        assert_eq!(osd.shards() as u64, held);
        osd.delete(ids.iter().map(|n| stripe(*n)).collect()).await.unwrap();
        settle(&osd).await;
        settle(&osd).await;
        let end = osd.space();
        assert_eq!((end.live, end.debt), (0, 0));
        assert!(end.free + 5 * SEGMENT >= at_start.free, "{end:?}, it was {at_start:?}");
        assert_eq!(fill(&osd, 2).await, all, "as much fits as before");
    }
}

#[tokio::test]
async fn a_full_device_takes_what_is_put_once_a_twentieth_is_deleted_here_and_there() {
    let disk = rig();
    let osd = open(&disk).await;
    let all = fill(&osd, 2).await;
    let gone: Vec<u64> = (0..all).filter(|n| n % 20 == 7).collect();
    osd.delete(gone.iter().map(|n| stripe(*n)).collect()).await.unwrap();
    for n in 0..gone.len() as u64 / 2 {
        put(&osd, 5000 + n, 2).await;
    }
    for n in (0..all).filter(|n| n % 20 != 7) {
        assert!(has(&osd, n, 2).await);
    }
}

#[tokio::test]
async fn a_read_of_the_old_place_is_answered_while_its_segment_is_emptied_and_given_back() {
    let disk = SimDisk::new(5);
    Osd::format(&disk, &dir(), options()).unwrap();
    let osd = open(&disk).await;
    for n in 0..40 {
        put(&osd, n, 2).await;
    }
    osd.delete((0..40).filter(|n| n % 4 > 0).map(stripe).collect()).await.unwrap();
    settle(&osd).await;
    let reads = async {
        for _ in 0..20 {
            for n in (0..40).step_by(4) {
                assert!(has(&osd, n, 2).await, "{n}");
            }
        }
    };
    let cleaning = async { while osd.0.clean_some(true).await.unwrap() {} };
    futures::join!(reads, cleaning);
    assert!(osd.metrics().segments_cleaned.get() > 3);
}

#[tokio::test]
async fn a_shard_that_cannot_be_read_keeps_its_segment_until_it_is_put_again() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.read_corrupt"]);
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..24 {
        put(&osd, n, 2).await;
    }
    osd.delete((0..24).filter(|n| n % 4 != 1).map(stripe).collect()).await.unwrap();
    settle(&osd).await;
    // The second record of the first segment: a head and two blocks behind two headers and the first record.
    assert!(disk.corrupt(&segment_path(0), 6 * 4096..6 * 4096 + 8, 1));
    while osd.0.clean_some(true).await.unwrap() {}
    assert!(osd.0.log.segments().iter().any(|s| s.number == 0), "the segment with the bad shard is there");
    assert!(osd.get(key(1), 0, 8192).await.is_err());
    put(&osd, 1, 2).await;
    settle(&osd).await;
    assert!(!osd.0.log.segments().iter().any(|s| s.number == 0 && s.life == 1), "it is given back");
    for n in (1..24).step_by(4) {
        assert!(has(&osd, n, 2).await);
    }
}

#[tokio::test]
async fn a_moved_shard_of_a_fenced_range_survives_a_restart_and_a_deleted_one_stays_away() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.put_fenced"]);
    use holdfast_objstore_proto::StripeRange;
    let disk = rig();
    let big = Config { checkpoint_bytes: u64::MAX, ..config() };
    let (osd, _) = open_with(&disk, big.clone()).await;
    for n in 0..24 {
        put(&osd, n, 2).await;
    }
    let live: Vec<_> = (0..24).step_by(3).map(stripe).collect();
    osd.raise_fence(StripeRange { first: stripe(0), count: 24 }, &live).await.unwrap();
    while osd.0.clean_some(true).await.unwrap() {}
    osd.delete(vec![stripe(0)]).await.unwrap();
    osd.flush().await.unwrap();
    assert!(osd.metrics().cleaned_bytes.get() > 0);
    for seed in 0..10 {
        let (osd, _) = open_with(&disk.crash(seed), big.clone()).await;
        for n in 0..24 {
            assert_eq!(has(&osd, n, 2).await, n % 3 == 0 && n > 0, "{n}");
        }
        assert!(matches!(osd.put(shard(key(5), 0, 2)).await, Err(Error::Fenced { .. })));
    }
}

#[tokio::test]
async fn a_crash_at_any_step_of_cleaning_loses_nothing_and_brings_nothing_back() {
    let mut steps = 0;
    for cut in 0..400 {
        let disk = rig();
        let osd = open(&disk).await;
        for n in 0..30 {
            put(&osd, n, 2).await;
        }
        osd.delete((0..30).filter(|n| n % 3 > 0).map(stripe).collect()).await.unwrap();
        osd.flush().await.unwrap();
        osd.0.log.close().await.unwrap();
        disk.cut_after(cut);
        while let Ok(true) = osd.0.clean_some(true).await {}
        let over = !disk.is_cut();
        disk.cut_now();
        let osd = open(&disk.crash(cut)).await;
        for n in 0..30 {
            assert_eq!(has(&osd, n, 2).await, n % 3 == 0, "cut {cut}: {n}");
        }
        if over {
            steps = cut;
            break;
        }
    }
    assert!(steps > 10, "cleaning ended after {steps} steps");
}

#[tokio::test]
async fn writers_near_the_end_of_the_room_wait_for_cleaning_to_get_on_and_never_once_it_has_ended() {
    use futures::FutureExt;
    let disk = rig();
    let osd = open(&disk).await;
    fill(&osd, 2).await;
    // A run of cleaning, step by step.
    osd.0.state.lock().cleaning.running = true;
    let ahead = SEGMENT / 4;
    assert!(osd.pace(ahead).now_or_never().is_some(), "what is won by half a segment is lent");
    let mut waits = [Box::pin(osd.pace(ahead)), Box::pin(osd.pace(2 * SEGMENT))];
    assert!(waits.iter_mut().all(|w| w.as_mut().now_or_never().is_none()));
    osd.0.state.lock().cleaning.gained += 2 * SEGMENT + ahead;
    osd.0.eased.notify_waiters();
    assert!(waits.iter_mut().all(|w| w.as_mut().now_or_never().is_some()));
    let mut wait = Box::pin(osd.pace(100 * SEGMENT));
    assert!(wait.as_mut().now_or_never().is_none());
    osd.0.state.lock().cleaning.running = false;
    osd.0.eased.notify_waiters();
    assert!(wait.as_mut().now_or_never().is_some(), "its end lets all go");
    assert_eq!(osd.metrics().paced.get(), 3);
}

#[tokio::test]
async fn room_for_rewriting_is_left_where_users_find_none() {
    let disk = rig();
    let osd = open(&disk).await;
    let mut n = 0;
    while osd.put(shard(key(n), 0, 2)).await.is_ok() {
        n += 1;
    }
    let s = osd.space();
    assert!(s.free_own >= s.free + SEGMENT, "{s:?}");
    let mut copies = 0;
    while osd.put(ShardPut { background: true, ..shard(key(n), 0, 2) }).await.is_ok() {
        (n, copies) = (n + 1, copies + 1);
    }
    assert!(copies * 3 * 4096 > SEGMENT, "{copies} copies");
    assert!(matches!(osd.put(shard(key(n), 0, 2)).await, Err(Error::Full { .. })));
    // What the copies let go comes back.
    osd.delete((0..n / 2).map(stripe).collect()).await.unwrap();
    osd.put(shard(key(n), 0, 2)).await.unwrap();
}

#[tokio::test]
async fn a_device_without_any_room_left_is_cleaned_within_what_it_has() {
    let disk = rig();
    let osd = open(&disk).await;
    osd.0.log.close().await.unwrap();
    disk.set_capacity(Some(10 * SEGMENT));
    let all = fill(&osd, 2).await;
    assert!(all > 20);
    osd.delete((0..all).filter(|n| n % 2 == 0).map(stripe).collect()).await.unwrap();
    settle(&osd).await;
    for n in 0..all / 4 {
        put(&osd, 5000 + n, 2).await;
    }
    for n in (1..all).step_by(2) {
        assert!(has(&osd, n, 2).await);
    }
}
