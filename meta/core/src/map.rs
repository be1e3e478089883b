//! The arithmetic of extent maps: pure functions on sorted runs of pieces.
//!
//! What always holds after each: pieces are sorted, do not overlap, and no two that could be one are two.

use crate::record::Piece;
use crate::stripes::Net;
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Extent};
use std::collections::BTreeMap;

/// Bytes of a chunk.
pub(crate) const CHUNK: u32 = CHUNK_BYTES as u32;

/// Pieces by chunk, in the order of the extents they come from.
pub(crate) fn by_chunk(extents: impl IntoIterator<Item = Extent>) -> BTreeMap<u32, Vec<Piece>> {
    let mut chunks: BTreeMap<u32, Vec<Piece>> = BTreeMap::new();
    for mut e in extents {
        while e.len > 0 {
            let start = (e.offset % CHUNK_BYTES) as u32;
            let len = e.len.min(CHUNK - start);
            let piece = Piece { start, len, stripe: e.stripe, at: e.stripe_offset };
            // In range: sizes are limited so that chunk numbers fit.
            chunks.entry((e.offset / CHUNK_BYTES) as u32).or_default().push(piece);
            e.offset += len as u64;
            e.stripe_offset += len;
            e.len -= len;
        }
    }
    chunks
}

/// Removes `[from, to)`; what was there is subtracted from `net`.
pub(crate) fn cut(pieces: &mut Vec<Piece>, from: u32, to: u32, net: &mut Net) {
    let first = pieces.partition_point(|p| p.end() <= from);
    let last = pieces.partition_point(|p| p.start < to);
    if first >= last {
        return;
    }
    let mut kept: [Option<Piece>; 2] = [None, None];
    for p in &pieces[first..last] {
        let (a, b) = (p.start.max(from), p.end().min(to));
        net.sub(p.stripe, b - a);
        if p.start < from {
            kept[0] = Some(Piece { len: from - p.start, ..*p });
        }
        if p.end() > to {
            kept[1] = Some(Piece { start: to, len: p.end() - to, stripe: p.stripe, at: p.at + (to - p.start) });
        }
    }
    pieces.splice(first..last, kept.into_iter().flatten());
}

/// The parts of pieces that lie in `[from, to)`.
pub(crate) fn within(pieces: &[Piece], from: u32, to: u32) -> impl Iterator<Item = Piece> + '_ {
    let first = pieces.partition_point(|p| p.end() <= from);
    pieces[first..].iter().take_while(move |p| p.start < to).map(move |p| {
        let (start, end) = (p.start.max(from), p.end().min(to));
        Piece { start, len: end - start, stripe: p.stripe, at: p.at + (start - p.start) }
    })
}

/// Lays `new` over what is there.
pub(crate) fn overlay(pieces: &mut Vec<Piece>, new: Piece, net: &mut Net) {
    cut(pieces, new.start, new.end(), net);
    net.add(new.stripe, new.len);
    let i = pieces.partition_point(|p| p.start < new.start);
    pieces.insert(i, new);
    if i + 1 < pieces.len() && joins(&pieces[i], &pieces[i + 1]) {
        pieces[i].len += pieces[i + 1].len;
        pieces.remove(i + 1);
    }
    if i > 0 && joins(&pieces[i - 1], &pieces[i]) {
        pieces[i - 1].len += pieces[i].len;
        pieces.remove(i);
    }
}

/// Whether `b` goes on where `a` ends, in the file and in the stripe. Whatever numbers they hold.
pub(crate) fn joins(a: &Piece, b: &Piece) -> bool {
    a.start.checked_add(a.len) == Some(b.start) && a.stripe == b.stripe && a.at.checked_add(a.len) == Some(b.at)
}

/// Adds a piece behind the others, as part of the last one where it goes on.
pub(crate) fn append(pieces: &mut Vec<Piece>, p: Piece) {
    match pieces.last_mut() {
        Some(last) if joins(last, &p) => last.len = last.len.saturating_add(p.len),
        _ => pieces.push(p),
    }
}

/// Cuts pieces at multiples of `block`; the parts by block.
pub(crate) fn by_block(pieces: &[Piece], block: u32) -> BTreeMap<u8, Vec<Piece>> {
    let mut blocks: BTreeMap<u8, Vec<Piece>> = BTreeMap::new();
    for p in pieces {
        let mut p = *p;
        while p.len > 0 {
            let len = p.len.min(block - p.start % block);
            blocks.entry((p.start / block) as u8).or_default().push(Piece { len, ..p });
            p = Piece { start: p.start + len, len: p.len - len, stripe: p.stripe, at: p.at + len };
        }
    }
    blocks
}

/// Whether a stored list is one these functions may work on.
pub(crate) fn is_sound(pieces: &[Piece], from: u32, to: u32) -> bool {
    let mut end = from;
    pieces.iter().all(|p| {
        let fits = p.start >= end && p.len > 0 && p.start.checked_add(p.len).is_some_and(|e| e <= to) && p.at.checked_add(p.len).is_some();
        end = p.start.saturating_add(p.len);
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rng::Rng;
    use holdfast_objstore_proto::StripeId;

    fn id(counter: u64) -> StripeId {
        StripeId { incarnation: 1, group: 0, counter }
    }

    #[test]
    fn overlays_and_cuts_agree_with_an_array_of_bytes() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut bytes = vec![None; 300];
            let mut pieces = Vec::new();
            let mut net = Net::default();
            for n in 0..40 {
                let start = rng.below(299) as u32;
                let len = 1 + rng.below((300 - start as u64).min(60)) as u32;
                let range = start as usize..(start + len) as usize;
                if rng.below(4) == 0 {
                    cut(&mut pieces, start, start + len, &mut net);
                    bytes[range].fill(None);
                } else {
                    // Few stripes and matching offsets, so that merges happen.
                    let (stripe, at) = if rng.below(2) == 0 { (id(0), start) } else { (id(n), rng.below(50) as u32) };
                    overlay(&mut pieces, Piece { start, len, stripe, at }, &mut net);
                    for i in range {
                        bytes[i] = Some((stripe, at + i as u32 - start));
                    }
                }
                assert!(is_sound(&pieces, 0, 300));
                assert!(pieces.windows(2).all(|w| !joins(&w[0], &w[1])));
                let mut seen = vec![None; 300];
                for p in &pieces {
                    for i in 0..p.len {
                        seen[(p.start + i) as usize] = Some((p.stripe, p.at + i));
                    }
                }
                assert_eq!(seen, bytes);
                assert_eq!(net.total(), bytes.iter().flatten().count() as i64);
            }
        }
    }

    #[test]
    fn extents_split_at_chunk_and_block_borders() {
        let e = Extent { offset: CHUNK_BYTES - 10, len: 30, stripe: id(1), stripe_offset: 5 };
        let chunks = by_chunk([e]);
        assert_eq!(chunks[&0], [Piece { start: CHUNK - 10, len: 10, stripe: id(1), at: 5 }]);
        assert_eq!(chunks[&1], [Piece { start: 0, len: 20, stripe: id(1), at: 15 }]);
        let blocks = by_block(&[Piece { start: 60, len: 10, stripe: id(1), at: 0 }], 64);
        assert_eq!(blocks[&0], [Piece { start: 60, len: 4, stripe: id(1), at: 0 }]);
        assert_eq!(blocks[&1], [Piece { start: 64, len: 6, stripe: id(1), at: 4 }]);
    }
}
