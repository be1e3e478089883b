//! The rows of the two tables in `recover.rs` and `open.rs`.

use super::super::format::segment::{Header, State};
use super::*;

/// Records a, b, c durable, then d, e written and not flushed, all of one block each; life 1 in file 0, blocks 2 to 6.
async fn five() -> (SimDisk, Vec<Appended>) {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let mut all = put_small(&log, &["a", "b", "c"]).await;
    log.flush().await.unwrap();
    all.extend(put_small(&log, &["d", "e"]).await);
    // A copy in which all that was written is stable: the tests tear it by hand.
    let disk = disk.kill();
    segment_file(&disk, 0).flush().await.unwrap();
    (disk, all)
}

/// Opens, checks what is there, then appends and opens once more: what was dropped never comes back.
async fn expect(disk: &SimDisk, metas: &[&str], torn: bool) -> Recovery {
    let (log, recovery, seen) = open(disk).await;
    assert_eq!((seen.metas(), recovery.torn.is_some()), (metas.iter().map(|m| m.to_string()).collect(), torn), "{recovery:?}");
    put_small(&log, &["x", "y"]).await;
    log.flush().await.unwrap();
    for seed in 0..4 {
        let (log, again, seen) = open(&disk.crash(seed)).await;
        let mut all: Vec<_> = metas.to_vec();
        all.extend(["x", "y"]);
        assert_eq!(seen.metas(), all, "{again:?}");
        assert!(again.epoch > recovery.epoch && again.torn.is_none());
        assert_eq!(again.faults, recovery.faults, "what was found is found again, and nothing else");
        log.close().await.unwrap();
    }
    recovery
}

#[tokio::test]
async fn zeroes_end_the_log_cleanly() {
    let (disk, _) = five().await;
    let r = expect(&disk, &["a", "b", "c", "d", "e"], false).await;
    assert!(r.faults.is_empty());
}

#[tokio::test]
async fn a_truncated_head_ends_the_log() {
    let (disk, _) = five().await;
    let whole = read_block(&disk, 0, 6).await;
    let mut cut = AlignedBuf::copy_of(&whole);
    // The meta lies within the first 512 bytes; what is torn off must matter.
    cut[66..].fill(0x5a);
    write_block(&disk, 0, 6, &cut).await;
    expect(&disk, &["a", "b", "c", "d"], true).await;
}

#[tokio::test]
async fn a_bad_head_checksum_ends_the_log() {
    let (disk, _) = five().await;
    disk.corrupt(&path(0), 6 * 4096..6 * 4096 + 1, 1);
    expect(&disk, &["a", "b", "c", "d"], true).await;
}

#[tokio::test]
async fn a_bad_meta_ends_the_log_and_drops_what_follows() {
    let (disk, _) = five().await;
    disk.corrupt(&path(0), 5 * 4096 + 64..5 * 4096 + 65, 1);
    let r = expect(&disk, &["a", "b", "c"], true).await;
    assert_eq!((r.torn.as_ref().unwrap().dropped, r.torn.as_ref().unwrap().seq), (1, 4));
}

#[tokio::test]
async fn a_record_that_was_never_written_though_later_ones_were_ends_the_log() {
    let (disk, _) = five().await;
    write_block(&disk, 0, 5, &[]).await;
    let r = expect(&disk, &["a", "b", "c"], true).await;
    assert_eq!(r.torn.unwrap().dropped, 1);
}

#[tokio::test]
async fn garbage_at_the_end_ends_the_log_cleanly() {
    let (disk, _) = five().await;
    write_block(&disk, 0, 7, &[0xa7; 4096]).await;
    expect(&disk, &["a", "b", "c", "d", "e"], false).await;
}

#[tokio::test]
async fn a_record_of_a_former_life_ends_the_log_cleanly() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.torn_tail"]);
    let (disk, _) = five().await;
    write_block(&disk, 0, 7, &head(0, 7, 1, 6, 5, "stale").encode(ID)).await;
    expect(&disk, &["a", "b", "c", "d", "e"], false).await;
    // Of another log, at the right place.
    let (disk, _) = five().await;
    write_block(&disk, 0, 7, &head(1, 7, 1, 6, 5, "other").encode(ID + 1)).await;
    expect(&disk, &["a", "b", "c", "d", "e"], true).await;
    // Of this life, but at another place.
    let (disk, _) = five().await;
    write_block(&disk, 0, 7, &read_block(&disk, 0, 6).await).await;
    expect(&disk, &["a", "b", "c", "d", "e"], true).await;
}

#[tokio::test]
async fn a_head_of_an_older_epoch_or_another_number_is_not_a_record() {
    let (disk, _) = five().await;
    write_head(&disk, 0, &head(1, 7, 0, 6, 5, "older epoch")).await;
    expect(&disk, &["a", "b", "c", "d", "e"], false).await;
    let (disk, _) = five().await;
    write_head(&disk, 0, &head(1, 7, 1, 4, 3, "another number")).await;
    expect(&disk, &["a", "b", "c", "d", "e"], false).await;
}

#[tokio::test]
async fn a_torn_payload_above_the_durable_number_ends_the_log() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a", "b"]).await;
    log.flush().await.unwrap();
    let big = put(&log, "big", 12_288).await;
    put(&log, "after", 0).await;
    let disk = disk.kill();
    let block = (big.location.position.block + big.location.head_blocks + 1) as u64;
    disk.corrupt(&path(0), block * 4096..block * 4096 + 4096, 3);
    let r = expect(&disk, &["a", "b"], true).await;
    assert_eq!(r.torn.unwrap().dropped, 1);
}

#[tokio::test]
async fn a_torn_payload_at_or_below_the_durable_number_is_kept_and_read_as_corrupt() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let big = put(&log, "big", 12_288).await;
    log.flush().await.unwrap();
    put(&log, "proof", 0).await;
    let disk = disk.kill();
    let block = (big.location.position.block + big.location.head_blocks + 2) as u64;
    disk.corrupt(&path(0), block * 4096..block * 4096 + 1, 3);
    let (log, r, seen) = open(&disk).await;
    assert_eq!((seen.metas(), r.faults.len(), r.torn), (vec!["big".to_string(), "proof".into()], 0, None));
    assert!(matches!(log.read(&big.location, 0, 12_288).await, Err(Error::Corrupt { block: Some(2), .. })));
}

#[tokio::test]
async fn a_bad_record_at_or_below_a_later_durable_number_is_corruption() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.corrupt_record"]);
    let (disk, all) = five().await;
    disk.corrupt(&path(0), 3 * 4096 + 64..3 * 4096 + 65, 1);
    let refused = open_with(&disk.kill(), Config { on_corruption: OnCorruption::Refuse, ..config() }).await;
    assert!(matches!(&refused, Err(Error::Damaged(Fault::Records { first_seq: 2, next_seq: 3, .. }))), "{:?}", refused.err());
    let r = expect(&disk, &["a", "c", "d", "e"], false).await;
    assert!(matches!(&r.faults[..], [Fault::Records { at, first_seq: 2, .. }] if *at == all[1].location.position));
}

#[tokio::test]
async fn refusing_changes_nothing() {
    let (disk, _) = five().await;
    disk.corrupt(&path(0), 3 * 4096..3 * 4096 + 1, 1);
    let writes = disk.metrics().writes();
    let root = disk.read_small(&dir().join("log")).unwrap();
    assert!(open_with(&disk, Config { on_corruption: OnCorruption::Refuse, ..config() }).await.is_err());
    assert_eq!((disk.metrics().writes(), disk.read_small(&dir().join("log")).unwrap()), (writes, root));
}

#[tokio::test]
async fn the_next_segment_behind_a_gap_is_dropped_with_the_tail() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a", "b"]).await;
    log.flush().await.unwrap();
    log.close().await.unwrap();
    for n in 0..20 {
        put(&log, &format!("n{n}"), 0).await;
    }
    log.close().await.unwrap();
    let after = disk.kill();
    // As if no flush had ended since: no record carries a higher durable number.
    for number in 0..2 {
        for block in 2..BLOCKS {
            let at = Position { life: number + 1, block };
            if let Ok(head) = Head::decode(&read_block(&after, number, block).await, ID, at) {
                write_head(&after, number, &Head { durable: head.durable.min(2), ..head }).await;
            }
        }
    }
    // Tear the third record: what the second segment holds is behind the gap.
    assert_eq!(open(&after.kill()).await.2.records.len(), 22);
    write_block(&after, 0, 4, &[]).await;
    let (_, r, seen) = open(&after).await;
    assert_eq!((seen.metas(), r.faults.len()), (vec!["a".to_string(), "b".into()], 0), "{r:?}");
    assert!(r.torn.unwrap().dropped == 19 && r.orphans >= 1);
    let (_, again, seen) = open(&after).await;
    assert_eq!((seen.metas(), again.faults.len()), (vec!["a".to_string(), "b".into()], 0));
}

#[tokio::test]
async fn a_spare_segment_that_was_never_used_goes_out_of_service() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a", "b", "c", "d", "e"]).await; // past a quarter: the spare is made
    log.flush().await.unwrap();
    log.close().await.unwrap();
    assert!(exists(&disk, &path(1)));
    let r = expect(&disk, &["a", "b", "c", "d", "e"], false).await;
    assert_eq!(r.orphans, 1);
}

#[tokio::test]
async fn numbers_may_jump_over_a_retired_life() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.roll().await.unwrap();
    put_small(&log, &["b"]).await;
    log.roll().await.unwrap();
    put_small(&log, &["c"]).await;
    let middle = log.segments()[1].life;
    log.retire(middle).await.unwrap();
    log.flush().await.unwrap();
    let r = expect(&disk.kill(), &["a", "c"], false).await;
    assert!(r.faults.is_empty());
}

#[tokio::test]
async fn numbers_are_never_given_twice_even_when_everything_was_retired() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    let last = put_small(&log, &["a", "b", "c"]).await.pop().unwrap();
    log.roll().await.unwrap();
    let life = log.segments()[0].life;
    log.retire(life).await.unwrap();
    let disk = disk.crash(3);
    let (log, _, seen) = open(&disk).await;
    assert!(seen.records.is_empty());
    let next = put(&log, "d", 0).await;
    assert!(next.seq > last.seq && next.location.position > last.location.position);
}

#[tokio::test]
async fn what_an_earlier_recovery_dropped_stays_dropped_even_if_its_seal_rots() {
    let (disk, _) = five().await;
    write_block(&disk, 0, 5, &[]).await; // d never written, e dropped with it
    let (log, r, _) = open(&disk).await;
    assert_eq!(r.torn.unwrap().dropped, 1);
    put_small(&log, &["x", "y", "z"]).await;
    log.flush().await.unwrap();
    put_small(&log, &["proof"]).await;
    log.flush().await.unwrap();
    let disk = disk.kill();
    disk.corrupt(&path(0), 5 * 4096..5 * 4096 + 1, 1); // the seal at the cut
    let (_, r, seen) = open(&disk).await;
    assert_eq!(seen.metas(), ["a", "b", "c", "x", "y", "z", "proof"], "{r:?}");
    assert_eq!(r.faults.len(), 1, "the seal itself");
}

#[tokio::test]
async fn a_corrupt_seal_is_a_fault_and_loses_nothing() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.roll().await.unwrap();
    put_small(&log, &["b"]).await;
    log.flush().await.unwrap();
    put_small(&log, &["c"]).await;
    let disk = disk.kill();
    disk.corrupt(&path(0), 3 * 4096..3 * 4096 + 1, 1);
    let r = expect(&disk, &["a", "b", "c"], false).await;
    assert_eq!(r.faults.len(), 1);
}

// The headers of segments.

#[tokio::test]
async fn a_half_made_segment_is_made_anew() {
    let (disk, _) = five().await;
    let next = 1 + (0..9).take_while(|n| exists(&disk, &path(n + 1))).count() as u32;
    let file = disk.open(&path(next), Open::CreateNew).unwrap();
    file.set_len(20_000).unwrap();
    file.flush_all().await.unwrap();
    disk.sync_dir(&dir()).unwrap();
    let r = expect(&disk, &["a", "b", "c", "d", "e"], false).await;
    assert!(r.faults.is_empty());
}

async fn header_of(disk: &SimDisk, number: u32, slot: u32) -> Header {
    Header::decode(&read_block(disk, number, slot).await).unwrap()
}

#[tokio::test]
async fn a_torn_header_leaves_the_one_before_it() {
    // Retiring: the torn "free" leaves the segment in service.
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.roll().await.unwrap();
    put_small(&log, &["b"]).await;
    log.flush().await.unwrap();
    let life = log.segments()[0].life;
    log.retire(life).await.unwrap();
    let disk = disk.kill();
    assert_eq!(header_of(&disk, 0, 0).await.state, State::Free);
    disk.corrupt(&path(0), 20..21, 1);
    assert_eq!(open(&disk).await.2.metas(), ["a", "b"]);
}

#[tokio::test]
async fn a_torn_header_of_a_life_with_records_is_proven_by_the_first_of_them() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.roll().await.unwrap();
    let first = log.segments()[0];
    log.retire(first.life).await.unwrap();
    put_small(&log, &["b"]).await;
    while log.segments().last().unwrap().number != first.number {
        log.roll().await.unwrap();
        put_small(&log, &["c"]).await;
    }
    log.flush().await.unwrap();
    let disk = disk.kill();
    let (s0, s1) = (header_of(&disk, 0, 0).await, header_of(&disk, 0, 1).await);
    let newer = (s1.generation > s0.generation) as u64;
    disk.corrupt(&path(0), newer * 4096..newer * 4096 + 64, 1);
    let (_, r, seen) = open(&disk.kill()).await;
    assert!(r.faults.is_empty());
    let whole = seen.metas();
    assert_eq!(whole.first().unwrap(), "b");
    assert!(whole.len() >= 2);
    // Both slots gone: the record is still proof.
    disk.corrupt(&path(0), 0..8192, 1);
    let (_, r, seen) = open(&disk.kill()).await;
    assert_eq!((seen.metas(), r.faults.len()), (whole, 0));
    // Nothing left: the segment is lost, and left alone.
    disk.corrupt(&path(0), 8192..12288, 1);
    let before = read_block(&disk, 0, 3).await.to_vec();
    let (log, r, _) = open(&disk).await;
    assert!(matches!(&r.faults[0], Fault::Segment { number: 0, .. }));
    for _ in 0..30 {
        put(&log, "more", 16_384).await;
    }
    assert_eq!(read_block(&disk, 0, 3).await.to_vec(), before);
}

#[tokio::test]
async fn a_missing_or_short_segment_is_a_fault() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.segment_missing", "osd.log.segment_short"]);
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.roll().await.unwrap();
    put_small(&log, &["b"]).await;
    log.flush().await.unwrap();
    let gone = disk.kill();
    gone.remove(&path(0)).unwrap();
    gone.sync_dir(&dir()).unwrap();
    let (log2, r, seen) = open(&gone).await;
    assert_eq!(seen.metas(), ["b"]);
    assert!(matches!(&r.faults[..], [Fault::Segment { number: 0, .. }]));
    assert!(log2.segments().last().unwrap().life > 1 << 20, "no life of the lost segment comes again");
    let refused = open_with(&gone.kill(), Config { on_corruption: OnCorruption::Refuse, ..config() }).await;
    drop(refused); // the file was made anew by the start above
    let short = disk.kill();
    short.open(&path(0), Open::Existing).unwrap().set_len(8192).unwrap();
    let refused = open_with(&short, Config { on_corruption: OnCorruption::Refuse, ..config() }).await;
    assert!(matches!(refused, Err(Error::Damaged(Fault::Segment { number: 0, .. }))));
}

#[tokio::test]
async fn one_life_in_two_segments_is_refused() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.roll().await.unwrap();
    put_small(&log, &["b"]).await;
    log.flush().await.unwrap();
    let disk = disk.kill();
    // The whole file copied over another: its number gives it away.
    for block in 0..BLOCKS {
        let b = read_block(&disk, 0, block).await;
        write_block(&disk, 1, block, &b).await;
    }
    let got = open_with(&disk.kill(), config()).await;
    assert!(matches!(got, Err(Error::Damaged(Fault::Segment { number: 1, .. }))), "{:?}", got.err());
    // With its number forged as well.
    let h = header_of(&disk, 0, 1).await;
    write_block(&disk, 1, 1, &Header { number: 1, ..h }.encode()).await;
    let got = open_with(&disk, config()).await;
    assert!(matches!(got, Err(Error::Damaged(Fault::Segment { number: 1, .. }))), "{:?}", got.err());
}

#[tokio::test]
async fn newer_formats_and_foreign_folders_are_refused() {
    let disk = rig();
    let mut root = disk.read_small(&dir().join("log")).unwrap().unwrap();
    root[8] = 2;
    disk.write_small(&dir().join("log"), &root, 0o644).unwrap();
    assert!(matches!(open_with(&disk, config()).await, Err(Error::NewerFormat { found: 2, known: 1 })));
    root[8] = 1;
    root[20] ^= 1;
    disk.write_small(&dir().join("log"), &root, 0o644).unwrap();
    assert!(matches!(open_with(&disk, config()).await, Err(Error::NotALog(_))));
    disk.remove(&dir().join("log")).unwrap();
    assert!(matches!(open_with(&disk, config()).await, Err(Error::NotALog(_))));
}

// Checkpoints.

#[tokio::test]
async fn recovery_reads_only_what_no_checkpoint_covers() {
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    for i in 0..30 {
        put(&log, &format!("r{i}"), 4096).await;
    }
    log.flush().await.unwrap(); // the seals too are complete
    let mark = log.mark();
    log.checkpoint(mark, Bytes::from(vec![7; 10_000])).await.unwrap();
    put_small(&log, &["x", "y"]).await;
    log.flush().await.unwrap();
    let (_, r, seen) = open(&disk.crash(2)).await;
    assert_eq!(seen.metas(), ["x", "y"]);
    assert_eq!(seen.checkpoint, Some((mark.seq, Bytes::from(vec![7; 10_000]))));
    assert_eq!((r.scanned_from, r.records), (mark.seq, 2));
}

#[tokio::test]
async fn a_checkpoint_of_the_index_is_written_in_small_pieces_with_a_pause_after_each() {
    use super::super::checkpoint::PIECE_BYTES;
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    let content = Bytes::from(vec![5; 5 * PIECE_BYTES + 10]);
    let seen = parking_lot::Mutex::new(vec![]);
    let pause = |_| {
        seen.lock().push((disk.metrics().writes(), disk.metrics().write_bytes()));
        std::future::ready(())
    };
    log.checkpoint_in_pieces(log.mark(), content.clone(), pause).await.unwrap();
    let seen = seen.lock().clone();
    assert_eq!(seen.len(), 5);
    for pair in seen.windows(2) {
        assert_eq!((pair[1].0 - pair[0].0, pair[1].1 - pair[0].1), (1, PIECE_BYTES as u64));
    }
    log.flush().await.unwrap();
    assert_eq!(open(&disk.crash(1)).await.2.checkpoint.map(|(_, bytes)| bytes), Some(content));
}

#[tokio::test]
async fn a_torn_checkpoint_leaves_the_one_before_and_losing_both_is_a_fault() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.checkpoint_lost"]);
    let disk = rig();
    let (log, _, _) = open(&disk).await;
    put_small(&log, &["a"]).await;
    log.checkpoint(log.mark(), Bytes::from_static(b"one")).await.unwrap();
    put_small(&log, &["b"]).await;
    log.checkpoint(log.mark(), Bytes::from_static(b"two")).await.unwrap();
    put_small(&log, &["c"]).await;
    log.flush().await.unwrap();
    let disk = disk.kill();
    assert_eq!(open(&disk.kill()).await.2.metas(), ["c"]);
    disk.corrupt(&dir().join("checkpoint.0"), 4096..4097, 1);
    let (_, r, seen) = open(&disk.kill()).await;
    assert_eq!((seen.metas(), &seen.checkpoint.unwrap().1[..], r.faults.len()), (vec!["b".to_string(), "c".into()], &b"one"[..], 0));
    disk.corrupt(&dir().join("checkpoint.1"), 0..1, 1);
    let (log, r, seen) = open(&disk.kill()).await;
    assert_eq!(seen.metas(), ["a", "b", "c"]);
    assert!(matches!(&r.faults[..], [Fault::Checkpoint { .. }]));
    // The next checkpoints are good again.
    log.checkpoint(log.mark(), Bytes::from_static(b"three")).await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_between_slots_of_any_crash_point_is_the_old_or_the_new() {
    for cut in 0..14 {
        let disk = rig();
        let (log, _, _) = open(&disk).await;
        put_small(&log, &["a"]).await;
        log.checkpoint(log.mark(), Bytes::from_static(b"one")).await.unwrap();
        put_small(&log, &["b"]).await;
        disk.cut_after(cut);
        let stored = log.checkpoint(log.mark(), Bytes::from(vec![2; 20_000])).await.is_ok();
        disk.cut_now();
        for seed in 0..6 {
            let (_, r, seen) = open(&disk.crash(seed)).await;
            let got = seen.checkpoint.unwrap().1;
            assert!(got == Bytes::from_static(b"one") || got == vec![2; 20_000], "cut {cut} seed {seed}");
            assert!(!stored || got.len() == 20_000);
            assert!(r.faults.is_empty());
        }
    }
}

#[tokio::test]
async fn a_start_that_is_cut_short_never_makes_a_record_look_durable_that_is_not() {
    // A killed process leaves records that are readable and not stable; the next start seals behind them.
    for cut in 0..24 {
        for seed in 0..6 {
            let disk = rig();
            let (log, _, _) = open(&disk).await;
            put_small(&log, &["a", "b"]).await;
            log.flush().await.unwrap();
            put_small(&log, &["c", "d", "e"]).await;
            let killed = disk.kill();
            killed.cut_after(cut);
            let mut seen = Seen::default();
            drop(Log::open(Arc::new(killed.clone()), &dir(), config(), &mut seen).await);
            killed.cut_now();
            let refuse = Config { on_corruption: OnCorruption::Refuse, ..config() };
            let (_, _, seen) = open_with(&killed.crash(seed), refuse).await.unwrap();
            assert_eq!(seen.metas()[..2], ["a", "b"], "cut {cut} seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_checkpoint_never_speaks_of_records_that_are_not_there() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.checkpoint_flush_failed"]);
    for cut in 0..16 {
        for seed in 0..8 {
            let disk = rig();
            let (log, _, _) = open(&disk).await;
            let mut all = vec![put(&log, "a", 9000).await];
            log.checkpoint(log.mark(), Bytes::from_static(b"1")).await.unwrap();
            all.push(put(&log, "b", 9000).await);
            all.push(put(&log, "c", 9000).await);
            disk.cut_after(cut);
            drop(log.checkpoint(log.mark(), Bytes::from_static(b"3")).await);
            disk.cut_now();
            let (log, r, seen) = open(&disk.crash(seed)).await;
            assert!(r.faults.is_empty());
            let covered = seen.checkpoint.unwrap().1[0] - b'0';
            for a in &all[..covered as usize] {
                log.read(&a.location, 0, 9000).await.unwrap_or_else(|e| panic!("cut {cut} seed {seed}: {e}"));
            }
        }
    }
}
