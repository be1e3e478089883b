//! The wide codec: GF(2^16) as reed-solomon-simd 3 defines it, default rate.
//!
//! What always holds: every 64 bytes of a shard are coded on their own (32 low bytes, then 32 high bytes of 32
//! elements), so any block-aligned range of positions decodes by itself. Golden bytes in the tests pin the format.
//! What it leaves out: speed of small decodes. Each costs 140–240 µs before the first byte, whatever its length.

use holdfast_objstore_proto::Code;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Positions encoded at once. The library copies its input into working memory; this keeps that in the cache.
const ENCODE_BYTES: usize = 32 << 10;
/// Larger, as every decode has its fixed cost.
const DECODE_BYTES: usize = 64 << 10;

const FITS: &str = "k ≤ 16 and m ≤ 8 shards of whole blocks are supported";

pub(crate) fn encode(code: Code, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let len = data[0].len();
    for (from, to) in pieces(len, ENCODE_BYTES) {
        let mut encoder = ReedSolomonEncoder::new(code.k as usize, code.m as usize, to - from).expect(FITS);
        parity_of(&mut encoder, data.iter().map(|d| &d[from..to]), |i, bytes| parity[i][from..to].copy_from_slice(bytes));
    }
}

/// `lost` are absent shards, `out` their buffers; at least k of `shards` are present (checked by the caller).
pub(crate) fn reconstruct(code: Code, shards: &[Option<&[u8]>], lost: &[u8], out: &mut [&mut [u8]]) {
    let (k, m) = (code.k as usize, code.m as usize);
    let len = out[0].len();
    let absent = shards[..k].iter().filter(|s| s.is_none()).count();
    let parity_wanted = lost.iter().any(|&i| i as usize >= k);
    for (from, to) in pieces(len, DECODE_BYTES) {
        let mut decoder = ReedSolomonDecoder::new(k, m, to - from).expect(FITS);
        let mut helpers = absent;
        for (i, bytes) in shards.iter().enumerate().filter_map(|(i, s)| Some((i, &(*s)?[from..to]))) {
            if i < k {
                decoder.add_original_shard(i, bytes).expect("each shard once, of one length");
            } else if helpers > 0 {
                helpers -= 1;
                decoder.add_recovery_shard(i - k, bytes).expect("each shard once, of one length");
            }
        }
        let decoded = decoder.decode().expect("k shards are given");
        let data = |i: usize| match shards[i] {
            Some(bytes) => &bytes[from..to],
            None => decoded.restored_original(i).expect("every absent data shard is restored"),
        };
        for (&i, o) in lost.iter().zip(out.iter_mut()).filter(|(i, _)| (**i as usize) < k) {
            o[from..to].copy_from_slice(data(i as usize));
        }
        if parity_wanted {
            let mut encoder = ReedSolomonEncoder::new(k, m, to - from).expect(FITS);
            parity_of(&mut encoder, (0..k).map(data), |p, bytes| {
                if let Some(at) = lost.iter().position(|&i| i as usize == k + p) {
                    out[at][from..to].copy_from_slice(bytes);
                }
            });
        }
    }
}

fn parity_of<'a>(encoder: &mut ReedSolomonEncoder, data: impl Iterator<Item = &'a [u8]>, mut each: impl FnMut(usize, &[u8])) {
    data.for_each(|d| encoder.add_original_shard(d).expect("k shards of one length"));
    let encoded = encoder.encode().expect("k shards are given");
    encoded.recovery_iter().enumerate().for_each(|(i, bytes)| each(i, bytes));
}

fn pieces(len: usize, step: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(step).map(move |from| (from, len.min(from + step)))
}
