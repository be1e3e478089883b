//! Reconstructing pieces of shards from the same blocks of other shards.
//!
//! What always holds: only shards of the record's digest are decoded together, only the block range that is needed is fetched, and what the
//! read has in hand already is not fetched again.
//! What it leaves out: writing what was reconstructed back; that is repair's.

use super::Cluster;
use super::read::{Faults, note, until_slow};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_ec as ec;
use holdfast_objstore_ec::layout::Piece;
use holdfast_objstore_proto::StripeMeta;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// A piece that was read.
pub(crate) struct Have {
    pub piece: Piece,
    pub bytes: Bytes,
}

/// Wanted pieces whose blocks overlap: they are decoded together, from the same blocks of other shards.
struct Group {
    blocks: Range<u32>,
    /// Indices of the wanted pieces.
    pieces: SmallVec<[usize; 4]>,
}

impl Cluster {
    /// The wanted pieces in order, or `None` when too few other shards can be had. `avoid` has a bit for each shard that need not be asked
    /// again; faults of the others are noted.
    pub(crate) async fn decode(
        &self,
        stripe: &StripeMeta,
        want: &[Piece],
        have: &[Have],
        mut avoid: u32,
        faults: &mut Faults,
    ) -> Option<Vec<Bytes>> {
        self.metrics.degraded_reads.inc();
        let mut decoded: Vec<Bytes> = vec![Bytes::new(); want.len()];
        for group in groups(want) {
            let shards: SmallVec<[usize; 4]> = group.pieces.iter().map(|at| want[*at].shard).collect();
            let found = self.decode_blocks(stripe, &shards, group.blocks.clone(), have, avoid, faults).await?;
            let run = group.blocks.len();
            for (nth, at) in group.pieces.iter().enumerate() {
                let start = nth * run + (want[*at].offset - group.blocks.start) as usize;
                decoded[*at] = found.slice(start..start + want[*at].len as usize);
            }
            avoid = faults.iter().fold(avoid, |bits, (s, _)| bits | 1 << s);
        }
        Some(decoded)
    }

    /// The block range of each of `shards`, one after the other.
    pub(crate) async fn decode_blocks(
        &self,
        stripe: &StripeMeta,
        shards: &[usize],
        blocks: Range<u32>,
        have: &[Have],
        avoid: u32,
        faults: &mut Faults,
    ) -> Option<Bytes> {
        let (k, len) = (stripe.code.k as usize, blocks.len());
        let mut sources: SmallVec<[Option<Bytes>; 16]> = smallvec![None; stripe.code.n()];
        for h in have.iter().filter(|h| h.piece.offset <= blocks.start && h.piece.offset + h.piece.len >= blocks.end) {
            let start = (blocks.start - h.piece.offset) as usize;
            sources[h.piece.shard] = Some(h.bytes.slice(start..start + len));
        }
        let mut found = sources.iter().flatten().count();
        let mut order = self.preference(stripe, 0);
        order.retain(|s| avoid >> *s & 1 == 0 && sources[*s as usize].is_none());
        // A wanted one that was not asked is missing by the record; it may have arrived since.
        order.sort_by_key(|s| shards.contains(&(*s as usize)));
        let mut order = order.into_iter();
        let ask = |shard: u8| {
            let at = blocks.start;
            async move { (shard, self.get(stripe, shard, at, len as u32).await) }
        };
        let mut asked: FuturesUnordered<_> = order.by_ref().take(k.saturating_sub(found)).map(ask).collect();
        let slow = until_slow(self.read_hedge());
        tokio::pin!(slow);
        let mut hedged = false;
        while found < k {
            tokio::select! {
                biased;
                answer = asked.next() => match answer? {
                    (shard, Ok(bytes)) => {
                        sources[shard as usize] = Some(bytes);
                        found += 1;
                    }
                    (shard, Err(fault)) => {
                        note(faults, shard, fault);
                        asked.extend(order.next().map(ask));
                    }
                },
                () = &mut slow, if !hedged => {
                    failpoint::reached("client.decode_hedged");
                    hedged = true;
                    self.metrics.read_hedges.inc();
                    asked.extend(order.by_ref().map(ask));
                }
            }
        }
        let mut out = AlignedBuf::zeroed(shards.len() * len);
        {
            let from: SmallVec<[Option<&[u8]>; 16]> = sources.iter().map(|s| s.as_deref()).collect();
            let mut to: SmallVec<[&mut [u8]; 4]> = out.chunks_exact_mut(len).collect();
            ec::reconstruct(stripe.codec, stripe.code, &from, shards, &mut to).expect("k shards are at hand");
        }
        self.metrics.decoded_bytes.inc_by(out.len() as u64);
        Some(out.freeze())
    }
}

/// The blocks that hold a piece.
fn blocks_of(piece: &Piece) -> Range<u32> {
    let block = BLOCK as u32;
    piece.offset / block * block..(piece.offset + piece.len).div_ceil(block) * block
}

/// Joins pieces whose blocks overlap. (Two ends of neighbouring shards do not: together they would span whole shards.)
fn groups(want: &[Piece]) -> Vec<Group> {
    let mut by_start: SmallVec<[usize; 4]> = (0..want.len()).collect();
    by_start.sort_by_key(|at| want[*at].offset);
    let mut groups: Vec<Group> = Vec::new();
    for at in by_start {
        let blocks = blocks_of(&want[at]);
        match groups.last_mut() {
            Some(last) if blocks.start < last.blocks.end => {
                last.blocks.end = last.blocks.end.max(blocks.end);
                last.pieces.push(at);
            }
            _ => groups.push(Group { blocks, pieces: smallvec![at] }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_decoded_together_only_where_their_blocks_overlap() {
        let piece = |shard, offset, len| Piece { shard, offset, len };
        let ends = groups(&[piece(0, 1_040_000, 8_576), piece(1, 0, 100)]);
        assert_eq!(ends.iter().map(|g| g.blocks.clone()).collect::<Vec<_>>(), [0..4096, 1_036_288..1_048_576]);
        let whole = groups(&[piece(0, 8192, 100), piece(1, 0, 65536), piece(2, 0, 4000)]);
        assert_eq!(whole.len(), 1);
        assert_eq!((whole[0].blocks.clone(), whole[0].pieces.len()), (0..65536, 3));
    }
}
