//! Devices that lie, fail or fill up.

use super::*;
use crate::log::Fault;

async fn three(blocks: usize) -> SimDisk {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..3 {
        put(&osd, n, blocks).await;
    }
    osd.flush().await.unwrap();
    put(&osd, 3, 1).await;
    osd.flush().await.unwrap();
    disk.kill()
}

#[tokio::test]
async fn a_flipped_byte_of_payload_is_corrupt_and_a_new_put_repairs_it() {
    let disk = three(2).await;
    // The first record: head at block 2, payload at 3 and 4.
    disk.corrupt(&segment_path(0), 4 * 4096 + 100..4 * 4096 + 101, 1);
    let osd = open(&disk).await;
    assert!(matches!(osd.get(key(0), 0, 8192).await, Err(Error::Corrupt { .. })));
    assert_eq!(osd.get(key(0), 0, 4096).await.unwrap().data, data(key(0), 0, 2).slice(..4096), "the good block is served");
    assert!(osd.metrics().log.crc_failures.get() > 0);
    put(&osd, 0, 2).await;
    assert!(has(&osd, 0, 2).await);
    osd.flush().await.unwrap();
    // The copy that counts is the new one, and a delete takes both away.
    let disk = disk.crash(1);
    let osd = open(&disk).await;
    assert!(has(&osd, 0, 2).await);
    osd.delete(vec![stripe(0)]).await.unwrap();
    osd.flush().await.unwrap();
    assert!(!has(&open(&disk.crash(2)).await, 0, 2).await);
}

#[tokio::test]
async fn a_flipped_byte_of_a_durable_head_is_reported_and_not_taken_for_a_torn_tail() {
    let disk = three(2).await;
    disk.corrupt(&segment_path(0), 5 * 4096 + 70..5 * 4096 + 71, 1); // the second record's head
    let (osd, recovery) = open_with(&disk, config()).await;
    assert!(matches!(&recovery.faults[..], [Fault::Records { first_seq: 2, .. }]), "{recovery:?}");
    assert_eq!((osd.metrics().faults.get(), osd.metrics().torn_tails.get()), (1, 0));
    assert!(has(&osd, 0, 2).await && !has(&osd, 1, 2).await && has(&osd, 2, 2).await && has(&osd, 3, 1).await);
}

#[tokio::test]
async fn a_head_that_rots_while_running_is_corrupt_once_it_is_read_again() {
    let disk = three(2).await;
    let osd = open(&disk).await;
    disk.corrupt(&segment_path(0), 2 * 4096 + 70..2 * 4096 + 71, 1);
    assert!(matches!(osd.head(key(0)).await, Err(Error::Corrupt { .. })));
    assert!(matches!(osd.get(key(0), 0, 4096).await, Err(Error::Corrupt { .. })));
}

#[tokio::test]
async fn random_bytes_over_whole_segments_never_give_wrong_ones() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.segment_unreadable"]);
    for seed in 0..20 {
        let disk = rig();
        let osd = open(&disk).await;
        for n in 0..40 {
            put(&osd, n, 2).await;
        }
        osd.close().await.unwrap();
        let disk = disk.kill();
        for number in [seed as u32 % 5, 6] {
            assert!(disk.corrupt(&segment_path(number), 0..SEGMENT, seed));
        }
        let osd = open(&disk).await;
        let mut lost = 0;
        for n in 0..40 {
            match osd.get(key(n), 0, 8192).await {
                Ok(read) => assert_eq!(read.data, data(key(n), 0, 2)),
                Err(Error::NotFound { .. } | Error::Corrupt { .. }) => lost += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert!((4..=16).contains(&lost), "{lost}");
        assert!(osd.metrics().faults.get() >= 1);
        put(&osd, 500, 2).await;
        osd.flush().await.unwrap();
        assert!(has(&open(&disk.crash(seed)).await, 500, 2).await);
    }
}

#[tokio::test]
async fn a_failed_flush_takes_the_osd_out_of_service_and_says_why() {
    let disk = rig();
    let osd = open(&disk).await;
    put(&osd, 1, 1).await;
    disk.fail_flush(1);
    assert!(matches!(osd.flush().await, Err(Error::Down { .. })));
    assert!(matches!(osd.put(shard(key(2), 0, 1)).await, Err(Error::Down { .. })));
    assert!(matches!(osd.delete(vec![stripe(1)]).await, Err(Error::Down { .. })));
    assert!(matches!(osd.get(key(1), 0, 1).await, Err(Error::Down { .. })));
    assert!(osd.failure().unwrap().contains("flush"));
}

#[tokio::test]
async fn a_read_error_is_one_bad_shard_and_many_in_a_row_a_lost_device() {
    let disk = rig();
    let osd = open_with(&disk, Config { read_errors_max: 3, ..config() }).await.0;
    put(&osd, 1, 1).await;
    disk.fail_read(1);
    assert!(matches!(osd.get(key(1), 0, 4096).await, Err(Error::Corrupt { .. })));
    assert!(has(&osd, 1, 1).await);
    for _ in 0..2 {
        disk.fail_read(1);
        assert!(matches!(osd.get(key(1), 0, 4096).await, Err(Error::Corrupt { .. })));
    }
    disk.fail_read(1);
    assert!(matches!(osd.get(key(1), 0, 4096).await, Err(Error::Down { .. })));
    assert!(osd.failure().is_some());
}

#[tokio::test]
async fn a_device_that_fills_up_is_full_and_not_lost() {
    let disk = rig();
    let osd = open(&disk).await;
    disk.set_capacity(Some(5 * SEGMENT));
    let mut held = 0u64;
    loop {
        match osd.put(shard(key(held), 0, 2)).await {
            Ok(()) => held += 1,
            Err(Error::Full { .. }) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(held >= 8 && osd.failure().is_none());
    for n in 0..held {
        assert!(has(&osd, n, 2).await);
    }
    osd.delete((0..held).map(stripe).collect()).await.unwrap();
    osd.flush().await.unwrap();
    settle(&osd).await;
    put(&osd, 5000, 2).await;
}

#[tokio::test]
async fn a_stopped_osd_answers_and_writes_nothing_more_and_another_may_have_its_place() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..100 {
        put(&osd, n, 2).await;
    }
    // Cleaning and giving back have begun, and puts are under way.
    osd.delete((0..100).filter(|n| n % 3 != 0).map(stripe).collect()).await.unwrap();
    let (a, b) = (osd.clone(), osd.clone());
    let under_way = [tokio::spawn(async move { a.put(shard(key(200), 0, 2)).await }), tokio::spawn(async move { b.flush().await })];
    osd.stop("it is being replaced").await;
    for one in under_way {
        let _either_way = one.await.unwrap();
    }
    assert_eq!(osd.failure().as_deref(), Some("it is being replaced"));
    assert!(matches!(osd.put(shard(key(300), 0, 1)).await, Err(Error::Down { .. })));
    assert!(matches!(osd.get(key(0), 0, 4096).await, Err(Error::Down { .. })));
    assert!(matches!(osd.flush().await, Err(Error::Down { .. })));
    disk.remove_all(&dir()).unwrap();
    Osd::format(&disk, &dir(), FormatOptions { log_id: 77, ..options() }).unwrap();
    let new = open(&disk).await;
    for n in 0..20 {
        put(&new, n, 1).await;
        let _either_way = osd.0.keep_house().await;
    }
    new.flush().await.unwrap();
    let (again, recovery) = open_with(&disk.crash(1), config()).await;
    assert!(recovery.faults.is_empty(), "{recovery:?}");
    for n in 0..20 {
        assert!(has(&again, n, 1).await);
    }
}
