//! Encode, lose shards, reconstruct: every pattern of small codes, chosen ones of large codes, whole and in part.

use crate::{CODES, shards, views};
use holdfast_objstore_ec::{TooFew, encode, reconstruct};
use holdfast_objstore_proto::{Code, Codec};

fn codecs(code: Code) -> Vec<Codec> {
    let mut codecs = vec![Codec::Gf8Cauchy, Codec::for_code(code)];
    if code.m > 0 && code.k > 1 {
        codecs.push(Codec::Gf16Simd);
    }
    codecs.dedup();
    codecs
}

fn whole(codec: Codec, code: Code, len: usize) -> Vec<Vec<u8>> {
    let mut all = shards(code.k, len);
    let mut parity = vec![vec![0; len]; code.m as usize];
    let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(|p| &mut p[..]).collect();
    encode(codec, code, &views(&all), &mut outs);
    all.extend(parity);
    all
}

/// Loses the shards in `lost`, rebuilds them from the bytes `range` of the rest.
fn check(codec: Codec, code: Code, all: &[Vec<u8>], lost: u32, range: std::ops::Range<usize>) {
    let gone = |i: usize| lost >> i & 1 == 1;
    let present: Vec<Option<&[u8]>> = all.iter().enumerate().map(|(i, s)| (!gone(i)).then(|| &s[range.clone()])).collect();
    // Last first, and one that is present among them: order is the caller's.
    let mut want: Vec<usize> = (0..code.n()).rev().filter(|&i| gone(i)).collect();
    want.extend((0..code.n()).find(|&i| !gone(i)));
    let mut out = vec![vec![0x77; range.len()]; want.len()];
    let mut outs: Vec<&mut [u8]> = out.iter_mut().map(|o| &mut o[..]).collect();
    let result = reconstruct(codec, code, &present, &want, &mut outs);
    if lost.count_ones() > code.m as u32 {
        let have = code.n() - lost.count_ones() as usize;
        assert_eq!(result, Err(TooFew { have, need: code.k as usize }));
        return;
    }
    assert_eq!(result, Ok(()));
    for (i, o) in want.iter().zip(&out) {
        assert!(o[..] == all[*i][range.clone()], "{codec:?} {code} lost {lost:b} shard {i}");
    }
}

#[test]
fn every_loss_of_a_small_code_is_undone_or_refused() {
    for (k, m) in CODES.into_iter().filter(|(k, m)| k + m <= 6) {
        let code = Code::new(k, m);
        for codec in codecs(code) {
            let all = whole(codec, code, 12288);
            for lost in 0..1u32 << code.n() {
                check(codec, code, &all, lost, 0..12288);
            }
        }
    }
}

#[test]
fn every_loss_of_as_many_shards_as_there_is_parity_is_undone_in_wide_codes() {
    for (code, codec) in [(Code::new(8, 3), Codec::Gf8Cauchy), (Code::new(16, 4), Codec::Gf8Cauchy), (Code::new(12, 4), Codec::Gf8Cauchy)] {
        let all = whole(codec, code, 4096);
        for lost in (0..1u32 << code.n()).filter(|l| l.count_ones() == code.m as u32) {
            check(codec, code, &all, lost, 0..4096);
        }
    }
    let code = Code::new(16, 4);
    assert_eq!(Codec::for_code(code), Codec::Gf8Cauchy);
    // The oracle undoes the same losses by other arithmetic.
    let all = whole(Codec::Gf16Simd, code, 8192);
    for lost in (0..1u32 << 20).filter(|l| l.count_ones() <= 5).step_by(211) {
        check(Codec::Gf16Simd, code, &all, lost, 0..8192);
    }
}

#[test]
fn any_range_of_positions_decodes_on_its_own() {
    for (k, m) in CODES.into_iter().filter(|(_, m)| *m > 0) {
        let code = Code::new(k, m);
        for codec in codecs(code) {
            // Longer than what either codec does at once.
            let len = 160 << 10;
            let all = whole(codec, code, len);
            let lost = (1 << m) - 1;
            for range in [0..len, 4096..8192, 0..4096, len - 4096..len, 20480..151_552] {
                check(codec, code, &all, lost, range.clone());
                check(codec, code, &all, lost << (k - 1), range);
            }
        }
    }
}

#[test]
fn nothing_wanted_needs_nothing() {
    assert_eq!(reconstruct(Codec::Gf8Cauchy, Code::new(4, 2), &[None; 6], &[], &mut []), Ok(()));
}
