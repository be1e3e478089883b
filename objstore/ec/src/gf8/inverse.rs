//! Decoding rows by loss pattern, kept: a lost device means the same pattern for many stripes in a row.
//!
//! What always holds: at most [`PATTERNS_MAX`] patterns are kept (under 150 KiB); when full, all are forgotten, since
//! they cost microseconds to make again. No arithmetic happens under the lock.
//! What it leaves out: the bytes; rows depend on shard numbers alone.

use super::{matrix, tables::mul};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

const PATTERNS_MAX: usize = 512;

#[derive(PartialEq, Eq, Hash)]
struct Pattern {
    k: u8,
    /// Bit i: shard i is an input.
    chosen: u32,
    /// Shards to make, in the caller's order.
    wanted: SmallVec<[u8; 8]>,
}

static KEPT: LazyLock<Mutex<HashMap<Pattern, Arc<[u8]>>>> = LazyLock::new(Mutex::default);

/// One row of k coefficients for each of `wanted`, over the k `chosen` shards in ascending order.
pub fn rows(k: usize, chosen: u32, wanted: &[u8]) -> Arc<[u8]> {
    let pattern = Pattern { k: k as u8, chosen, wanted: wanted.into() };
    if let Some(rows) = KEPT.lock().get(&pattern) {
        return rows.clone();
    }
    let rows: Arc<[u8]> = make(k, chosen, wanted).into();
    let mut kept = KEPT.lock();
    if kept.len() >= PATTERNS_MAX {
        kept.clear();
    }
    kept.insert(pattern, rows.clone());
    rows
}

fn make(k: usize, chosen: u32, wanted: &[u8]) -> Vec<u8> {
    let inputs = (0..32).filter(|i| chosen >> i & 1 == 1);
    let system: Vec<u8> = inputs.flat_map(|row| (0..k).map(move |col| matrix::coefficient(k, row, col))).collect();
    assert_eq!(system.len(), k * k, "k shards are chosen");
    let inverse = matrix::invert(system, k).expect("any k rows of a Cauchy generator are independent");
    let mut rows = vec![0; wanted.len() * k];
    for (row, &shard) in rows.chunks_exact_mut(k).zip(wanted) {
        for (col, out) in row.iter_mut().enumerate() {
            // A data shard's generator row is a unit row, so this is a plain row of the inverse; a parity shard's is
            // its generator row times the inverse.
            *out = (0..k).fold(0, |sum, i| sum ^ mul(matrix::coefficient(k, shard as usize, i), inverse[i * k + col]));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_kept_and_bounded() {
        let first = rows(4, 0b11110, &[0]);
        assert!(Arc::ptr_eq(&first, &rows(4, 0b11110, &[0])) || KEPT.lock().len() < PATTERNS_MAX);
        // Every choice of 4 of 16 shards is more than are kept.
        for chosen in (0u32..1 << 16).filter(|c| c.count_ones() == 4) {
            rows(4, chosen, &[chosen.trailing_ones() as u8]);
            assert!(KEPT.lock().len() <= PATTERNS_MAX);
        }
        assert_eq!(first, rows(4, 0b11110, &[0]));
    }
}
