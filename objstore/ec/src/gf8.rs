//! The narrow codec: GF(2^8), polynomial 0x11d, systematic Cauchy matrix.
//!
//! What always holds: parity shard `i` (k ≤ i < n) at each position is Σ_j inv(i ⊕ j) · data_j, bit for bit what
//! ISA-L makes from `gf_gen_cauchy1_matrix`. Any k of the n rows are independent, so any k shards decode.
//! What it leaves out: codes of more than 32 shards.

mod inverse;
pub(crate) mod kernel;
mod matrix;
mod tables;

use holdfast_objstore_proto::Code;
use smallvec::SmallVec;

pub use kernel::{kernel_name, kernels_for_tests};

pub(crate) fn encode(code: Code, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let k = code.k as usize;
    let mut coefs = SmallVec::<[u8; 128]>::new();
    for row in k..code.n() {
        coefs.extend((0..k).map(|col| matrix::coefficient(k, row, col)));
    }
    kernel::live().product(&coefs, data, parity);
}

/// `lost` are absent shards, `out` their buffers; at least k of `shards` are present (checked by the caller).
pub(crate) fn reconstruct(code: Code, shards: &[Option<&[u8]>], lost: &[u8], out: &mut [&mut [u8]]) {
    let k = code.k as usize;
    let mut chosen = 0u32;
    let mut inputs = SmallVec::<[&[u8]; 16]>::new();
    // Lowest numbers first: data rows are unit rows, which makes the system smallest.
    for (i, shard) in shards.iter().enumerate() {
        if let (Some(bytes), true) = (shard, inputs.len() < k) {
            chosen |= 1 << i;
            inputs.push(bytes);
        }
    }
    let coefs = inverse::rows(k, chosen, lost);
    kernel::live().product(&coefs, &inputs, out);
}
