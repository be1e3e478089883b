//! Appends, reads, flushes and failures of a running log.

use super::*;
use futures::future::join_all;

#[tokio::test]
async fn records_come_back_as_they_were_and_again_after_a_restart() {
    let disk = rig();
    let (log, recovery, _) = open(&disk).await;
    assert_eq!((recovery.epoch, recovery.records, recovery.torn.clone()), (1, 0, None));
    let sizes = [0, 1, 100, 4096, 5000, 8192, 40_000];
    let mut at = Vec::new();
    for (i, size) in sizes.iter().enumerate() {
        at.push((format!("record {i}"), *size, put(&log, &format!("record {i}"), *size).await));
    }
    log.flush().await.unwrap();
    assert_eq!(log.durable_seq(), log.last_seq());
    for round in 0..2 {
        let (log, _, seen) = if round == 0 { (log.clone(), Recovery::default(), Seen::default()) } else { open(&disk.kill()).await };
        for (i, (name, size, a)) in at.iter().enumerate() {
            let whole = payload(name, *size);
            assert_eq!(log.read(&a.location, 0, *size as u32).await.unwrap(), whole);
            let (from, len) = (size / 3, size / 2);
            assert_eq!(log.read(&a.location, from as u32, len as u32).await.unwrap(), whole.slice(from..from + len));
            assert!(matches!(log.read(&a.location, 0, *size as u32 + 1).await, Err(Error::Bug(_))));
            let head = log.read_head(&a.location).await.unwrap();
            assert_eq!((head.seq, &head.meta[..]), (a.seq, name.as_bytes()));
            if round == 1 {
                assert_eq!((seen.records[i].1, &seen.records[i].2[..], seen.records[i].3), (a.seq, name.as_bytes(), a.location));
            }
        }
    }
}

#[tokio::test]
async fn a_small_record_takes_one_block_and_one_write() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let before = (disk.metrics().writes(), disk.metrics().write_bytes(), disk.metrics().flushes());
    let a = log.append(Append::new(9, vec![5u8; META_BYTES_ONE_BLOCK])).await.unwrap();
    log.flush().await.unwrap();
    assert_eq!(a.location.stored_bytes(), 4096);
    let after = (disk.metrics().writes(), disk.metrics().write_bytes(), disk.metrics().flushes());
    assert_eq!((after.0 - before.0, after.1 - before.1, after.2 - before.2), (1, 4096, 1));
    log.flush().await.unwrap();
    assert_eq!(disk.metrics().flushes(), after.2, "nothing to flush, nothing flushed");
}

#[tokio::test]
async fn unaligned_payloads_are_copied_and_right() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let whole = payload("x", 9000);
    let off = AlignedBuf::copy_of(&[&[0u8; 3][..], &whole[..]].concat()).freeze().slice(3..);
    let a = log.append(Append::new(1, "off").payload(off)).await.unwrap();
    assert_eq!(log.read(&a.location, 0, 9000).await.unwrap(), whole);
}

#[tokio::test]
async fn concurrent_appends_get_numbers_in_the_order_of_their_places() {
    let disk = SimDisk::new(5);
    Log::format(&disk, &dir(), ID, &config()).unwrap();
    let (log, _, _) = open(&disk).await;
    let all = join_all((0..100).map(|i| {
        let log = log.clone();
        async move { put(&log, &format!("r{i}"), (i % 5) * 3000).await }
    }))
    .await;
    assert!(all.windows(2).all(|w| w[0].seq < w[1].seq && w[0].location.position < w[1].location.position), "first polled, first placed");
    log.flush().await.unwrap();
    log.close().await.unwrap();
    let (_, recovery, seen) = open(&disk.crash(3)).await;
    assert_eq!((seen.records.len(), recovery.faults.len()), (100, 0));
}

#[tokio::test]
async fn a_failed_write_takes_the_log_out_of_service_and_leaves_it_readable() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let a = put(&log, "kept", 5000).await;
    log.flush().await.unwrap();
    disk.fail_write(1);
    assert!(matches!(log.append(Append::new(1, "lost")).await, Err(Error::Failed(_))));
    assert!(matches!(log.append(Append::new(1, "later")).await, Err(Error::Failed(_))));
    assert!(matches!(log.flush().await, Err(Error::Failed(_))));
    assert!(log.failure().unwrap().contains("append"));
    assert_eq!(log.read(&a.location, 0, 5000).await.unwrap(), payload("kept", 5000));
    let (_, _, seen) = open(&disk.kill()).await;
    assert_eq!(seen.metas(), ["kept"]);
}

#[tokio::test]
async fn a_failed_flush_takes_the_log_out_of_service() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put(&log, "a", 0).await;
    disk.fail_flush(1);
    assert!(matches!(log.flush().await, Err(Error::Failed(_))));
    assert!(matches!(log.flush().await, Err(Error::Failed(_))));
    assert!(matches!(log.append(Append::new(1, "b")).await, Err(Error::Failed(_))));
    assert!(log.failure().unwrap().contains("flush"));
}

#[tokio::test]
async fn a_dropped_append_leaves_no_gap() {
    let disk = SimDisk::new(11);
    Log::format(&disk, &dir(), ID, &config()).unwrap();
    let (log, _, _) = open(&disk).await;
    for round in 0..20 {
        let mut doomed = Box::pin(log.append(Append::new(1, format!("doomed {round}")).payload(payload("d", 4096))));
        // One poll places it; then nobody waits for it any more.
        let _ = futures::poll!(doomed.as_mut());
        drop(doomed);
        put(&log, &format!("after {round}"), 0).await;
        log.flush().await.unwrap();
        assert_eq!(log.durable_seq(), log.last_seq());
    }
    assert_eq!(log.failure(), None);
    let (_, recovery, seen) = open(&disk.crash(1)).await;
    assert!(seen.metas().iter().filter(|m| m.starts_with("after")).count() == 20 && recovery.faults.is_empty());
}

#[tokio::test]
async fn an_append_whose_runtime_ends_is_carried_on_where_the_log_was_opened() {
    let disk = SimDisk::new(11);
    Log::format(&disk, &dir(), ID, &config()).unwrap();
    let (log, _, _) = open(&disk).await;
    for round in 0..20 {
        let append = log.append(Append::new(1, format!("begun {round}")).payload(payload("b", 4096)));
        let ends_in_the_middle = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (placed, is_placed) = tokio::sync::oneshot::channel();
            runtime.spawn(async move {
                let mut append = Box::pin(append);
                let _ = futures::poll!(append.as_mut());
                let _ = placed.send(());
                std::future::pending::<()>().await;
            });
            runtime.block_on(is_placed).unwrap();
        };
        std::thread::spawn(ends_in_the_middle).join().unwrap();
        put(&log, &format!("after {round}"), 0).await;
        log.flush().await.unwrap();
        assert_eq!(log.durable_seq(), log.last_seq());
    }
    assert_eq!(log.failure(), None);
    let (_, _, seen) = open(&disk.crash(1)).await;
    assert_eq!(seen.records.len(), 40);
}

#[tokio::test]
async fn a_flush_waits_for_an_earlier_append_that_is_under_way() {
    let disk = SimDisk::new(2);
    Log::format(&disk, &dir(), ID, &config()).unwrap();
    for seed in 0..50 {
        let disk = disk.crash(seed);
        let (log, _, _) = open(&disk).await;
        let (slow, quick) = (log.append(Append::new(1, "slow").payload(payload("slow", 16384))), log.append(Append::new(1, "quick")));
        let flushed = async {
            let q = quick.await.unwrap();
            let durable = log.flush().await.unwrap();
            assert!(durable >= q.seq);
            // What is called durable must be there after a power cut at once.
            open(&disk.crash(seed)).await.2.metas()
        };
        let (slow, metas) = futures::join!(slow, flushed);
        slow.unwrap();
        assert_eq!(metas, ["slow", "quick"]);
    }
}

#[tokio::test]
async fn what_breaks_the_rules_is_refused_and_changes_nothing() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    for bad in [
        Append::new(0, ""),
        Append::new(KIND_MAX + 1, ""),
        Append::new(1, vec![0; META_BYTES_MAX + 1]),
        Append::new(1, "").payload(payload("p", 61440)),
        Append::new(1, "").payload(payload("p", 4096)).crcs(Arc::new([])),
    ] {
        assert!(matches!(log.append(bad).await, Err(Error::Bug(_))));
    }
    assert_eq!((log.last_seq(), log.failure()), (0, None));
}

#[tokio::test]
async fn a_flipped_byte_is_found_and_named() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let a = put(&log, "x", 20_000).await;
    let b = put(&log, "y", 4096).await;
    log.flush().await.unwrap();
    let (log, _, _) = open(&disk).await;
    let number = number_of_life(&log, a.location.position.life);
    let block_at = |l: &Location, n: u64| (l.position.block + l.head_blocks) as u64 * 4096 + n * 4096;
    disk.corrupt(&path(number), block_at(&a.location, 3) + 17..block_at(&a.location, 3) + 18, 1);
    assert!(matches!(log.read(&a.location, 0, 20_000).await, Err(Error::Corrupt { block: Some(3), .. })));
    assert_eq!(log.read(&a.location, 0, 12_288).await.unwrap(), payload("x", 20_000).slice(..12_288), "the blocks around it are served");
    let head_at = b.location.position.block as u64 * 4096;
    disk.corrupt(&path(number), head_at + 70..head_at + 71, 1);
    let fresh = open(&disk.kill()).await.0;
    assert!(matches!(fresh.read(&b.location, 0, 10).await, Err(Error::Corrupt { block: None, .. })));
    assert_eq!(log.counters().crc_failures.get(), 1);
}
