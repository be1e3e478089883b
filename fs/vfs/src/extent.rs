//! An interval map from file bytes to stripe bytes: what is written and unpublished, and what is cached of the committed map.
//!
//! What always holds: entries never overlap and are never empty; a later insert lies over what was there.

use crate::inline::Inlined;
use holdfast_objstore_proto::StripeMeta;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Where a run of a file's bytes lives.
#[derive(Debug, Clone)]
pub struct Place {
    pub len: u32,
    pub stripe: Arc<StripeMeta>,
    /// Byte offset in the stripe's data.
    pub stripe_offset: u32,
    /// The stripe's bytes, when no OSD has them.
    pub inline: Option<Inlined>,
    /// When it was inserted, in the order of the tree's owner.
    pub born: u64,
}

impl Place {
    /// The part that starts `skip` bytes in and has `len` bytes.
    fn part(&self, skip: u32, len: u32) -> Place {
        Place { len, stripe_offset: self.stripe_offset + skip, ..self.clone() }
    }
}

#[derive(Debug, Default)]
pub struct ExtentTree {
    map: BTreeMap<u64, Place>,
    bytes: u64,
}

impl ExtentTree {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Bytes covered.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn clear(&mut self) {
        self.map.clear();
        self.bytes = 0;
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Place)> {
        self.map.iter().map(|(o, p)| (*o, p))
    }

    /// Lays `place` over `[offset, offset + place.len)`; `gone` sees each piece it displaces.
    pub fn insert(&mut self, offset: u64, place: Place, gone: impl FnMut(Place)) {
        debug_assert!(place.len > 0);
        self.cut(offset..offset + place.len as u64, gone);
        self.bytes += place.len as u64;
        self.map.insert(offset, place);
    }

    /// Removes what covers `range`; `gone` sees each piece removed.
    pub fn cut(&mut self, range: Range<u64>, mut gone: impl FnMut(Place)) {
        if range.is_empty() {
            return;
        }
        let bytes = &mut self.bytes;
        let mut gone = |p: Place| {
            *bytes -= p.len as u64;
            gone(p);
        };
        if let Some((&start, p)) = self.map.range_mut(..range.start).next_back() {
            let end = start + p.len as u64;
            if end > range.start {
                let keep = (range.start - start) as u32;
                let cut_end = end.min(range.end);
                gone(p.part(keep, (cut_end - range.start) as u32));
                let tail = (end > range.end).then(|| p.part((range.end - start) as u32, (end - range.end) as u32));
                p.len = keep;
                if let Some(tail) = tail {
                    self.map.insert(range.end, tail);
                    return;
                }
            }
        }
        while let Some((&start, p)) = self.map.range(range.clone()).next() {
            let end = start + p.len as u64;
            let p = self.map.remove(&start).expect("just seen");
            if end > range.end {
                let keep = (end - range.end) as u32;
                self.map.insert(range.end, p.part(p.len - keep, keep));
                gone(p.part(0, p.len - keep));
            } else {
                gone(p);
            }
        }
    }

    /// Removes what was born at or before `born`; calls `gone` for each.
    pub fn remove_born_until(&mut self, born: u64, mut gone: impl FnMut(u64, Place)) {
        let dead: Vec<u64> = self.map.iter().filter(|(_, p)| p.born <= born).map(|(o, _)| *o).collect();
        for offset in dead {
            let p = self.map.remove(&offset).expect("just seen");
            self.bytes -= p.len as u64;
            gone(offset, p);
        }
    }

    /// What covers `range`, clipped to it, in order.
    pub fn overlaps(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Place)> {
        let first = self.map.range(..range.start).next_back().filter(|(o, p)| *o + p.len as u64 > range.start).map(|(o, _)| *o);
        self.map.range(first.unwrap_or(range.start)..range.end.max(first.unwrap_or(range.start))).map(move |(&o, p)| {
            let (start, end) = (o.max(range.start), (o + p.len as u64).min(range.end));
            (start, p.part((start - o) as u32, (end - start) as u32))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_proto::{Code, Codec, StripeId};

    fn stripe(n: u64) -> Arc<StripeMeta> {
        let id = StripeId { counter: n, ..Default::default() };
        Arc::new(StripeMeta {
            id,
            codec: Codec::Replica,
            code: Code::new(1, 0),
            len: 4 << 20,
            digest: 0,
            osds: Default::default(),
            missing: 0,
        })
    }

    /// A small deterministic generator, so that a failing seed is one number.
    fn next(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    #[test]
    fn a_tree_agrees_with_an_array_of_bytes() {
        for seed in 1..200u64 {
            let mut x = seed * 0x9e37_79b9;
            let mut tree = ExtentTree::default();
            let mut model: Vec<Option<(u64, u32)>> = vec![None; 256];
            for n in 0..60 {
                let from = next(&mut x) % 250;
                let len = 1 + next(&mut x) % (256 - from).min(60);
                let mut gone = 0u64;
                let covered = model[from as usize..(from + len) as usize].iter().flatten().count() as u64;
                if next(&mut x).is_multiple_of(4) {
                    tree.cut(from..from + len, |p| gone += p.len as u64);
                    model[from as usize..(from + len) as usize].fill(None);
                } else {
                    tree.insert(from, Place { len: len as u32, stripe: stripe(n), stripe_offset: 7, inline: None, born: n }, |p| {
                        gone += p.len as u64
                    });
                    for i in 0..len {
                        model[(from + i) as usize] = Some((n, 7 + i as u32));
                    }
                }
                assert_eq!(gone, covered, "seed {seed}");
                let (a, b) = (next(&mut x) % 256, next(&mut x) % 257);
                let range = a.min(b)..a.max(b);
                let mut seen: Vec<Option<(u64, u32)>> = vec![None; 256];
                for (o, p) in tree.overlaps(range.clone()) {
                    for i in 0..p.len {
                        assert!(seen[(o + i as u64) as usize].replace((p.stripe.id.counter, p.stripe_offset + i)).is_none());
                    }
                }
                assert_eq!(tree.bytes(), model.iter().flatten().count() as u64);
                for i in 0..256u64 {
                    let want = if range.contains(&i) { model[i as usize] } else { None };
                    assert_eq!(seen[i as usize], want, "seed {seed} byte {i}");
                }
            }
        }
    }
}
