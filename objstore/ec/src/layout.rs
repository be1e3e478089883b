//! Where the bytes of a stripe are: data byte range ↔ (shard, offset in the shard).
//!
//! What always holds: data shard `i` holds the data bytes `[i·s, (i+1)·s)`, `s` being the shard's bytes; what lies
//! beyond the stripe's length is zero. So a run of data is a run of one shard, or the end of one and the start of the next.
//! What it leaves out: files; their extents name runs of a stripe.

use holdfast_objstore_proto::stripe::shard_bytes;
use holdfast_objstore_proto::{Code, StripeMeta};
use smallvec::SmallVec;
use std::ops::Range;

/// A run of bytes within one data shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub shard: usize,
    /// Bytes from the start of the shard.
    pub offset: u32,
    /// At least one byte.
    pub len: u32,
}

/// The pieces of a data byte range, in order. Panics when the range goes beyond the stripe.
pub fn pieces(meta: &StripeMeta, range: Range<u32>) -> SmallVec<[Piece; 4]> {
    assert!(range.start <= range.end && range.end <= meta.len, "{range:?} of a stripe of {} bytes", meta.len);
    let bytes = meta.shard_bytes();
    let mut pieces = SmallVec::new();
    let mut at = range.start;
    while at < range.end {
        let offset = at % bytes;
        let len = (bytes - offset).min(range.end - at);
        pieces.push(Piece { shard: (at / bytes) as usize, offset, len });
        at += len;
    }
    pieces
}

/// The data bytes that data shard `shard` of a stripe of `len` bytes holds; the rest of the shard is zero.
pub fn data_of(code: Code, len: u32, shard: usize) -> Range<u32> {
    assert!(shard < code.k as usize, "shard {shard} of {code} holds parity");
    let bytes = shard_bytes(code, len) as u64;
    let edge = |i: usize| (bytes * i as u64).min(len as u64) as u32;
    edge(shard)..edge(shard + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;
    use holdfast_objstore_proto::{Codec, StripeId};

    fn stripe(code: Code, len: u32) -> StripeMeta {
        let codec = Codec::for_code(code);
        StripeMeta { id: StripeId::default(), codec, code, len, digest: 0, osds: SmallVec::new(), missing: 0 }
    }

    #[test]
    fn a_range_over_a_border_is_two_pieces() {
        let meta = stripe(Code::new(4, 2), STRIPE_BYTES_MAX);
        let s = 1 << 20;
        assert_eq!(pieces(&meta, s - 5..s + 7)[..], [Piece { shard: 0, offset: s - 5, len: 5 }, Piece { shard: 1, offset: 0, len: 7 }]);
        assert_eq!(pieces(&meta, 0..4 * s).len(), 4);
        assert_eq!(pieces(&meta, 9..9).len(), 0);
    }

    #[test]
    fn pieces_cover_the_range_byte_for_byte() {
        for code in [Code::new(1, 2), Code::new(2, 1), Code::new(3, 2), Code::new(16, 4)] {
            for len in [1, 4095, 4096, 4097, 65537, STRIPE_BYTES_MAX] {
                let meta = stripe(code, len);
                for start in (0..len).step_by(1 + len as usize / 13) {
                    let mut at = start;
                    for p in pieces(&meta, start..len) {
                        let held = data_of(code, len, p.shard);
                        assert_eq!(held.start + p.offset, at);
                        at += p.len;
                        assert!(p.len > 0 && at <= held.end);
                    }
                    assert_eq!(at, len);
                }
            }
        }
    }

    #[test]
    fn a_short_stripe_leaves_its_last_shards_empty() {
        let held: Vec<_> = (0..4).map(|i| data_of(Code::new(4, 2), 5000, i)).collect();
        assert_eq!(held, [0..4096, 4096..5000, 5000..5000, 5000..5000]);
    }
}
