//! Losing shards: every pattern up to the code's strength reads, beyond it nothing reads wrong.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::conformance::{content, expect, stripe};
use holdfast_objstore_client::{Error, Objects, ShardFault};
use holdfast_objstore_proto::{Code, StripeMeta};
use std::sync::Arc;

const CODE: Code = Code::new(4, 2);

/// What can befall a shard.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Harm {
    Absent,
    Corrupt,
    OtherWriting,
    Down,
}
const HARMS: [Harm; 4] = [Harm::Absent, Harm::Corrupt, Harm::OtherWriting, Harm::Down];

fn harm(rig: &Rig, meta: &StripeMeta, shard: usize, harm: Harm) {
    let (osd, key) = (rig.home(meta, shard), Rig::key(meta, shard));
    let mut s = osd.state.lock();
    match harm {
        Harm::Absent => drop(s.shards.remove(&key)),
        Harm::Corrupt => drop(s.corrupt.insert(key)),
        Harm::OtherWriting => s.shards.get_mut(&key).expect("it is there").0.digest ^= 1,
        Harm::Down => s.sick = true,
    }
}

async fn written(rig: &Rig, len: u32) -> Arc<StripeMeta> {
    let meta = rig.cluster.write(stripe(len as u64, CODE, len)).await.unwrap();
    assert_eq!(meta.missing, 0);
    meta
}

/// Shards lost as bits, those with at most `most` of them.
fn patterns(n: usize, most: u32) -> impl Iterator<Item = u32> {
    (0..1u32 << n).filter(move |bits| bits.count_ones() <= most)
}

#[tokio::test]
async fn every_loss_within_the_codes_strength_reads() {
    for domains in [Domains::One, Domains::Each] {
        let each = matches!(domains, Domains::Each);
        for len in [5_000u32, 64 << 10, 65_537, 300_000] {
            let n = if len <= 64 << 10 { 3 } else { 6 };
            for (turn, bits) in patterns(n, 2).enumerate() {
                let rig = Rig::new(6, if each { Domains::Each } else { Domains::One });
                let meta = written(&rig, len).await;
                for (nth, shard) in (0..n).filter(|i| bits >> i & 1 == 1).enumerate() {
                    harm(&rig, &meta, shard, HARMS[(turn + nth * 3) % HARMS.len()]);
                }
                expect(&*rig.cluster, &meta, 0..len).await;
                expect(&*rig.cluster, &meta, len / 3..len / 3 + 1).await;
                expect(&*rig.cluster, &meta, len / 2 - 1..len).await;
                let (got, hurt) = (rig.cluster.metrics().degraded_reads() > 0, bits & ((1 << meta.code.k) - 1) != 0);
                assert!(meta.code.k == 1 || got == hurt, "{bits:b}: reads are degraded when a data shard is");
            }
        }
    }
}

#[tokio::test]
async fn beyond_the_codes_strength_reads_say_lost_or_are_right() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.get_other_digest", "client.get_corrupt", "client.read_lost"]);
    for len in [5_000u32, 300_000] {
        let n = if len == 5_000 { 3 } else { 6 };
        for (turn, bits) in patterns(n, 6).filter(|b| b.count_ones() > 2).enumerate() {
            for harms in [[Harm::Corrupt, Harm::OtherWriting], [Harm::Down, Harm::Corrupt], [Harm::Absent, Harm::Corrupt]] {
                let rig = Rig::new(6, Domains::One);
                let meta = written(&rig, len).await;
                for (nth, shard) in (0..n).filter(|i| bits >> i & 1 == 1).enumerate() {
                    harm(&rig, &meta, shard, harms[(turn + nth) % 2]);
                }
                for range in [0..len, 0..1, len - 4000..len] {
                    match rig.cluster.read(&meta, range.clone()).await {
                        Err(Error::Lost { stripe, why }) => assert!(stripe == meta.id && !why.is_empty()),
                        Err(Error::Gone { .. }) => assert!(bits.count_ones() == n as u32),
                        Ok(got) => {
                            let want = content(meta.id, len).slice(range.start as usize..range.end as usize);
                            assert!(got.concat() == want[..], "wrong bytes");
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn the_rest_of_a_lost_stripe_still_reads() {
    let rig = Rig::new(6, Domains::One);
    let meta = written(&rig, 400_000).await;
    for shard in 0..3 {
        harm(&rig, &meta, shard, Harm::Corrupt);
    }
    let s = meta.shard_bytes();
    expect(&*rig.cluster, &meta, 3 * s..400_000).await;
    assert!(matches!(rig.cluster.read(&meta, s - 1..s).await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn shards_that_hurt_are_reported_once_per_read() {
    let rig = Rig::new(6, Domains::One);
    let meta = written(&rig, 400_000).await;
    for (shard, h) in HARMS.into_iter().enumerate().take(2) {
        harm(&rig, &meta, shard, h);
    }
    expect(&*rig.cluster, &meta, 0..400_000).await;
    let mut reports = rig.reports.0.lock().clone();
    reports.sort_by_key(|r| r.1);
    assert_eq!(reports, [(400_000, 0, ShardFault::NotFound), (400_000, 1, ShardFault::Corrupt)]);
    let m = rig.cluster.metrics();
    assert_eq!((m.degraded_reads(), m.shards_not_found(), m.shards_corrupt()), (1, 1, 1));
}

#[tokio::test]
async fn a_stripe_is_gone_when_no_osd_in_service_has_it() {
    let rig = Rig::new(6, Domains::Each);
    for len in [5_000, 300_000] {
        let meta = written(&rig, len).await;
        rig.cluster.delete(vec![meta.clone()]).await.unwrap();
        rig.home(&meta, 0).state.lock().down = true;
        let answer = rig.cluster.read(&meta, 0..len).await;
        assert!(matches!(answer, Err(Error::Gone { .. })), "{answer:?}");
        assert!(rig.reports.0.lock().is_empty(), "nothing is wrong with a deleted stripe");
        rig.home(&meta, 0).state.lock().down = false;
    }
}

#[tokio::test]
async fn a_whole_read_with_one_osd_down_fetches_each_byte_once() {
    let rig = Rig::new(6, Domains::One);
    let len = 4 << 20;
    let meta = written(&rig, len).await;
    rig.home(&meta, 1).state.lock().down = true;
    expect(&*rig.cluster, &meta, 0..len).await;
    assert_eq!(rig.gets(), (4, len as u64), "three data shards and one of parity");
    assert_eq!(rig.cluster.metrics().decoded_bytes(), 1 << 20);
}

#[tokio::test]
async fn a_small_degraded_read_fetches_one_block_of_k_shards() {
    let rig = Rig::new(6, Domains::One);
    let meta = written(&rig, 4 << 20).await;
    rig.home(&meta, 2).state.lock().down = true;
    let start = (2 << 20) + 40_000;
    expect(&*rig.cluster, &meta, start..start + 100).await;
    assert_eq!(rig.gets(), (4, 4 * 4096));
    assert_eq!(rig.cluster.metrics().decoded_bytes(), 4096);
}

#[tokio::test]
async fn a_shard_the_record_calls_missing_is_used_when_it_is_needed() {
    let rig = Rig::new(6, Domains::One);
    let meta = written(&rig, 300_000).await;
    let meta = Arc::new(StripeMeta { missing: 0b1, ..(*meta).clone() });
    expect(&*rig.cluster, &meta, 0..100).await;
    assert_eq!(rig.cluster.metrics().decoded_bytes(), 4096, "it is not asked while others will do");
    harm(&rig, &meta, 1, Harm::Absent);
    harm(&rig, &meta, 4, Harm::Absent);
    expect(&*rig.cluster, &meta, 0..300_000).await;
}

#[tokio::test]
async fn wide_codes_lose_as_many_as_they_may() {
    let code = Code::new(16, 4);
    let rig = Rig::new(20, Domains::One);
    for (turn, len) in [70_000u32, 1_000_000, 4 << 20].into_iter().enumerate() {
        let meta = rig.cluster.write(stripe(len as u64, code, len)).await.unwrap();
        assert_eq!((meta.code, meta.missing), (code, 0));
        for (nth, shard) in [turn, 5, 11 + turn, 17].into_iter().enumerate() {
            harm(&rig, &meta, shard, HARMS[(turn + nth) % 3]);
        }
        expect(&*rig.cluster, &meta, 0..len).await;
        let s = meta.shard_bytes();
        for edge in [s, 5 * s, 6 * s, 12 * s].into_iter().filter(|e| *e < len) {
            expect(&*rig.cluster, &meta, edge - 3000..(edge + 3000).min(len)).await;
        }
        for osd in &rig.osds {
            osd.state.lock().sick = false;
        }
    }
}

#[tokio::test]
async fn without_parity_one_loss_is_said_and_the_rest_reads() {
    let rig = Rig::new(6, Domains::Each);
    let meta = rig.cluster.write(stripe(1, Code::new(5, 0), 400_000)).await.unwrap();
    harm(&rig, &meta, 2, Harm::Corrupt);
    let s = meta.shard_bytes();
    assert!(matches!(rig.cluster.read(&meta, 0..400_000).await, Err(Error::Lost { .. })));
    expect(&*rig.cluster, &meta, 0..2 * s).await;
    expect(&*rig.cluster, &meta, 3 * s..400_000).await;
}

#[tokio::test]
async fn a_read_overtaken_by_a_deletion_says_that_the_stripe_is_gone() {
    let rig = Rig::new(6, Domains::Each);
    let meta = written(&rig, 300_000).await;
    // The deletion has reached half of the OSDs: as many as a reader misses whose first three shards came before it.
    (3..6).for_each(|shard| rig.lose(&meta, shard));
    let answer = rig.cluster.read(&meta, 0..300_000).await;
    assert!(matches!(answer, Err(Error::Gone { .. })), "{answer:?}");
}
