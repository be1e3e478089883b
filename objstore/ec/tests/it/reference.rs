//! A second, slow GF(2^8) Cauchy codec written from the definition: logarithm tables and Cramer-free elimination on
//! the data itself. It shares nothing with the crate, so that a common mistake would have to be made twice.

use crate::{CODES, bytes, shards, views};
use holdfast_objstore_ec::{encode, reconstruct};
use holdfast_objstore_proto::{Code, Codec};

struct Field {
    exp: [u8; 510],
    log: [usize; 256],
}

impl Field {
    /// 2 generates the multiplicative group of GF(2)[x] / 0x11d.
    fn new() -> Self {
        let (mut exp, mut log, mut x) = ([0; 510], [0; 256], 1u16);
        for i in 0..255 {
            (exp[i], exp[i + 255], log[x as usize]) = (x as u8, x as u8, i);
            x = if x & 0x80 == 0 { x << 1 } else { x << 1 ^ 0x11d };
        }
        Field { exp, log }
    }
    fn mul(&self, a: u8, b: u8) -> u8 {
        if a == 0 || b == 0 { 0 } else { self.exp[self.log[a as usize] + self.log[b as usize]] }
    }
    fn inv(&self, a: u8) -> u8 {
        assert_ne!(a, 0);
        self.exp[255 - self.log[a as usize]]
    }
    fn row(&self, k: usize, i: usize) -> Vec<u8> {
        (0..k).map(|j| if i < k { (i == j) as u8 } else { self.inv((i ^ j) as u8) }).collect()
    }
    /// All n shards, from k equations (shard number, byte) at one position.
    fn solve(&self, k: usize, n: usize, mut equations: Vec<(Vec<u8>, u8)>) -> Vec<u8> {
        for col in 0..k {
            let pivot = (col..k).find(|&r| equations[r].0[col] != 0).expect("independent");
            equations.swap(col, pivot);
            let scale = self.inv(equations[col].0[col]);
            equations[col].0.iter_mut().for_each(|v| *v = self.mul(*v, scale));
            equations[col].1 = self.mul(equations[col].1, scale);
            let (row, value) = equations[col].clone();
            for (r, (other, result)) in equations.iter_mut().enumerate().filter(|(r, _)| *r != col) {
                assert_ne!(r, col);
                let by = other[col];
                other.iter_mut().zip(&row).for_each(|(o, &v)| *o ^= self.mul(by, v));
                *result ^= self.mul(by, value);
            }
        }
        let data: Vec<u8> = equations.iter().map(|e| e.1).collect();
        (0..n).map(|i| self.row(k, i).iter().zip(&data).fold(0, |s, (&c, &d)| s ^ self.mul(c, d))).collect()
    }
}

#[test]
fn parity_is_the_reference_codecs_bit_for_bit() {
    let field = Field::new();
    for (k, m) in CODES {
        let data = shards(k, 4096);
        let mut parity = vec![vec![0x55; 4096]; m as usize];
        let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(|p| &mut p[..]).collect();
        encode(Codec::Gf8Cauchy, Code::new(k, m), &views(&data), &mut outs);
        for (p, out) in parity.iter().enumerate() {
            let row = field.row(k as usize, k as usize + p);
            for at in 0..4096 {
                let want = row.iter().zip(&data).fold(0, |s, (&c, d)| s ^ field.mul(c, d[at]));
                assert_eq!(out[at], want, "{k}+{m} parity {p} at {at}");
            }
        }
    }
}

#[test]
fn decoding_is_the_reference_codecs_bit_for_bit() {
    let field = Field::new();
    for (k, m) in [(4u8, 2u8), (8, 3), (16, 4)] {
        let n = (k + m) as usize;
        // Not a code word: any k shards are "what is there", so even that must decode the same way in both.
        let garbage: Vec<Vec<u8>> = (0..n as u64).map(|i| bytes(i + 99, 4096)).collect();
        for lost in 0..n {
            let gone: Vec<usize> = (0..m as usize).map(|i| (lost + i * 2) % n).collect();
            let present: Vec<Option<&[u8]>> = (0..n).map(|i| (!gone.contains(&i)).then(|| &garbage[i][..])).collect();
            let mut out = vec![vec![0; 4096]; gone.len()];
            let mut outs: Vec<&mut [u8]> = out.iter_mut().map(|o| &mut o[..]).collect();
            reconstruct(Codec::Gf8Cauchy, Code::new(k, m), &present, &gone, &mut outs).unwrap();
            let chosen: Vec<usize> = (0..n).filter(|i| !gone.contains(i)).take(k as usize).collect();
            for at in (0..4096).step_by(97) {
                let equations = chosen.iter().map(|&i| (field.row(k as usize, i), garbage[i][at])).collect();
                let all = field.solve(k as usize, n, equations);
                for (g, o) in gone.iter().zip(&out) {
                    assert_eq!(o[at], all[*g], "{k}+{m} shard {g} at {at}");
                }
            }
        }
    }
}
