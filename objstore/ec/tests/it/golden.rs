//! Bytes that must never change: stored stripes depend on them. The GF(2^8) values were made by ISA-L 2.30
//! (`gf_gen_cauchy1_matrix`, `ec_encode_data`) from the same input.

use crate::{shards, views};
use holdfast_objstore_ec::{digest, encode};
use holdfast_objstore_proto::{Code, Codec};
use xxhash_rust::xxh3::xxh3_64;

fn parity(codec: Codec, k: u8, m: u8) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; 8192]; m as usize];
    let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(|p| &mut p[..]).collect();
    encode(codec, Code::new(k, m), &views(&shards(k, 8192)), &mut outs);
    parity
}

#[test]
fn the_first_parity_bytes_of_4_2_are_these() {
    let p = parity(Codec::Gf8Cauchy, 4, 2);
    assert_eq!(p[0][..8], [0xd3, 0xed, 0xf8, 0xf5, 0x04, 0xf9, 0x5f, 0x0f]);
    assert_eq!(p[1][..8], [0x24, 0xd3, 0xbc, 0xfc, 0xcb, 0xaa, 0x0a, 0x68]);
}

#[test]
fn parity_is_what_it_was_when_the_format_was_fixed() {
    for (codec, k, m, hash) in [
        (Codec::Gf8Cauchy, 2, 1, 0x1f7f3018462507aa),
        (Codec::Gf8Cauchy, 2, 2, 0x40a63282d4ac5cdf),
        (Codec::Gf8Cauchy, 4, 2, 0xb958a10cd4a02f78),
        (Codec::Gf8Cauchy, 8, 3, 0x923f5e7d36301a43),
        (Codec::Gf16Simd, 4, 2, 0x5e5777316192e86e),
        (Codec::Gf16Simd, 16, 4, 0x3c5ca0272652b647),
    ] {
        assert_eq!(xxh3_64(&parity(codec, k, m).concat()), hash, "{codec:?} {k}+{m}");
    }
}

#[test]
fn the_digest_is_what_it_was_when_the_format_was_fixed() {
    assert_eq!(digest(&[&[1, 2, 3], &[4, 5, 6], &[7, 8, 9]]), 0xc2ad78aa28f07ed6);
}
