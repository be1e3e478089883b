//! The index: which shards are held and where, how much of each segment is alive, and which dead segments must stay.
//!
//! What always holds. Applying a record again, or an older one after a newer, changes nothing: a later position wins. So a
//! snapshot taken in pieces while records arrive, and the records since its mark, give the same index.
//!
//! **Dead segments that must stay.** A record that takes a shard away (a delete, or a later copy of the same shard) *pins*
//! its own segment for as long as a recovery could still meet what it takes away without meeting it: until the segments of
//! its targets are retired, or until both checkpoint slots stand behind it. Only then may its segment be retired.
//!
//! Memory: 29 bytes of key and place in a B-tree filled to about two thirds: some 45 bytes a shard.

use crate::log::format::head::head_blocks;
use crate::log::{Location, Position};
use crate::service::record::SHARD_META_BYTES;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::{StripeId, StripeRange};
use std::collections::{BTreeMap, BTreeSet};

/// A shard's key in 17 bytes whose order is the key's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(pub [u8; 17]);

impl Key {
    pub fn stripe(&self) -> StripeId {
        StripeId::from_bytes(*self.0.first_chunk().expect("seventeen bytes"))
    }

    /// The keys of all shards of a stripe.
    pub fn all_of(stripe: StripeId) -> std::ops::RangeInclusive<Key> {
        Key::from(ShardKey { stripe, shard: 0 })..=Key::from(ShardKey { stripe, shard: u8::MAX })
    }
}

impl From<ShardKey> for Key {
    fn from(k: ShardKey) -> Self {
        let mut b = [0; 17];
        b[..16].copy_from_slice(&k.stripe.to_bytes());
        b[16] = k.shard;
        Self(b)
    }
}

impl From<Key> for ShardKey {
    fn from(k: Key) -> Self {
        Self { stripe: k.stripe(), shard: k.0[16] }
    }
}

/// Where a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub position: Position,
    pub payload_blocks: u16,
}

const _: () = assert!(std::mem::size_of::<Key>() == 17 && std::mem::size_of::<Entry>() == 12);

impl Entry {
    /// `None`: no shard has such a location.
    pub fn new(at: &Location) -> Option<Self> {
        let blocks = at.payload_bytes / BLOCK as u32;
        let entry = Self { position: at.position, payload_blocks: u16::try_from(blocks).ok()? };
        (entry.location() == *at).then_some(entry)
    }

    pub fn location(&self) -> Location {
        let payload_bytes = self.payload_blocks as u32 * BLOCK as u32;
        Location { position: self.position, head_blocks: head_blocks(SHARD_META_BYTES, payload_bytes), payload_bytes }
    }
}

/// What is known of one segment, by life.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Life {
    pub live_bytes: u64,
    /// Lives that hold what records here take away.
    pub targets: BTreeSet<u32>,
    /// The last record here that something depends on.
    pub last: Option<Position>,
    /// A fence lies here: it has no targets to wait for.
    pub fence: bool,
}

impl Life {
    /// Whether records here are still needed, when both checkpoint slots stand behind `covered`.
    pub fn pinned(&self, covered: Option<Position>) -> bool {
        (self.fence || !self.targets.is_empty()) && self.last.is_none_or(|last| covered.is_none_or(|c| c <= last))
    }
}

#[derive(Debug, Default)]
pub(super) struct Index {
    pub shards: BTreeMap<Key, Entry>,
    pub lives: BTreeMap<u32, Life>,
    pub live_bytes: u64,
    /// Refused ranges, by first id.
    pub fences: BTreeMap<StripeId, u64>,
}

impl Index {
    /// A shard was recorded. Answers whether it is the one that counts now.
    pub fn insert(&mut self, key: Key, entry: Entry) -> bool {
        if self.shards.get(&key).is_some_and(|old| old.position >= entry.position) {
            return false;
        }
        let bytes = entry.location().stored_bytes();
        self.lives.entry(entry.position.life).or_default().live_bytes += bytes;
        self.live_bytes += bytes;
        if let Some(old) = self.shards.insert(key, entry) {
            self.took_away(entry.position, old);
        }
        true
    }

    /// A delete was recorded at `at`: forgets what came before it.
    pub fn delete(&mut self, stripe: StripeId, at: Position) {
        let dead: Vec<(Key, Entry)> =
            self.shards.range(Key::all_of(stripe)).filter(|(_, e)| e.position < at).map(|(k, e)| (*k, *e)).collect();
        for (key, entry) in dead {
            self.shards.remove(&key);
            self.took_away(at, entry);
        }
    }

    /// A drop of one shard was recorded at `at`: forgets it, if it came before.
    pub fn drop_shard(&mut self, key: Key, at: Position) {
        if self.shards.get(&key).is_some_and(|e| e.position < at)
            && let Some(entry) = self.shards.remove(&key)
        {
            self.took_away(at, entry);
        }
    }

    fn took_away(&mut self, by: Position, entry: Entry) {
        let bytes = entry.location().stored_bytes();
        self.live_bytes -= bytes;
        if let Some(life) = self.lives.get_mut(&entry.position.life) {
            life.live_bytes -= bytes;
        }
        if entry.position.life != by.life {
            let life = self.lives.entry(by.life).or_default();
            life.targets.insert(entry.position.life);
            life.last = life.last.max(Some(by));
        }
    }

    /// A fence was recorded at `at`.
    pub fn fence(&mut self, range: StripeRange, at: Position) {
        let life = self.lives.entry(at.life).or_default();
        life.fence = true;
        life.last = life.last.max(Some(at));
        self.add_fence(range);
    }

    pub fn add_fence(&mut self, range: StripeRange) {
        // Ranges are granted in order and retired about so: most join the one before.
        let (mut first, mut end) = (range.first, range.first.counter.saturating_add(range.count));
        let same = |s: &StripeId| (s.incarnation, s.group) == (range.first.incarnation, range.first.group);
        let touching: Vec<(StripeId, u64)> = self
            .fences
            .range(..=StripeId { counter: end, ..range.first })
            .rev()
            .take_while(|(s, n)| same(s) && s.counter.saturating_add(**n) >= range.first.counter)
            .map(|(s, n)| (*s, *n))
            .collect();
        for (s, n) in touching {
            self.fences.remove(&s);
            first = first.min(s);
            end = end.max(s.counter.saturating_add(n));
        }
        self.fences.insert(first, end - first.counter);
    }

    pub fn fenced(&self, stripe: StripeId) -> bool {
        let before = self.fences.range(..=stripe).next_back();
        before.is_some_and(|(first, count)| StripeRange { first: *first, count: *count }.contains(stripe))
    }

    /// Whether every id of the range is refused.
    pub fn all_fenced(&self, range: StripeRange) -> bool {
        let before = self.fences.range(..=range.first).next_back();
        before.is_some_and(|(first, count)| {
            let fence = StripeRange { first: *first, count: *count };
            let last = StripeId { counter: range.first.counter.saturating_add(range.count.saturating_sub(1)), ..range.first };
            fence.contains(range.first) && fence.contains(last)
        })
    }

    /// A segment was retired: nothing waits for it any more.
    pub fn retired(&mut self, life: u32) {
        self.lives.remove(&life);
        for l in self.lives.values_mut() {
            l.targets.remove(&life);
        }
    }

    /// Whether nothing in the segment of this life is needed.
    pub fn dead(&self, life: u32, covered: Option<Position>) -> bool {
        self.lives.get(&life).is_none_or(|l| l.live_bytes == 0 && !l.pinned(covered))
    }

    /// After a recovery: keeps what lies in segments in service, and counts it.
    pub fn settle(&mut self, in_service: &BTreeSet<u32>) {
        self.shards.retain(|_, e| in_service.contains(&e.position.life));
        self.lives.retain(|life, _| in_service.contains(life));
        for life in self.lives.values_mut() {
            life.targets.retain(|t| in_service.contains(t));
        }
        self.recount();
    }

    /// Counts live bytes anew.
    pub fn recount(&mut self) {
        self.live_bytes = 0;
        self.lives.values_mut().for_each(|l| l.live_bytes = 0);
        for entry in self.shards.values() {
            let bytes = entry.location().stored_bytes();
            self.live_bytes += bytes;
            self.lives.entry(entry.position.life).or_default().live_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(counter: u64) -> StripeId {
        StripeId { incarnation: 1, group: 0, counter }
    }
    fn key(counter: u64) -> Key {
        ShardKey { stripe: stripe(counter), shard: 2 }.into()
    }
    fn entry(life: u32, block: u32) -> Entry {
        Entry { position: Position { life, block }, payload_blocks: 1 }
    }
    fn at(life: u32, block: u32) -> Position {
        Position { life, block }
    }

    #[test]
    fn a_delete_pins_its_segment_until_its_targets_are_retired() {
        let mut i = Index::default();
        i.insert(key(1), entry(1, 2));
        i.insert(key(2), entry(2, 2));
        i.delete(stripe(1), at(3, 9));
        assert!(i.dead(1, None) && !i.dead(2, None) && !i.dead(3, None));
        i.retired(1);
        assert!(i.dead(3, None));
    }

    #[test]
    fn a_delete_behind_both_checkpoints_pins_nothing() {
        let mut i = Index::default();
        i.insert(key(1), entry(1, 2));
        i.insert(key(9), entry(1, 4));
        i.delete(stripe(1), at(3, 9));
        assert!(!i.dead(3, Some(at(3, 9))), "the checkpoint stands before it");
        assert!(i.dead(3, Some(at(3, 10))));
        assert!(!i.dead(1, Some(at(3, 10))), "the other shard lives");
    }

    #[test]
    fn a_later_copy_pins_its_segment_while_the_older_one_is_there() {
        let mut i = Index::default();
        i.insert(key(1), entry(1, 2));
        i.insert(key(5), entry(1, 4));
        i.insert(key(1), entry(2, 2));
        i.delete(stripe(1), at(3, 2));
        assert!(!i.dead(2, None), "else a recovery would find the copy in life 1 and no delete");
        i.delete(stripe(5), at(3, 3));
        i.retired(1);
        assert!(i.dead(2, None) && !i.dead(3, None));
    }

    #[test]
    fn older_records_applied_after_newer_ones_change_nothing() {
        let mut i = Index::default();
        assert!(i.insert(key(1), entry(2, 8)));
        assert!(!i.insert(key(1), entry(2, 8)) && !i.insert(key(1), entry(1, 8)));
        i.delete(stripe(1), at(2, 4));
        assert_eq!((i.shards.len(), i.live_bytes), (1, 8192));
    }

    #[test]
    fn fences_that_touch_are_one_and_refuse_what_they_hold() {
        let mut i = Index::default();
        for (first, count) in [(10, 5), (30, 5), (15, 5), (19, 11)] {
            i.add_fence(StripeRange { first: stripe(first), count });
        }
        assert_eq!(i.fences.len(), 1);
        assert!(i.fenced(stripe(10)) && i.fenced(stripe(34)) && !i.fenced(stripe(35)) && !i.fenced(stripe(9)));
        assert!(!i.fenced(StripeId { group: 1, ..stripe(20) }));
    }
}
