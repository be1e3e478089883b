//! Encode and reconstruct, by codec.
//!
//! What always holds: shapes are checked before any arithmetic; a mismatch is a bug of the caller and panics.
//! What it leaves out: which codec a new stripe gets (`Codec::for_code`).

use crate::{gf8, gf16};
use holdfast_objstore_proto::{Code, Codec};
use smallvec::SmallVec;

/// Fewer shards are present than decoding needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{have} shards are present, decoding needs {need}")]
pub struct TooFew {
    pub have: usize,
    pub need: usize,
}

/// Computes all parity of a stripe, or of one range of positions of it.
///
/// `data` holds the k data shards, `parity` room for the m parity shards; all of one length, a multiple of 4096 bytes.
/// Every byte of `parity` is overwritten. Panics when the shapes do not match `code`.
pub fn encode(codec: Codec, code: Code, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let len = data.first().expect("a code has data shards").len();
    assert_eq!((data.len(), parity.len()), (code.k as usize, code.m as usize), "shards of code {code}");
    assert!(data.iter().all(|d| d.len() == len) && parity.iter().all(|p| p.len() == len), "shards of one length");
    if code.m == 0 || len == 0 {
        return;
    }
    match codec {
        Codec::Replica => {
            assert_eq!(code.k, 1, "copies have one data shard");
            parity.iter_mut().for_each(|p| p.copy_from_slice(data[0]));
        }
        Codec::Gf8Cauchy => gf8::encode(code, data, parity),
        Codec::Gf16Simd => gf16::encode(code, data, parity),
    }
}

/// Rebuilds the shards `want` into `out` (same order) from any k of the n `shards`.
///
/// Works on any range of positions, the same range of every shard, a multiple of 4096 bytes long. A wanted shard that
/// is present is copied, and that much works with fewer than k shards; so does decoding copies from any one.
/// Panics when the shapes do not match `code`.
pub fn reconstruct(codec: Codec, code: Code, shards: &[Option<&[u8]>], want: &[usize], out: &mut [&mut [u8]]) -> Result<(), TooFew> {
    assert_eq!(shards.len(), code.n(), "shards of code {code}");
    assert_eq!(want.len(), out.len(), "one buffer for each wanted shard");
    let Some(len) = out.first().map(|o| o.len()) else { return Ok(()) };
    assert!(out.iter().all(|o| o.len() == len) && shards.iter().flatten().all(|s| s.len() == len), "shards of one length");

    // Present ones first: they cost a copy and need no quorum.
    let mut lost = SmallVec::<[u8; 8]>::new();
    let mut targets = SmallVec::<[&mut [u8]; 8]>::new();
    for (&i, o) in want.iter().zip(out.iter_mut()) {
        match shards[i] {
            Some(s) => o.copy_from_slice(s),
            None => {
                lost.push(i as u8);
                targets.push(&mut **o);
            }
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let (have, need) = (shards.iter().flatten().count(), code.k as usize);
    if have < need {
        return Err(TooFew { have, need });
    }
    if len == 0 {
        return Ok(());
    }
    match codec {
        Codec::Replica => {
            assert_eq!(code.k, 1, "copies have one data shard");
            let copy = shards.iter().flatten().next().expect("have >= 1");
            targets.iter_mut().for_each(|o| o.copy_from_slice(copy));
        }
        Codec::Gf8Cauchy => gf8::reconstruct(code, shards, &lost, &mut targets),
        Codec::Gf16Simd => gf16::reconstruct(code, shards, &lost, &mut targets),
    }
    Ok(())
}
