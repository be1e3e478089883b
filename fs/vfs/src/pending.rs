//! What of an inode has left the dirty pages and is not yet published: flights on their way to the devices, and pending extents the devices have.
//!
//! What always holds: flights are numbered as they arrive, and a later one wins where they overlap, whichever lands first: a flight that lands takes its
//! bytes out of every earlier one still in the air, and lies over everything that landed before it. So pending entries never overlap, their order in a
//! Publish does not matter, and a stripe nobody refers to any more is known.
//! What it leaves out: how stripes are written and published (writeback).

use crate::budget::DirtyCharge;
use crate::extent::{ExtentTree, Place};
use crate::inline::Inlined;
use bytes::Bytes;
use holdfast_objstore_proto::meta::CHUNK_BYTES;
use holdfast_objstore_proto::{StripeId, StripeMeta};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Inline extents that may wait for one Publish.
const INLINE_EXTENTS_MAX: usize = 64;

/// A run of file bytes inside a flight's stripe.
#[derive(Debug, Clone)]
pub struct Piece {
    pub offset: u64,
    pub data: Bytes,
    pub stripe_offset: u32,
}

impl Piece {
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }
}

/// One stripe on its way to the devices; its bytes stay readable here.
pub struct Flight {
    pub pieces: SmallVec<[Piece; 1]>,
    /// What later flights and truncations have left of it, in order.
    live: SmallVec<[Range<u64>; 1]>,
    /// Given back when the flight lands.
    _charges: Vec<DirtyCharge>,
    bytes: u64,
    buffered: bool,
}

#[derive(Default)]
pub struct Unpublished {
    flights: BTreeMap<u64, Flight>,
    next_seq: u64,
    /// Bytes of flights that came from dirty pages.
    pub buffered_bytes: u64,
    pub pending: ExtentTree,
    /// Counts landings; a pending extent's `born` is its landing.
    pub landed: u64,
    /// Extents born at or before this are in a Publish under way.
    publishing: u64,
    /// Extents born after this were in no Publish yet.
    named: u64,
    /// Pending extents by stripe.
    refs: HashMap<StripeId, u32>,
    /// Stripes superseded before any Publish named them.
    dead: Vec<Arc<StripeMeta>>,
}

fn subtract(from: &mut SmallVec<[Range<u64>; 1]>, cut: &Range<u64>) {
    if !from.iter().any(|r| r.start < cut.end && cut.start < r.end) {
        return;
    }
    let mut left = SmallVec::new();
    for r in from.drain(..) {
        if r.start < cut.start.min(r.end) {
            left.push(r.start..cut.start.min(r.end));
        }
        if r.end > cut.end.max(r.start) {
            left.push(cut.end.max(r.start)..r.end);
        }
    }
    *from = left;
}

impl Unpublished {
    /// Puts a stripe's pieces in the air above all others; answers the flight's number.
    pub fn depart(&mut self, pieces: SmallVec<[Piece; 1]>, charges: Vec<DirtyCharge>, buffered: bool) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let bytes = pieces.iter().map(|p| p.data.len() as u64).sum();
        let live = pieces.iter().map(Piece::range).collect();
        if buffered {
            self.buffered_bytes += bytes;
        }
        self.flights.insert(seq, Flight { pieces, live, _charges: charges, bytes, buffered });
        seq
    }

    /// The number the next flight will get: every flight below it has departed.
    pub fn mark(&self) -> u64 {
        self.next_seq
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether every flight below `mark` has landed.
    pub fn landed_before(&self, mark: u64) -> bool {
        self.flights.first_key_value().is_none_or(|(seq, _)| *seq >= mark)
    }

    fn remove(&mut self, seq: u64) -> Option<Flight> {
        let f = self.flights.remove(&seq)?;
        if f.buffered {
            self.buffered_bytes -= f.bytes;
        }
        Some(f)
    }

    /// The devices have the flight: its live bytes become pending extents. Answers the end of the last one, if any was left.
    /// `inline`: the stripe's bytes, when they are to travel in the Publish instead.
    pub fn land(&mut self, seq: u64, stripe: Arc<StripeMeta>, inline: Option<Inlined>) -> Option<u64> {
        let Some(f) = self.remove(seq) else {
            self.die(stripe);
            return None;
        };
        self.landed += 1;
        let mut end = None;
        for piece in &f.pieces {
            for live in &f.live {
                let (from, to) = (live.start.max(piece.offset), live.end.min(piece.range().end));
                if from < to {
                    self.lay(from..to, piece, &stripe, &inline);
                    end = end.max(Some(to));
                }
            }
        }
        for (_, earlier) in self.flights.range_mut(..seq) {
            for live in &f.live {
                subtract(&mut earlier.live, live);
            }
        }
        if !self.refs.contains_key(&stripe.id) {
            self.die(stripe);
        }
        end
    }

    /// Nothing refers to it and no Publish has named it. Of an inline stripe nothing is left then.
    fn die(&mut self, stripe: Arc<StripeMeta>) {
        if !stripe.is_bare() {
            self.dead.push(stripe);
        }
    }

    /// Bytes of the inline stripes that wait for a Publish; `None` when others wait too, or many.
    pub fn inline_bytes(&self) -> Option<usize> {
        if self.pending.len() > INLINE_EXTENTS_MAX {
            return None;
        }
        let (mut bytes, mut seen) = (0, SmallVec::<[StripeId; 8]>::new());
        for (_, p) in self.pending.iter() {
            let inline = p.inline.as_ref()?;
            if !seen.contains(&p.stripe.id) {
                seen.push(p.stripe.id);
                bytes += inline.data.len();
            }
        }
        Some(bytes)
    }

    /// Inserts one live range as extents that do not cross chunks.
    fn lay(&mut self, range: Range<u64>, piece: &Piece, stripe: &Arc<StripeMeta>, inline: &Option<Inlined>) {
        let mut at = range.start;
        while at < range.end {
            let stop = range.end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let place = Place {
                len: (stop - at) as u32,
                stripe: stripe.clone(),
                stripe_offset: piece.stripe_offset + (at - piece.offset) as u32,
                inline: inline.clone(),
                born: self.landed,
            };
            *self.refs.entry(stripe.id).or_default() += 1;
            let (pending, mut gone) = (&mut self.pending, Vec::new());
            pending.insert(at, place, |p| gone.push(p));
            self.recount(gone);
            at = stop;
        }
    }

    /// Counts references anew after pieces were displaced. A cut in the middle leaves two entries of one, so the tree is asked.
    fn recount(&mut self, gone: Vec<Place>) {
        for p in gone {
            let id = p.stripe.id;
            let still = if p.stripe.len == p.len { 0 } else { self.pending.iter().filter(|(_, q)| q.stripe.id == id).count() as u32 };
            if still == 0 {
                self.refs.remove(&id);
                if p.born > self.named {
                    self.die(p.stripe);
                }
            } else {
                self.refs.insert(id, still);
            }
        }
    }

    /// The flight failed: its bytes are lost.
    pub fn fail(&mut self, seq: u64) -> bool {
        self.remove(seq).is_some()
    }

    /// Forgets everything at and beyond `size`.
    pub fn truncate(&mut self, size: u64) {
        for f in self.flights.values_mut() {
            subtract(&mut f.live, &(size..u64::MAX));
        }
        let mut gone = Vec::new();
        self.pending.cut(size..u64::MAX, |p| gone.push(p));
        self.recount(gone);
    }

    /// Forgets everything, flights too; answers the stripes that no Publish has named.
    #[must_use]
    pub fn clear(&mut self) -> Vec<Arc<StripeMeta>> {
        let mut garbage = self.take_dead();
        for (_, p) in self.pending.iter().filter(|(_, p)| p.born > self.named) {
            if self.refs.remove(&p.stripe.id).is_some() && !p.stripe.is_bare() {
                garbage.push(p.stripe.clone());
            }
        }
        *self = Self { next_seq: self.next_seq, landed: self.landed, named: self.named, ..Self::default() };
        garbage
    }

    /// A Publish names all extents born until `born` from now on.
    pub fn begin_publish(&mut self, born: u64) {
        self.publishing = born;
        self.named = self.named.max(born);
    }

    /// Whether no Publish has named any pending extent yet.
    pub fn unnamed(&self) -> bool {
        self.pending.iter().all(|(_, p)| p.born > self.named)
    }

    /// The Publish was applied, or refused for good: extents born until then leave; `gone` sees each that was still there.
    pub fn end_publish(&mut self, mut gone: impl FnMut(u64, Place)) {
        let born = self.publishing;
        let refs = &mut self.refs;
        self.pending.remove_born_until(born, |offset, p| {
            refs.remove(&p.stripe.id);
            gone(offset, p);
        });
    }

    /// Stripes to delete: superseded before any Publish named them.
    pub fn take_dead(&mut self) -> Vec<Arc<StripeMeta>> {
        std::mem::take(&mut self.dead)
    }

    pub fn dead_len(&self) -> usize {
        self.dead.len()
    }

    /// Flights in the air, the latest first.
    pub fn flights_down(&self) -> impl Iterator<Item = u64> {
        self.flights.keys().rev().copied()
    }

    /// Live bytes of one flight within `range`, in order.
    pub fn flight_overlaps(&self, seq: u64, range: Range<u64>) -> SmallVec<[(u64, Bytes); 2]> {
        let Some(f) = self.flights.get(&seq) else { return SmallVec::new() };
        let mut out = SmallVec::new();
        for live in f.live.iter().filter(|l| l.start < range.end && range.start < l.end) {
            for piece in &f.pieces {
                let from = live.start.max(piece.offset).max(range.start);
                let to = live.end.min(piece.range().end).min(range.end);
                if from < to {
                    out.push((from, piece.data.slice((from - piece.offset) as usize..(to - piece.offset) as usize)));
                }
            }
        }
        out.sort_unstable_by_key(|(offset, _)| *offset);
        out
    }
}

/// The one piece of a flight whose stripe holds just `data`.
pub fn whole(offset: u64, data: Bytes) -> SmallVec<[Piece; 1]> {
    smallvec![Piece { offset, data, stripe_offset: 0 }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_proto::{Code, Codec, OsdId};

    fn stripe(n: u64, len: u32) -> Arc<StripeMeta> {
        let id = StripeId { counter: n, ..Default::default() };
        let osds = [OsdId(0)].into_iter().collect();
        Arc::new(StripeMeta { id, codec: Codec::Replica, code: Code::new(1, 0), len, digest: 0, osds, missing: 0 })
    }

    fn owner(u: &Unpublished, at: u64) -> Option<u64> {
        u.pending.overlaps(at..at + 1).next().map(|(_, p)| p.stripe.id.counter)
    }

    #[test]
    fn the_last_to_arrive_wins_whichever_lands_first() {
        let mut u = Unpublished::default();
        let a = u.depart(whole(0, Bytes::from(vec![1; 100])), vec![], false);
        let b = u.depart(whole(50, Bytes::from(vec![2; 20])), vec![], false);
        assert_eq!(u.flight_overlaps(b, 60..61).first().map(|(_, d)| d[0]), Some(2));
        assert_eq!(u.land(b, stripe(2, 20), None), Some(70));
        assert!(u.flight_overlaps(a, 60..61).is_empty(), "the earlier flight no longer shows what the later one has overwritten");
        assert_eq!(u.land(a, stripe(1, 100), None), Some(100));
        assert_eq!([owner(&u, 49), owner(&u, 50), owner(&u, 69), owner(&u, 70)], [Some(1), Some(2), Some(2), Some(1)]);
        assert!(u.take_dead().is_empty());
    }

    #[test]
    fn stripes_superseded_before_a_publish_are_dead_and_those_in_one_are_not() {
        let mut u = Unpublished::default();
        for n in 0..3 {
            let s = u.depart(whole(0, Bytes::from(vec![1; 64])), vec![], false);
            u.land(s, stripe(n, 64), None);
        }
        assert_eq!(u.take_dead().iter().map(|s| s.id.counter).collect::<Vec<_>>(), [0, 1]);
        u.begin_publish(u.landed);
        let s = u.depart(whole(0, Bytes::from(vec![1; 64])), vec![], false);
        u.land(s, stripe(3, 64), None);
        u.end_publish(|_, _| panic!("the published extent was overwritten"));
        assert!(u.take_dead().is_empty());
        assert_eq!(owner(&u, 0), Some(3));
    }

    #[test]
    fn inline_stripes_are_counted_whole_and_leave_no_garbage() {
        let mut u = Unpublished::default();
        let inline = |n: u64, len: usize| {
            let id = StripeId { counter: n, ..Default::default() };
            let data = Bytes::from(vec![n as u8; len]);
            (Arc::new(StripeMeta::bare(id, len as u32)), Some(Inlined::sent(data)))
        };
        for n in 1..4 {
            let s = u.depart(whole(n * 10, Bytes::from(vec![n as u8; 100])), vec![], false);
            let (stripe, data) = inline(n, 100);
            u.land(s, stripe, data);
        }
        assert_eq!((u.inline_bytes(), u.pending.len()), (Some(300), 3), "a part of a stripe is sent with the whole of it");
        u.truncate(15);
        assert_eq!((u.inline_bytes(), u.take_dead().len()), (Some(100), 0));
        let s = u.depart(whole(500, Bytes::from(vec![9; 10])), vec![], false);
        u.land(s, stripe(9, 10), None);
        assert_eq!(u.inline_bytes(), None);
        assert_eq!(u.clear().iter().map(|s| s.id.counter).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn a_truncation_reaches_what_is_in_the_air() {
        let mut u = Unpublished::default();
        let s = u.depart(whole(0, Bytes::from(vec![1; 100])), vec![], true);
        u.truncate(40);
        assert_eq!(u.buffered_bytes, 100);
        assert_eq!(u.land(s, stripe(1, 100), None), Some(40));
        u.truncate(0);
        assert_eq!((u.take_dead().len(), u.pending.len(), u.buffered_bytes), (1, 0, 0));
    }

    #[test]
    fn an_extent_never_crosses_a_chunk() {
        let mut u = Unpublished::default();
        let s = u.depart(whole(CHUNK_BYTES - 10, Bytes::from(vec![1; 30])), vec![], false);
        u.land(s, stripe(1, 30), None);
        let got: Vec<_> = u.pending.iter().map(|(o, p)| (o, p.len, p.stripe_offset)).collect();
        assert_eq!(got, [(CHUNK_BYTES - 10, 10, 0), (CHUNK_BYTES, 20, 10)]);
    }
}
