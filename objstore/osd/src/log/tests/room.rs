//! Segments: made, recycled, refused for want of room.

use super::*;

#[tokio::test]
async fn segments_are_recycled_under_new_lives_and_files_do_not_grow_in_number() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let mut old = Vec::new();
    for i in 0..200 {
        let a = put(&log, &format!("r{i}"), 8192).await;
        old.push(a.location);
        let sealed: Vec<u32> = log.segments().iter().filter(|s| s.settled).map(|s| s.life).collect();
        for life in sealed {
            log.retire(life).await.unwrap();
        }
    }
    log.close().await.unwrap();
    assert!(log.counters().segments_recycled.get() > 20);
    assert!(log.space().files <= 4 * SEGMENT, "{:?}", log.space());
    assert!(matches!(log.read(&old[0], 0, 10).await, Err(Error::Gone(_))));
    let (_, recovery, seen) = open(&disk.crash(9)).await;
    assert!(recovery.faults.is_empty());
    let last = seen.records.last().unwrap();
    assert_eq!(&last.2[..], b"r199");
    assert!(seen.records.len() < 10, "the retired ones are gone");
}

#[tokio::test]
async fn a_recycled_segment_never_shows_records_of_its_former_life() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a", "b", "c", "d", "e"]).await;
    log.roll().await.unwrap();
    let first = log.segments()[0];
    log.retire(first.life).await.unwrap();
    put(&log, "middle", 0).await;
    log.roll().await.unwrap();
    log.roll().await.unwrap();
    put(&log, "new", 0).await;
    log.flush().await.unwrap();
    assert!(log.segments().iter().any(|s| s.number == first.number), "the file is in use again");
    assert_eq!(open(&disk.crash(1)).await.2.metas(), ["middle", "new"]);
}

#[tokio::test]
async fn a_full_log_refuses_ordinary_appends_takes_urgent_ones_and_recovers() {
    let disk = rig();
    let small = Config { segments_max: 5, segments_reserve: 2, ..config() };
    let (log, _, _) = open_with(&disk, small.clone()).await.unwrap();
    let mut held = 0;
    let full = loop {
        match log.append(Append::new(1, "x").payload(payload("x", 4096))).await {
            Ok(_) => held += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(full, Error::Full) && held >= 3 * 5, "{held}");
    assert_eq!(log.failure(), None);
    for _ in 0..20 {
        log.append(Append::new(2, "urgent").urgent()).await.unwrap();
        assert!(matches!(log.append(Append::new(1, "x").payload(payload("x", 4096))).await, Err(Error::Full)));
    }
    // A restart while full opens, and still takes urgent records.
    let disk = disk.crash(4);
    let (log, recovery, _) = open_with(&disk, small).await.unwrap();
    assert!(recovery.faults.is_empty());
    log.append(Append::new(2, "urgent").urgent()).await.unwrap();
    for s in log.segments().iter().filter(|s| s.settled) {
        log.retire(s.life).await.unwrap();
    }
    log.append(Append::new(1, "y").payload(payload("y", 4096))).await.unwrap();
    assert!(log.counters().segments_recycled.get() > 0 || log.space().files <= 5 * SEGMENT);
}

#[tokio::test]
async fn a_device_without_room_refuses_without_failing_the_log() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    log.close().await.unwrap();
    disk.set_capacity(Some(3 * SEGMENT + 40_000));
    let mut held = Vec::new();
    let full = loop {
        match log.append(Append::new(1, "x").payload(payload("x", 4096))).await {
            Ok(a) => held.push(a),
            Err(e) => break e,
        }
    };
    assert!(matches!(full, Error::Full));
    assert_eq!(log.failure(), None);
    log.append(Append::new(2, "urgent").urgent()).await.unwrap();
    for _ in 0..100 {
        assert!(matches!(log.append(Append::new(1, "x").payload(payload("x", 4096))).await, Err(Error::Full)));
    }
    for a in &held {
        assert_eq!(log.read(&a.location, 0, 4096).await.unwrap(), payload("x", 4096));
    }
    log.flush().await.unwrap();
    let oldest = log.segments()[0].life;
    log.retire(oldest).await.unwrap();
    log.append(Append::new(1, "y").payload(payload("y", 4096))).await.unwrap();
    let more = loop {
        match log.append(Append::new(1, "z").payload(payload("z", 4096))).await {
            Ok(_) => disk.set_capacity(None),
            Err(e) => break Some(e),
        }
        if log.segments().len() > 5 {
            break None;
        }
    };
    assert!(more.is_none(), "room again, appends again: {more:?}");
}

#[tokio::test]
async fn a_segment_serves_only_after_its_zeroes_length_and_name_are_stable() {
    // Every step of a first start may be the last one; the next start must work and find nothing wrong.
    for cut in 0..60 {
        let disk = rig();
        disk.cut_after(cut);
        let kept = match Log::open(Arc::new(disk.clone()), &dir(), config(), &mut Seen::default()).await {
            Ok((log, _)) => log.append(Append::new(1, "a")).await.is_ok() && log.flush().await.is_ok(),
            Err(_) => false,
        };
        disk.cut_now();
        for seed in 0..8 {
            let after = disk.crash(seed);
            let (log, recovery, seen) = open(&after).await;
            assert!(recovery.faults.is_empty(), "cut {cut} seed {seed}: {:?}", recovery.faults);
            assert!(!kept || seen.metas() == ["a"], "cut {cut} seed {seed}");
            put(&log, "b", 5000).await;
            log.flush().await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_appended_before_a_segment_was_retired_is_stable_before_its_records_go() {
    for cut in 0..8 {
        for seed in 0..8 {
            let disk = rig();
            let (log, _, _) = open(&disk).await;
            put(&log, "old", 0).await;
            log.roll().await.unwrap();
            log.close().await.unwrap();
            put(&log, "new", 0).await; // takes the place of the old one
            disk.cut_after(cut);
            let life = log.segments()[0].life;
            let retired = log.retire(life).await.is_ok();
            let metas = open(&disk.crash(seed)).await.2.metas();
            assert!(metas.contains(&"new".to_string()) || metas == ["old"], "cut {cut} seed {seed}: {metas:?}");
            assert!(!retired || metas == ["new"]);
        }
    }
}
