//! The promises of the shard protocol, one by one; format, inspection, dump.

use super::*;

#[tokio::test]
async fn a_put_is_readable_at_once_and_whole_or_in_part() {
    let disk = rig();
    let osd = open(&disk).await;
    put(&osd, 1, 8).await;
    let whole = data(key(1), 0, 8);
    for (offset, len) in [(0, 32768), (0, 1), (4095, 2), (5000, 20_000), (32767, 1), (32768, 0), (100, 0)] {
        let read = osd.get(key(1), offset, len).await.unwrap();
        assert_eq!(read.data, whole.slice(offset as usize..(offset + len) as usize));
        assert_eq!(read.head, shard(key(1), 0, 8).head);
    }
    assert_eq!(osd.head(key(1)).await.unwrap(), shard(key(1), 0, 8).head);
    assert!(matches!(osd.get(key(1), 32_768, 1).await, Err(Error::Corrupt { .. })));
    assert!(matches!(osd.get(key(2), 0, 1).await, Err(Error::NotFound { .. })));
    let other = ShardKey { shard: 5, ..key(1) };
    assert!(matches!(osd.head(other).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn a_cold_small_read_touches_head_and_block_and_a_warm_one_the_block() {
    let disk = rig();
    let osd = open(&disk).await;
    put(&osd, 1, 12).await;
    osd.flush().await.unwrap();
    let osd = open(&disk).await;
    settle(&osd).await;
    let before = disk.metrics().read_bytes();
    osd.get(key(1), 11 * 4096, 4096).await.unwrap();
    assert_eq!(disk.metrics().read_bytes() - before, 2 * 4096);
    let before = disk.metrics().read_bytes();
    osd.get(key(1), 4096, 4096).await.unwrap();
    assert_eq!(disk.metrics().read_bytes() - before, 4096);
}

#[tokio::test]
async fn putting_a_held_key_again_is_ok_when_it_is_the_same_and_corrupt_when_not() {
    let disk = rig();
    let osd = open(&disk).await;
    put(&osd, 1, 2).await;
    let writes = disk.metrics().writes();
    put(&osd, 1, 2).await;
    assert_eq!(disk.metrics().writes(), writes, "no second append");
    assert!(matches!(osd.put(shard(key(1), 9, 2)).await, Err(Error::Corrupt { .. })));
    assert!(has(&osd, 1, 2).await);
    assert_eq!(osd.metrics().puts.get(), 1);
}

#[tokio::test]
async fn puts_of_one_key_at_once_append_once() {
    let disk = SimDisk::new(4);
    Osd::format(&disk, &dir(), options()).unwrap();
    let osd = open(&disk).await;
    let all = futures::future::join_all((0..10).map(|_| osd.put(shard(key(1), 0, 3)))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!((osd.metrics().puts.get(), osd.shards()), (1, 1));
}

#[tokio::test]
async fn a_put_nobody_waits_for_any_more_is_held_or_not_and_never_in_the_way() {
    let disk = SimDisk::new(6);
    Osd::format(&disk, &dir(), options()).unwrap();
    let osd = open(&disk).await;
    for n in 0..30 {
        let mut doomed = osd.put(shard(key(n), 0, 2));
        let _ = futures::poll!(doomed.as_mut());
        drop(doomed);
        put(&osd, n, 2).await;
        assert!(has(&osd, n, 2).await);
    }
    assert_eq!(osd.shards(), 30);
}

#[tokio::test]
async fn shards_of_bad_shape_are_refused() {
    let disk = rig();
    let osd = open(&disk).await;
    let good = shard(key(1), 0, 2);
    for bad in [
        ShardPut { data: good.data.slice(..5000), ..good.clone() },
        ShardPut { data: Bytes::new(), crcs: Arc::new([]), ..good.clone() },
        ShardPut { crcs: Arc::new([1]), ..good.clone() },
    ] {
        assert!(matches!(osd.put(bad).await, Err(Error::Corrupt { .. })));
    }
    assert_eq!(osd.shards(), 0);
}

#[tokio::test]
async fn listing_is_in_order_and_goes_on_where_it_stopped() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in [5, 1, 300, 2, 77] {
        put(&osd, n, 1).await;
    }
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let some = osd.list(after, 2).await.unwrap();
        let Some(last) = some.last() else { break };
        after = Some(*last);
        all.extend(some);
    }
    assert_eq!(all, [1, 2, 5, 77, 300].map(key));
}

#[tokio::test]
async fn a_restart_after_a_clean_close_reads_no_record() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..40 {
        put(&osd, n, 2).await;
    }
    osd.delete(vec![stripe(3)]).await.unwrap();
    osd.close().await.unwrap();
    let (osd, recovery) = open_with(&disk.crash(1), config()).await;
    assert_eq!((recovery.records, osd.shards(), osd.metrics().torn_tails.get()), (0, 39, 0));
    assert!(has(&osd, 2, 2).await && !has(&osd, 3, 2).await);
}

#[tokio::test]
async fn a_restart_after_a_kill_reads_about_the_tail_behind_the_checkpoint() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..120 {
        put(&osd, n, 2).await;
    }
    settle(&osd).await;
    for n in 120..123 {
        put(&osd, n, 2).await;
    }
    osd.flush().await.unwrap();
    let (osd, recovery) = open_with(&disk.crash(1), config()).await;
    assert_eq!(osd.shards(), 123);
    assert!(recovery.records < 40, "{recovery:?}");
}

#[tokio::test]
async fn folders_are_told_apart_and_formats_refuse_what_is_not_empty() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.superblock_damaged"]);
    let disk = SimDisk::new(1);
    assert_eq!(inspect(&disk, &dir()).unwrap(), Inspect::Empty);
    holdfast_objstore_base::disk::Disk::create_dir_all(&disk, &dir()).unwrap();
    assert_eq!(inspect(&disk, &dir()).unwrap(), Inspect::Empty);
    use holdfast_objstore_base::disk::Disk;
    disk.write_small(&dir().join("holiday.jpg"), b"x", 0o644).unwrap();
    assert_eq!(inspect(&disk, &dir()).unwrap(), Inspect::Foreign("holiday.jpg".into()));
    assert!(matches!(Osd::format(&disk, &dir(), options()), Err(OpenError::NotEmpty(..))));
    disk.remove(&dir().join("holiday.jpg")).unwrap();
    Osd::format(&disk, &dir(), options()).unwrap();
    assert_eq!(inspect(&disk, &dir()).unwrap().identity(), Some((CLUSTER, OsdId(3))));
    assert!(matches!(Osd::format(&disk, &dir(), options()), Err(OpenError::NotEmpty(..))));
    let whole = disk.read_small(&dir().join("superblock")).unwrap().unwrap();
    let mut newer = whole.clone();
    newer[8] = 9;
    disk.write_small(&dir().join("superblock"), &newer, 0o644).unwrap();
    assert_eq!(inspect(&disk, &dir()).unwrap(), Inspect::NewerFormat(9));
    let refused = Osd::open(Arc::new(disk.clone()), &dir(), config()).await.err().unwrap();
    assert!(refused.to_string().contains("newer Holdfast"), "{refused}");
    let mut bad = whole.clone();
    bad[30] ^= 1;
    disk.write_small(&dir().join("superblock"), &bad, 0o644).unwrap();
    assert!(matches!(inspect(&disk, &dir()).unwrap(), Inspect::Damaged(_)));
    disk.remove(&dir().join("superblock")).unwrap();
    assert!(matches!(inspect(&disk, &dir()).unwrap(), Inspect::Damaged(_)));
}

#[tokio::test]
async fn a_format_that_did_not_end_is_recognised_at_every_step() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.half_formatted"]);
    let mut halves = 0;
    for cut in 0..30 {
        let disk = SimDisk::new(cut);
        disk.cut_after(cut);
        let done = Osd::format(&disk, &dir(), options()).is_ok();
        for seed in 0..4 {
            let after = disk.crash(seed);
            match inspect(&after, &dir()).unwrap() {
                Inspect::Empty => assert!(!done),
                Inspect::HalfFormatted => {
                    halves += 1;
                    let refused = Osd::open(Arc::new(after.clone()), &dir(), config()).await.err().unwrap();
                    assert!(matches!(refused, OpenError::HalfFormatted(_)));
                }
                Inspect::Osd(_) => drop(open(&after).await),
                other => panic!("cut {cut}: {other:?}"),
            }
        }
    }
    assert!(halves > 0);
}

#[tokio::test]
async fn a_raised_fence_refuses_late_puts_and_drops_what_is_not_live_for_good() {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 10..20 {
        put(&osd, n, 1).await;
    }
    let range = holdfast_objstore_proto::StripeRange { first: stripe(10), count: 8 };
    osd.raise_fence(range, &[stripe(12), stripe(13)]).await.unwrap();
    for close in [false, true] {
        let osd = open(&disk.crash(close as u64)).await;
        for n in 10..20 {
            assert_eq!(has(&osd, n, 1).await, matches!(n, 12 | 13 | 18 | 19), "{n}");
        }
        assert!(matches!(osd.put(shard(key(11), 0, 1)).await, Err(Error::Fenced { .. })));
        put(&osd, 18, 1).await;
        put(&osd, 9, 1).await;
        if !close {
            settle(&osd).await;
        }
    }
    // A checkpoint keeps it as well.
    let osd = open(&disk).await;
    osd.close().await.unwrap();
    let osd = open(&disk.crash(7)).await;
    assert!(matches!(osd.put(shard(key(10), 0, 1)).await, Err(Error::Fenced { .. })));
}

#[tokio::test]
async fn a_retired_range_lets_repair_through_and_no_older_list_is_taken() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.retire_stale"]);
    use holdfast_objstore_proto::StripeRange;
    use holdfast_objstore_proto::shard::{Stamp, TASK_SESSION};
    let disk = rig();
    let osd = open(&disk).await;
    for n in 10..16 {
        put(&osd, n, 1).await;
    }
    let range = StripeRange { first: stripe(8), count: 16 };
    let at = |index| Stamp { incarnation: 1, index };
    assert_eq!(osd.retire(range, vec![stripe(10), stripe(11)], at(7)).await, Ok(4));
    assert!(matches!(osd.retire(range, vec![], at(6)).await, Err(Error::Stale { .. })), "an older list");
    assert_eq!(osd.retire(range, vec![stripe(10), stripe(11)], at(7)).await, Ok(0), "it may be repeated");
    // A late shard of a session is refused; a rebuilt one is taken, and stays.
    assert!(matches!(osd.put(shard(key(12), 0, 1)).await, Err(Error::Fenced { .. })));
    let rebuilt = |n| {
        let mut put = shard(ShardKey { shard: 5, ..key(n) }, 0, 1);
        put.head.session = TASK_SESSION;
        put
    };
    osd.put(rebuilt(10)).await.unwrap();
    osd.fence(vec![StripeRange { first: stripe(24), count: 8 }, StripeRange { first: stripe(0), count: 8 }]).await.unwrap();
    assert_eq!(osd.fences(), 1, "ranges that touch are one");
    let records = osd.metrics().log.appends.get();
    osd.fence(vec![StripeRange { first: stripe(2), count: 20 }]).await.unwrap();
    assert_eq!(osd.metrics().log.appends.get(), records, "what is fenced already costs no record");
    let osd = open(&disk.crash(1)).await;
    assert_eq!((osd.fences(), osd.shards()), (1, 3));
    assert!(osd.head(ShardKey { shard: 5, ..key(10) }).await.is_ok());
    assert!(matches!(osd.put(shard(key(30), 0, 1)).await, Err(Error::Fenced { .. })));
}

#[tokio::test]
async fn space_adds_up() {
    let disk = rig();
    let osd = open(&disk).await;
    let empty = osd.space();
    assert_eq!((empty.total, empty.live), (40 * SEGMENT, 0));
    for n in 0..60 {
        put(&osd, n, 2).await;
    }
    let s = osd.space();
    assert_eq!(s.live, 60 * 3 * 4096);
    assert!(s.used >= s.live && s.free < empty.free && s.free + s.live <= empty.free, "{empty:?} {s:?}");
    assert_eq!(osd.failure(), None);
}
