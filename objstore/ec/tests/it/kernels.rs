//! Every kernel this machine can run, and the codec over the live one, against parity that an independent implementation made:
//! `golden.txt`, printed by tests/golden/gf8_cauchy.py.

use holdfast_objstore_ec::{encode, kernel_name, kernels_for_tests};
use holdfast_objstore_proto::{Code, Codec};
use std::collections::BTreeMap;

const LENGTH: usize = 256;

fn data(shard: usize) -> Vec<u8> {
    (0..LENGTH).map(|p| (shard * 131 + p * 17 + ((p * p * 7) >> 3) + 5 * shard * p) as u8).collect()
}

/// By code: the parity shards.
fn golden() -> BTreeMap<(u8, u8), Vec<Vec<u8>>> {
    let mut all: BTreeMap<_, Vec<Vec<u8>>> = BTreeMap::new();
    for line in include_str!("golden.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [k, m, row, hex] = words[..] else { panic!("four words: {line}") };
        let (k, m): (u8, u8) = (k.parse().unwrap(), m.parse().unwrap());
        let rows = all.entry((k, m)).or_default();
        assert_eq!(row.parse::<usize>().unwrap(), k as usize + rows.len());
        rows.push((0..LENGTH).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect());
    }
    assert!(all.len() >= 10 && all.iter().all(|((_, m), rows)| rows.len() == *m as usize));
    all
}

/// a·b by the definition, and 1/a by search.
fn product(a: u8, b: u8) -> u8 {
    let p = (0..8).filter(|i| b >> i & 1 == 1).fold(0u16, |p, i| p ^ (a as u16) << i);
    (8..15).rev().fold(p, |p, i| if p >> i & 1 == 1 { p ^ 0x11d << (i - 8) } else { p }) as u8
}

fn inverse(a: u8) -> u8 {
    (0..=255).find(|b| product(a, *b) == 1).expect("not zero")
}

#[test]
fn every_kernel_makes_the_golden_parity() {
    let mut names = Vec::new();
    for kernel in kernels_for_tests() {
        names.push(kernel.name);
        for ((k, m), want) in golden() {
            let data: Vec<Vec<u8>> = (0..k as usize).map(data).collect();
            let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let coefs: Vec<u8> = (k..k + m).flat_map(|row| (0..k).map(move |col| inverse(row ^ col))).collect();
            let mut out = vec![vec![0; LENGTH]; m as usize];
            kernel.product(&coefs, &inputs, &mut out.iter_mut().map(|o| &mut o[..]).collect::<Vec<_>>());
            assert_eq!(out, want, "{} of {k}+{m}", kernel.name);
        }
    }
    assert_eq!(
        (names.first(), names.last()),
        (Some(&kernel_name()), Some(&"scalar")),
        "the fastest is live, scalar always there: {names:?}"
    );
    eprintln!("kernels: {names:?}");
}

#[test]
fn the_codec_makes_the_golden_parity() {
    // A shard is whole blocks: the same bytes again and again.
    let whole = |bytes: &[u8]| bytes.repeat(4096 / LENGTH);
    for ((k, m), want) in golden().into_iter().filter(|((k, m), _)| *k <= 16 && *m <= 8) {
        let data: Vec<Vec<u8>> = (0..k as usize).map(|i| whole(&data(i))).collect();
        let mut out = vec![vec![0; 4096]; m as usize];
        let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        encode(Codec::Gf8Cauchy, Code::new(k, m), &inputs, &mut out.iter_mut().map(|o| &mut o[..]).collect::<Vec<_>>());
        assert_eq!(out, want.iter().map(|w| whole(w)).collect::<Vec<_>>(), "{k}+{m}");
    }
}
