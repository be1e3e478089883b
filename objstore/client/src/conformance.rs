//! What every provider of [`Objects`] must do, as checks that panic with the fact that does not hold.
//!
//! What always holds: the checks see a provider through the trait alone, so the fake and the real ones pass the same. Each takes a fresh
//! provider with at least six OSDs (or what stands for them) in service.
//! What it leaves out: faults; a provider's own tests inject those where they arise.

use crate::{Error, Objects, Rebuild, StripeWrite, Upkeep};
use bytes::Bytes;
use futures::future::join_all;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::stripe::{COPIES_BYTES_MAX, STRIPE_BYTES_MAX};
use holdfast_objstore_proto::{Code, Codec, SessionEpoch, SessionId, StripeId, StripeMeta};
use std::ops::Range;
use std::sync::Arc;

/// Runs every check, each on a provider of its own.
pub async fn check_all<F>(mut fresh: impl FnMut() -> F)
where
    F: Future<Output = Arc<dyn Objects>>,
{
    reads_answer_what_was_written(&*fresh().await).await;
    records_say_how_a_stripe_was_written(&*fresh().await).await;
    a_retried_write_answers_the_same_record(&*fresh().await).await;
    another_writing_of_an_id_leaves_the_first_alone(&*fresh().await).await;
    flush_answers_its_stripes_in_order(&*fresh().await).await;
    deleted_stripes_are_gone_and_others_stay(&*fresh().await).await;
    caches_change_no_bytes(&*fresh().await).await;
    calls_from_many_tasks_do_not_mix(fresh().await).await;
    space_shrinks_with_overhead(&*fresh().await).await;
}

/// Bytes that tell their stripe and position.
pub fn content(id: StripeId, len: u32) -> Bytes {
    let mut data = AlignedBuf::zeroed(len as usize);
    let mut x = id.counter.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len as u64 | 1;
    for eight in data.chunks_mut(8) {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = (x ^ x >> 29).to_le_bytes();
        eight.copy_from_slice(&bytes[..eight.len()]);
    }
    data.freeze()
}

/// Stripe number `counter`, with [`content`].
pub fn stripe(counter: u64, code: Code, len: u32) -> StripeWrite {
    let id = StripeId { incarnation: 1, group: 0, counter };
    let (session, epoch) = (SessionId(7), SessionEpoch(1));
    StripeWrite { id, code, data: vec![content(id, len)], session, epoch, hint: Hint::default(), background: false }
}

/// Reads `range` and holds it against [`content`].
pub async fn expect(objects: &dyn Objects, meta: &Arc<StripeMeta>, range: Range<u32>) {
    let got = objects.read(meta, range.clone()).await.unwrap_or_else(|e| panic!("{} {range:?}: {e}", meta.id));
    assert!(got.iter().all(|b| !b.is_empty()), "no empty pieces");
    let got: Vec<u8> = got.iter().flat_map(|b| b.iter().copied()).collect();
    let want = content(meta.id, meta.len).slice(range.start as usize..range.end as usize);
    assert!(got == want[..], "{} {range:?} of {} bytes in {} reads wrong", meta.id, meta.len, meta.code);
}

const CODES: [Code; 4] = [Code::new(1, 0), Code::new(4, 2), Code::new(3, 1), Code::new(5, 0)];

pub async fn reads_answer_what_was_written(objects: &dyn Objects) {
    let mut counter = 0;
    for code in CODES {
        for len in [1, 511, 4096, 4097, COPIES_BYTES_MAX, COPIES_BYTES_MAX + 1, 1_000_003, STRIPE_BYTES_MAX] {
            counter += 1;
            let mut write = stripe(counter, code, len);
            if counter % 2 == 0 {
                // In pieces, of odd sizes and addresses.
                let whole = write.data.remove(0);
                let cut = 1 + (counter as usize * 977) % whole.len();
                write.data = vec![whole.slice(..cut), Bytes::new(), whole.slice(cut..)];
            }
            let meta = objects.write(write).await.expect("six OSDs are in service");
            expect(objects, &meta, 0..len).await;
            expect(objects, &meta, len - 1..len).await;
            expect(objects, &meta, len / 2..len / 2).await;
            let shard = meta.shard_bytes();
            for edge in (0..len).step_by(shard as usize).chain([4096, 65536]).filter(|e| *e > 0 && *e < len) {
                expect(objects, &meta, edge - 1..edge + 1).await;
                expect(objects, &meta, edge.saturating_sub(5000)..(edge + 5000).min(len)).await;
            }
        }
    }
}

pub async fn records_say_how_a_stripe_was_written(objects: &dyn Objects) {
    let code = Code::new(4, 2);
    for (counter, len, want) in [(1, COPIES_BYTES_MAX, Code::new(1, 2)), (2, COPIES_BYTES_MAX + 1, code)] {
        let meta = objects.write(stripe(counter, code, len)).await.expect("six OSDs are in service");
        assert_eq!((meta.code, meta.codec, meta.len), (want, Codec::for_code(want), len));
        assert_eq!((meta.osds.len(), meta.missing), (want.n(), 0));
        let mut distinct = meta.osds.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), want.n(), "every shard has an OSD of its own");
        let known = objects.osds();
        assert!(meta.osds.iter().all(|o| known.iter().any(|(osd, why)| osd == o && why.is_none())));
    }
}

pub async fn a_retried_write_answers_the_same_record(objects: &dyn Objects) {
    for len in [100, 200_000] {
        let write = stripe(len as u64, Code::new(4, 2), len);
        let first = objects.write(write.clone()).await.expect("six OSDs are in service");
        let again = objects.write(write).await.expect("a write may be retried");
        assert_eq!((again.digest, again.code, again.len), (first.digest, first.code, first.len));
        expect(objects, &first, 0..len).await;
        expect(objects, &again, 0..len).await;
    }
}

pub async fn another_writing_of_an_id_leaves_the_first_alone(objects: &dyn Objects) {
    for len in [100u32, 200_000] {
        let mut write = stripe(len as u64, Code::new(4, 2), len);
        let first = objects.write(write.clone()).await.expect("six OSDs are in service");
        write.data = vec![Bytes::from(vec![0xee; len as usize])];
        if let Ok(other) = objects.write(write).await {
            assert_ne!(other.digest, first.digest);
        }
        expect(objects, &first, 0..len).await;
    }
}

pub async fn flush_answers_its_stripes_in_order(objects: &dyn Objects) {
    assert!(objects.flush(Vec::new()).await.expect("nothing to flush").is_empty());
    let mut written = Vec::new();
    for counter in [5, 3, 9, 1] {
        let write = stripe(counter, Code::new(4, 2), counter as u32 * 30_000);
        written.push(objects.write(write).await.expect("six OSDs are in service"));
    }
    for _ in 0..2 {
        let flushed = objects.flush(written.clone()).await.expect("all OSDs flush");
        assert_eq!(flushed, written);
    }
}

pub async fn deleted_stripes_are_gone_and_others_stay(objects: &dyn Objects) {
    let mut written = Vec::new();
    for counter in 1..=6 {
        written.push(objects.write(stripe(counter, Code::new(4, 2), counter as u32 * 20_000)).await.expect("six OSDs are in service"));
    }
    objects.flush(written.clone()).await.expect("all OSDs flush");
    let (dead, live): (Vec<_>, Vec<_>) = written.into_iter().partition(|m| m.id.counter % 2 == 0);
    objects.delete(dead.clone()).await.expect("all OSDs delete");
    objects.delete(dead.clone()).await.expect("a delete may be retried");
    objects.delete(Vec::new()).await.expect("nothing to delete");
    for meta in dead {
        let answer = objects.read(&meta, 0..meta.len).await;
        assert!(matches!(answer, Err(Error::Gone { stripe }) if stripe == meta.id), "{answer:?}");
    }
    for meta in live {
        expect(objects, &meta, 0..meta.len).await;
    }
}

pub async fn caches_change_no_bytes(objects: &dyn Objects) {
    for (counter, len) in [(1, 5000), (2, 300_000), (3, STRIPE_BYTES_MAX)] {
        let meta = objects.write(stripe(counter, Code::new(4, 2), len)).await.expect("six OSDs are in service");
        objects.prefetch(&meta, 0..len / 2);
        expect(objects, &meta, len / 3..len).await;
        objects.prefetch(&meta, 0..len);
        expect(objects, &meta, 0..len).await;
        expect(objects, &meta, len / 4..len / 4 + 100).await;
        objects.drop_caches();
        expect(objects, &meta, 0..len).await;
        objects.prefetch(&meta, 0..len);
        objects.delete(vec![meta.clone()]).await.expect("all OSDs delete");
        objects.prefetch(&meta, 0..len);
    }
}

pub async fn calls_from_many_tasks_do_not_mix(objects: Arc<dyn Objects>) {
    let tasks = (1..=24u64).map(|counter| {
        let objects = objects.clone();
        tokio::spawn(async move {
            let len = (counter as u32 * 7919) % 150_000 + 1;
            let meta = objects.write(stripe(counter, Code::new(4, 2), len)).await.expect("six OSDs are in service");
            expect(&*objects, &meta, 0..len).await;
            let meta = objects.flush(vec![meta]).await.expect("all OSDs flush").remove(0);
            expect(&*objects, &meta, len / 2..len).await;
            if counter % 3 == 0 {
                objects.delete(vec![meta]).await.expect("all OSDs delete");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no task fails");
    }
}

pub async fn space_shrinks_with_overhead(objects: &dyn Objects) {
    let spaces: Vec<_> = [Code::new(1, 0), Code::new(4, 2), Code::new(1, 1), Code::new(1, 2)].map(|c| objects.space(c)).into();
    assert!(spaces.iter().all(|s| s.free <= s.total && s.total > 0));
    assert!(spaces.windows(2).all(|w| w[0].total >= w[1].total), "{spaces:?}");
    assert!(spaces[0].total >= spaces[3].total / 100 * 290, "three copies take three times the room");
}

/// Takes a shard of a stripe away from its OSD, behind the provider's back.
pub type Lose = Box<dyn Fn(&StripeMeta, usize)>;

/// Runs every check of the seam to background work, each on a provider of its own.
pub async fn check_upkeep<F>(mut fresh: impl FnMut() -> F)
where
    F: Future<Output = (Arc<dyn Upkeep>, Lose)>,
{
    let (objects, lose) = fresh().await;
    lost_shards_are_found_and_made_anew(&*objects, &lose).await;
    let (objects, lose) = fresh().await;
    beyond_its_code_nothing_is_made_anew(&*objects, &lose).await;
    let (objects, _) = fresh().await;
    a_stripe_is_written_again_in_a_wider_code(&*objects).await;
    let (objects, lose) = fresh().await;
    holdings_are_what_records_name(&*objects, &lose).await;
}

pub async fn lost_shards_are_found_and_made_anew(objects: &dyn Upkeep, lose: &Lose) {
    for (counter, len) in [(1, 5_000), (2, 300_000)] {
        let meta = objects.write(stripe(counter, Code::new(4, 2), len)).await.expect("six OSDs are in service");
        let meta = objects.flush(vec![meta]).await.expect("all OSDs flush").remove(0);
        let n = meta.code.n();
        lose(&meta, 0);
        lose(&meta, n - 1);
        let lost = 1 | 1 << (n - 1);
        let seen = objects.examine(&meta, u32::MAX).await;
        assert_eq!((seen.absent, seen.corrupt, seen.down, seen.good | lost), (lost, 0, 0, ((1 << n) - 1) as u32));
        let made = objects.rebuild(Rebuild { stripe: meta.clone(), shards: lost, readable: 0, task: 1 }).await.expect("four are left");
        assert_eq!((made.digest, made.code, made.missing), (meta.digest, meta.code, 0));
        let seen = objects.examine(&made, u32::MAX).await;
        assert_eq!(seen.good, ((1 << n) - 1) as u32, "all are there again");
        (1..n - 1).take(meta.code.m as usize).for_each(|shard| lose(&made, shard));
        expect(objects, &made, 0..len).await;
    }
}

pub async fn beyond_its_code_nothing_is_made_anew(objects: &dyn Upkeep, lose: &Lose) {
    let meta = objects.write(stripe(1, Code::new(4, 2), 300_000)).await.expect("six OSDs are in service");
    (0..3).for_each(|shard| lose(&meta, shard));
    let answer = objects.rebuild(Rebuild { stripe: meta, shards: 0b111, readable: 0, task: 1 }).await;
    assert!(matches!(answer, Err(Error::Lost { .. })), "{answer:?}");
}

pub async fn a_stripe_is_written_again_in_a_wider_code(objects: &dyn Upkeep) {
    for (counter, narrow, wide, len) in [(1, Code::new(2, 2), Code::new(4, 2), 300_000), (2, Code::new(1, 1), Code::new(1, 2), 4_000)] {
        let old = objects.write(stripe(counter, narrow, len)).await.expect("six OSDs are in service");
        assert_eq!(objects.fitting(wide, len), Some(wide));
        let new = objects.reencode(old.clone(), wide, 7).await.expect("six OSDs are in service");
        assert_eq!((new.id, new.len, new.code, new.codec, new.missing), (old.id, old.len, wide, Codec::for_code(wide), 0));
        expect(objects, &new, 0..len).await;
        let gone = old
            .osds
            .iter()
            .enumerate()
            .map(|(shard, osd)| (*osd, holdfast_objstore_proto::shard::ShardKey { stripe: old.id, shard: shard as u8 }));
        objects.discard(gone.collect()).await.expect("all OSDs are in service");
        expect(objects, &new, 0..len).await;
        assert_eq!(objects.examine(&new, u32::MAX).await.good, ((1 << wide.n()) - 1) as u32);
    }
}

pub async fn holdings_are_what_records_name(objects: &dyn Upkeep, lose: &Lose) {
    let mut named = Vec::new();
    for counter in 1..=20 {
        let meta = objects.write(stripe(counter, Code::new(4, 2), 70_000)).await.expect("six OSDs are in service");
        lose(&meta, 5);
        named.extend(meta.osds.iter().enumerate().take(5).map(|(shard, osd)| (*osd, meta.id, shard as u8)));
    }
    let mut held = Vec::new();
    for standing in objects.standing() {
        assert!(standing.up && !standing.leaving);
        let mut after = None;
        loop {
            let page = objects.holdings(standing.osd, after, 7).await.expect("it is in service");
            assert!(page.len() <= 7 && page.windows(2).all(|w| w[0] < w[1]));
            let Some(last) = page.last() else { break };
            after = Some(*last);
            held.extend(page.iter().map(|k| (standing.osd, k.stripe, k.shard)));
        }
    }
    named.sort();
    held.sort();
    assert_eq!(held, named);
}
