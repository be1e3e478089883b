//! AVX-512 with GFNI: one `gf2p8affineqb` multiplies 64 bytes by a constant of any field of 256 elements.
//!
//! What always holds: steps of 128 positions; two accumulators per output stay in registers (8 of 32 for four rows).
//! What it leaves out: the tail below a step.

use super::{Job, Kernel, by_column};
use crate::gf8::tables::AFFINE;
use std::arch::x86_64::*;

const STEP: usize = 128;

pub const KERNEL: Kernel =
    Kernel { name: "avx512+gfni", supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni"), run };

fn run(job: &mut Job) -> usize {
    // SAFETY: the dispatcher calls this only where `supported` found both features.
    unsafe {
        match job.outputs.len() {
            1 => rows::<1>(job),
            2 => rows::<2>(job),
            3 => rows::<3>(job),
            _ => rows::<4>(job),
        }
    }
}

#[target_feature(enable = "avx512f,gfni")]
fn rows<const M: usize>(job: &mut Job) -> usize {
    let matrices = by_column::<M, u64>(job, |c| AFFINE[c as usize]);
    let len = job.outputs[0].len();
    let outputs: [*mut u8; M] = std::array::from_fn(|r| job.outputs[r].as_mut_ptr());
    let mut at = 0;
    while at + STEP <= len {
        let mut sums = [[_mm512_setzero_si512(); 2]; M];
        for (input, by) in job.inputs.iter().zip(&matrices) {
            // SAFETY: `at + STEP <= len`, and every input is `len` long (checked by `Kernel::product`).
            let (low, high) = unsafe {
                let p = input.as_ptr().add(at);
                (_mm512_loadu_si512(p.cast()), _mm512_loadu_si512(p.add(64).cast()))
            };
            for (sum, &by) in sums.iter_mut().zip(by) {
                let by = _mm512_set1_epi64(by as i64);
                sum[0] = _mm512_xor_si512(sum[0], _mm512_gf2p8affine_epi64_epi8::<0>(low, by));
                sum[1] = _mm512_xor_si512(sum[1], _mm512_gf2p8affine_epi64_epi8::<0>(high, by));
            }
        }
        for (out, sum) in outputs.iter().zip(sums) {
            // SAFETY: as above; every output is `len` long and borrowed mutably.
            unsafe {
                let p = out.add(at);
                _mm512_storeu_si512(p.cast(), sum[0]);
                _mm512_storeu_si512(p.add(64).cast(), sum[1]);
            }
        }
        at += STEP;
    }
    at
}
