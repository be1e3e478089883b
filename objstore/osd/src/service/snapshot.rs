//! The index as a checkpoint of the log holds it. Drawn in docs/formats/osd.md.
//!
//! ```text
//!  off size
//!    0    8  "HfIndex\0"
//!    8    4  version, 1
//!   12    4  0
//!   16    8  shards
//!   24    8  segments with pins
//!   32    8  fences
//!   40       shards, 27 bytes each: stripe id (16, big-endian), shard (1), life (4), block (4), payload blocks (2)
//!            segments: life (4), fence lies here (1), last record: life (4) and block (4), targets (4), their lives (4 each)
//!            fences: first stripe id (16, big-endian), how many (8)
//! ```
//! The log checksums the whole.

use super::index::{Entry, Index, Key, Life};
use crate::log::Position;
use crate::log::format::{Bad, Fields};
use holdfast_objstore_base::dump::{Line, Sink};
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::{StripeId, StripeRange};
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;

const MAGIC: [u8; 8] = *b"HfIndex\0";
const VERSION: u32 = 1;
const HEADER: usize = 40;
const SHARD: usize = 27;
const SEGMENT: usize = 17;
const FENCE: usize = 24;

/// Writes an index piece by piece, so that it need not be locked for long.
pub(super) struct Writer {
    out: Vec<u8>,
    shards: u64,
    after: Option<Key>,
    /// As they were at the mark. A later one is a record behind it, which a start applies in its turn: told here, it would turn away shards
    /// that were put before it.
    fences: BTreeMap<StripeId, u64>,
}

impl Writer {
    /// Begins right after the log's mark was taken.
    pub fn new(index: &Index) -> Self {
        Self { out: vec![0; HEADER], shards: 0, after: None, fences: index.fences.clone() }
    }

    /// Writes the next shards, at most `limit`. False: there were none left.
    pub fn piece(&mut self, index: &Index, limit: usize) -> bool {
        let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        let before = self.shards;
        for (key, e) in index.shards.range((from, Bound::Unbounded)).take(limit) {
            self.out.extend_from_slice(&key.0);
            self.out.extend_from_slice(&e.position.life.to_le_bytes());
            self.out.extend_from_slice(&e.position.block.to_le_bytes());
            self.out.extend_from_slice(&e.payload_blocks.to_le_bytes());
            self.shards += 1;
            self.after = Some(*key);
        }
        self.shards > before
    }

    pub fn finish(mut self, index: &Index) -> Vec<u8> {
        let pinned = index.lives.iter().filter_map(|(life, l)| l.last.map(|last| (life, l, last)));
        let mut segments = 0u64;
        for (life, l, last) in pinned {
            self.out.extend_from_slice(&life.to_le_bytes());
            self.out.push(l.fence as u8);
            self.out.extend_from_slice(&last.life.to_le_bytes());
            self.out.extend_from_slice(&last.block.to_le_bytes());
            self.out.extend_from_slice(&(l.targets.len() as u32).to_le_bytes());
            for t in &l.targets {
                self.out.extend_from_slice(&t.to_le_bytes());
            }
            segments += 1;
        }
        for (first, count) in &self.fences {
            self.out.extend_from_slice(&first.to_bytes());
            self.out.extend_from_slice(&count.to_le_bytes());
        }
        self.out[..8].copy_from_slice(&MAGIC);
        self.out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        self.out[16..24].copy_from_slice(&self.shards.to_le_bytes());
        self.out[24..32].copy_from_slice(&segments.to_le_bytes());
        self.out[32..40].copy_from_slice(&(self.fences.len() as u64).to_le_bytes());
        self.out
    }
}

/// Takes `n` bytes off the front.
fn split<'a>(rest: &mut &'a [u8], n: usize) -> Result<&'a [u8], Bad> {
    let (head, tail) = rest.split_at_checked(n).ok_or(Bad::Short)?;
    *rest = tail;
    Ok(head)
}

pub(super) fn decode(bytes: &[u8]) -> Result<Index, Bad> {
    let mut rest = bytes;
    let mut f = Fields(split(&mut rest, HEADER)?);
    if f.take::<8>() != MAGIC {
        return Err(Bad::Foreign);
    }
    let version = f.u32();
    if version != VERSION {
        return Err(Bad::Newer(version));
    }
    f.u32();
    let (shards, segments, fences) = (f.u64(), f.u64(), f.u64());
    let mut index = Index::default();
    let shard_bytes = usize::try_from(shards).ok().and_then(|n| n.checked_mul(SHARD)).ok_or(Bad::Short)?;
    let sorted = split(&mut rest, shard_bytes)?.chunks_exact(SHARD).map(|raw| {
        let mut f = Fields(raw);
        (Key(f.take()), Entry { position: Position { life: f.u32(), block: f.u32() }, payload_blocks: f.u16() })
    });
    index.shards = sorted.collect();
    for _ in 0..segments {
        let mut f = Fields(split(&mut rest, SEGMENT)?);
        let (life, fence) = (f.u32(), f.u8() != 0);
        let last = Position { life: f.u32(), block: f.u32() };
        let targets = split(&mut rest, (f.u32() as usize).checked_mul(4).ok_or(Bad::Short)?)?;
        let targets = targets.chunks_exact(4).map(|c| Fields(c).u32()).collect();
        index.lives.insert(life, Life { live_bytes: 0, targets, last: Some(last), fence });
    }
    for _ in 0..fences {
        let mut f = Fields(split(&mut rest, FENCE)?);
        index.add_fence(StripeRange { first: StripeId::from_bytes(f.take()), count: f.u64() });
    }
    if !rest.is_empty() {
        return Err(Bad::Bounds("length"));
    }
    index.recount();
    Ok(index)
}

/// Tells of a checkpoint's content: one line for the whole and one for each thing in it.
pub(super) fn dump(line: Line, content: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
    let index = match decode(content) {
        Ok(index) => index,
        Err(bad) => return sink(line.bad(bad)),
    };
    let part = |kind| line.part(kind);
    for (key, e) in &index.shards {
        let key = ShardKey::from(*key);
        sink(
            part("index-shard").show("stripe", key.stripe).with("shard", key.shard).show("at", e.position).with("blocks", e.payload_blocks),
        )?;
    }
    for (life, l) in index.lives.iter().filter(|(_, l)| l.last.is_some()) {
        sink(
            part("index-pin")
                .with("life", life)
                .with("targets", &l.targets)
                .with("fence", l.fence)
                .with("last", l.last.map(|p| p.to_string())),
        )?;
    }
    for (first, count) in &index.fences {
        sink(part("index-fence").show("first", first).with("count", count))?;
    }
    sink(line.with("shards", index.shards.len()).with("fences", index.fences.len()))
}

/// A sample for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let mut index = Index::default();
    let stripe = |counter| StripeId { incarnation: 1, group: 2, counter };
    for n in 0..6u64 {
        let entry = Entry { position: Position { life: 1 + n as u32 / 4, block: 2 + n as u32 }, payload_blocks: 1 };
        index.insert(ShardKey { stripe: stripe(n / 2), shard: (n % 2) as u8 }.into(), entry);
    }
    index.delete(stripe(1), Position { life: 9, block: 2 });
    index.fence(StripeRange { first: stripe(500), count: 9 }, Position { life: 9, block: 3 });
    let mut writer = Writer::new(&index);
    while writer.piece(&index, 100) {}
    vec![writer.finish(&index)]
}

/// An index that decodes comes back whole from its own encoding.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(index) = decode(bytes) else { return };
    let mut writer = Writer::new(&index);
    while writer.piece(&index, 3) {}
    let again = decode(&writer.finish(&index)).expect("what was encoded decodes");
    assert_eq!((&again.shards, &again.lives, &again.fences), (&index.shards, &index.lives, &index.fences));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_fence_raised_while_the_index_is_written_is_left_to_its_record() {
        let mut i = Index::default();
        let range = |counter| StripeRange { first: StripeId { incarnation: 1, group: 2, counter }, count: 8 };
        i.fence(range(0), Position { life: 1, block: 2 });
        let mut w = Writer::new(&i);
        while w.piece(&i, 7) {}
        // A shard of this range may have been put behind the mark and before the fence: a start must meet them in that order.
        i.fence(range(64), Position { life: 1, block: 9 });
        let back = decode(&w.finish(&i)).unwrap();
        assert!(back.fenced(range(0).first) && !back.fenced(range(64).first));
    }

    #[test]
    fn an_index_written_in_pieces_comes_back_whole() {
        let mut i = Index::default();
        let stripe = |counter| StripeId { incarnation: 1, group: 2, counter };
        for n in 0..100u64 {
            let entry = Entry { position: Position { life: 1 + n as u32 / 40, block: 2 + n as u32 }, payload_blocks: 1 };
            i.insert(ShardKey { stripe: stripe(n / 2), shard: (n % 2) as u8 }.into(), entry);
        }
        i.delete(stripe(3), Position { life: 9, block: 2 });
        i.fence(StripeRange { first: stripe(500), count: 9 }, Position { life: 9, block: 3 });
        let mut w = Writer::new(&i);
        while w.piece(&i, 7) {}
        let bytes = w.finish(&i);
        let mut back = decode(&bytes).unwrap();
        back.settle(&BTreeSet::from([1, 2, 3, 9]));
        assert_eq!((&back.shards, &back.lives, back.live_bytes, &back.fences), (&i.shards, &i.lives, i.live_bytes, &i.fences));
        for n in 0..bytes.len() {
            assert!(decode(&bytes[..n]).is_err(), "cut at {n}");
        }
        // The log's checksum stands before it; still, no bytes make it panic or allocate beyond what is there.
        let mut rng = holdfast_objstore_base::sim::Rng::new(9);
        for _ in 0..5000 {
            let mut flipped = bytes.clone();
            let at = rng.below(flipped.len() as u64) as usize;
            flipped[at] = rng.next_u64() as u8;
            let _ = decode(&flipped);
        }
    }
}
