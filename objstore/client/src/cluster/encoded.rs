//! A stripe's data made into shards with their checksums.
//!
//! What always holds: one block-aligned piece of data is never copied, but for the last shard's zero-padded tail; parity is computed
//! straight from the caller's buffer; every block is checksummed once, and copies of a shard share bytes and checksums.
//! What it leaves out: where the shards go.

use crate::Metrics;
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_ec as ec;
use holdfast_objstore_proto::stripe::shard_bytes;
use holdfast_objstore_proto::{Code, Codec};
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes of each shard coded and checksummed at a time: that of all shards of common codes fits the second-level cache.
const COLUMN: usize = 64 << 10;

pub(crate) struct Encoded {
    pub code: Code,
    pub codec: Codec,
    /// Data bytes.
    pub len: u32,
    pub digest: u64,
    /// `code.n()` shards of whole blocks with their block checksums.
    pub shards: SmallVec<[(Bytes, Arc<[u32]>); 6]>,
}

/// Cuts `data` (`len` bytes in all) into shards of `code`.
pub(crate) fn encode(code: Code, data: &[Bytes], len: u32, metrics: &Metrics) -> Encoded {
    let codec = Codec::for_code(code);
    let bytes = shard_bytes(code, len) as usize;
    let data = split(data, len as usize, code.k as usize, bytes, metrics);
    let shards: SmallVec<[(Bytes, Arc<[u32]>); 6]> = match codec {
        Codec::Replica => {
            let copy = data.into_iter().next().expect("k is 1");
            let crcs: Arc<[u32]> = copy.chunks(BLOCK).map(crc32c).collect();
            (0..code.n()).map(|_| (copy.clone(), crcs.clone())).collect()
        }
        _ => code_shards(codec, code, data, bytes, metrics),
    };
    let digest = {
        let tables: SmallVec<[&[u32]; 16]> = shards.iter().map(|(_, crcs)| &crcs[..]).collect();
        ec::digest(&tables)
    };
    Encoded { code, codec, len, digest, shards }
}

/// The k data shards of `bytes` each.
fn split(data: &[Bytes], len: usize, k: usize, bytes: usize, metrics: &Metrics) -> SmallVec<[Bytes; 16]> {
    let whole = match data {
        [one] if (one.as_ptr() as usize).is_multiple_of(BLOCK) => one.clone(),
        pieces => {
            let mut all = AlignedBuf::zeroed(k * bytes);
            let mut at = 0;
            for piece in pieces {
                all[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            metrics.copied_bytes.inc_by(len as u64);
            all.freeze()
        }
    };
    let mut zeroes: Option<Bytes> = None;
    let shard = |i: usize| {
        let (start, end) = (i * bytes, (i + 1) * bytes);
        if end <= whole.len() {
            return whole.slice(start..end);
        }
        if start < whole.len() {
            let mut tail = AlignedBuf::zeroed(bytes);
            let held = &whole[start..];
            tail[..held.len()].copy_from_slice(held);
            metrics.copied_bytes.inc_by(held.len() as u64);
            return tail.freeze();
        }
        zeroes.get_or_insert_with(|| AlignedBuf::zeroed(bytes).freeze()).clone()
    };
    (0..k).map(shard).collect()
}

/// Adds parity, and checksums all shards while they are in the processor's cache.
fn code_shards(
    codec: Codec,
    code: Code,
    data: SmallVec<[Bytes; 16]>,
    bytes: usize,
    metrics: &Metrics,
) -> SmallVec<[(Bytes, Arc<[u32]>); 6]> {
    let (k, m) = (code.k as usize, code.m as usize);
    let mut parity = AlignedBuf::zeroed(m * bytes);
    let mut tables: SmallVec<[Vec<u32>; 16]> = (0..code.n()).map(|_| Vec::with_capacity(bytes / BLOCK)).collect();
    // The wide codec has a cost per call that outweighs the cache.
    let step = if codec == Codec::Gf8Cauchy { COLUMN } else { bytes };
    for start in (0..bytes).step_by(step) {
        let column = start..(start + step).min(bytes);
        let from: SmallVec<[&[u8]; 16]> = data.iter().map(|d| &d[column.clone()]).collect();
        for (table, shard) in tables.iter_mut().zip(&from) {
            table.extend(shard.chunks(BLOCK).map(crc32c));
        }
        if m == 0 {
            continue;
        }
        let mut to: SmallVec<[&mut [u8]; 8]> = parity.chunks_exact_mut(bytes).map(|p| &mut p[column.clone()]).collect();
        ec::encode(codec, code, &from, &mut to);
        for (table, shard) in tables[k..].iter_mut().zip(&to) {
            table.extend(shard.chunks(BLOCK).map(crc32c));
        }
    }
    metrics.parity_bytes.inc_by((m * bytes) as u64);
    let parity = parity.freeze();
    let parity = (0..m).map(|i| parity.slice(i * bytes..(i + 1) * bytes));
    data.into_iter().chain(parity).zip(tables).map(|(shard, table)| (shard, table.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_base::buf::is_aligned;
    use holdfast_objstore_base::checksum::block_crcs;

    fn noise(len: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(len);
        let mut x = len as u64 | 1;
        for b in buf.iter_mut() {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *b = (x >> 33) as u8;
        }
        buf
    }

    #[test]
    fn an_aligned_piece_is_cut_without_a_copy() {
        let metrics = Metrics::default();
        let data = noise(4 << 20).freeze();
        let e = encode(Code::new(4, 2), std::slice::from_ref(&data), 4 << 20, &metrics);
        for i in 0..4 {
            assert_eq!(e.shards[i].0.as_ptr(), data[i << 20..].as_ptr());
        }
        assert_eq!((metrics.copied_bytes(), metrics.parity_bytes()), (0, 2 << 20));
        let copies = encode(Code::new(1, 2), &[data.slice(..8192)], 8192, &metrics);
        assert!(copies.shards.iter().all(|s| s.0.as_ptr() == data.as_ptr()));
        assert_eq!(metrics.copied_bytes(), 0);
    }

    #[test]
    fn however_the_data_comes_the_shards_are_the_same() {
        for code in [Code::new(1, 0), Code::new(1, 2), Code::new(4, 2), Code::new(5, 0), Code::new(8, 3), Code::new(16, 4)] {
            for len in [1usize, 4095, 4096, 5000, 65_537, 300_001] {
                let data = noise(len).freeze();
                let metrics = Metrics::default();
                let whole = encode(code, std::slice::from_ref(&data), len as u32, &metrics);
                assert!(metrics.copied_bytes() < shard_bytes(code, len as u32) as u64, "only the tail is copied");
                let pieces: Vec<Bytes> = data.chunks(777).map(Bytes::copy_from_slice).collect();
                let gathered = encode(code, &pieces, len as u32, &metrics);
                assert_eq!(whole.digest, gathered.digest);
                assert_eq!((whole.shards.len(), whole.codec), (code.n(), Codec::for_code(code)));
                let mut joined = Vec::new();
                for (i, (shard, crcs)) in whole.shards.iter().enumerate() {
                    assert!(is_aligned(shard) && shard.len() == shard_bytes(code, len as u32) as usize);
                    assert_eq!(**crcs, *block_crcs(shard));
                    assert_eq!(shard, &gathered.shards[i].0);
                    if i < code.k as usize {
                        joined.extend_from_slice(shard);
                    }
                }
                assert_eq!(joined[..len], data[..]);
                assert!(joined[len..].iter().all(|b| *b == 0));
            }
        }
    }

    #[test]
    fn parity_by_columns_is_parity_of_the_whole() {
        let code = Code::new(4, 2);
        let len = 4 * (3 * COLUMN + 8192);
        let e = encode(code, &[noise(len).freeze()], len as u32, &Metrics::default());
        let data: Vec<&[u8]> = e.shards[..4].iter().map(|s| &s.0[..]).collect();
        let mut parity = vec![vec![0; len / 4]; 2];
        let mut to: Vec<&mut [u8]> = parity.iter_mut().map(|p| &mut p[..]).collect();
        ec::encode(Codec::Gf8Cauchy, code, &data, &mut to);
        assert!(parity[0] == e.shards[4].0 && parity[1] == e.shards[5].0);
    }
}
