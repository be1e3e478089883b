//! What the crate promises from outside: parity bytes as the format says, and every loss a code survives undone.

mod golden;
mod kernels;
mod reference;
mod roundtrip;

pub const CODES: [(u8, u8); 8] = [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (4, 2), (8, 3), (16, 4)];

/// Bytes that look random and are the same every time.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

pub fn shards(k: u8, len: usize) -> Vec<Vec<u8>> {
    (0..k as u64).map(|i| bytes(i + 1, len)).collect()
}

pub fn views(shards: &[Vec<u8>]) -> Vec<&[u8]> {
    shards.iter().map(Vec::as_slice).collect()
}
