//! The generator matrix and plain linear algebra on small square matrices.
//!
//! What always holds: rows below k are the unit matrix, rows from k on are Cauchy; matrices are row-major.
//! What it leaves out: speed. Matrices are at most 32×32 and results are kept (`inverse`).

use super::tables::{INVERSE, mul};

/// Entry of the generator matrix of a code with `k` data shards.
pub fn coefficient(k: usize, row: usize, col: usize) -> u8 {
    if row < k { (row == col) as u8 } else { INVERSE[row ^ col] }
}

/// Inverts a `k`×`k` matrix by Gauss–Jordan elimination; `None` when it is singular.
pub fn invert(mut a: Vec<u8>, k: usize) -> Option<Vec<u8>> {
    let mut inv: Vec<u8> = (0..k * k).map(|i| (i / k == i % k) as u8).collect();
    for col in 0..k {
        let pivot = (col..k).find(|&r| a[r * k + col] != 0)?;
        if pivot != col {
            for c in 0..k {
                a.swap(pivot * k + c, col * k + c);
                inv.swap(pivot * k + c, col * k + c);
            }
        }
        let scale = INVERSE[a[col * k + col] as usize];
        for c in 0..k {
            a[col * k + c] = mul(a[col * k + c], scale);
            inv[col * k + c] = mul(inv[col * k + c], scale);
        }
        for row in (0..k).filter(|&r| r != col) {
            let factor = a[row * k + col];
            if factor == 0 {
                continue;
            }
            for c in 0..k {
                a[row * k + c] ^= mul(a[col * k + c], factor);
                inv[row * k + c] ^= mul(inv[col * k + c], factor);
            }
        }
    }
    Some(inv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_singular_matrix_has_no_inverse() {
        assert_eq!(invert(vec![1, 2, 1, 2], 2), None);
        assert_eq!(invert(vec![0, 1, 1, 0], 2), Some(vec![0, 1, 1, 0]));
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert!((1..=255u8).all(|a| mul(a, INVERSE[a as usize]) == 1));
    }
}
