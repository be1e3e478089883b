//! AVX2 with GFNI: as the AVX-512 kernel, 32 bytes at a time.
//!
//! What always holds: steps of 64 positions; two accumulators per output stay in registers (8 of 16 for four rows).
//! What it leaves out: the tail below a step.

use super::{Job, Kernel, by_column};
use crate::gf8::tables::AFFINE;
use std::arch::x86_64::*;

const STEP: usize = 64;

pub const KERNEL: Kernel =
    Kernel { name: "avx2+gfni", supported: || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"), run };

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

#[target_feature(enable = "avx2,gfni")]
fn rows<const M: usize>(job: &mut Job) -> usize {
    let matrices = by_column::<M, u64>(job, |c| AFFINE[c as usize]);
    let len = job.outputs[0].len();
    let outputs: [*mut u8; M] = std::array::from_fn(|r| job.outputs[r].as_mut_ptr());
    let mut at = 0;
    while at + STEP <= len {
        let mut sums = [[_mm256_setzero_si256(); 2]; M];
        for (input, by) in job.inputs.iter().zip(&matrices) {
            // SAFETY: `at + STEP <= len`, and every input is `len` long (checked by `Kernel::product`).
            let (low, high) = unsafe {
                let p = input.as_ptr().add(at);
                (_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast()))
            };
            for (sum, &by) in sums.iter_mut().zip(by) {
                let by = _mm256_set1_epi64x(by as i64);
                sum[0] = _mm256_xor_si256(sum[0], _mm256_gf2p8affine_epi64_epi8::<0>(low, by));
                sum[1] = _mm256_xor_si256(sum[1], _mm256_gf2p8affine_epi64_epi8::<0>(high, by));
            }
        }
        for (out, sum) in outputs.iter().zip(sums) {
            // SAFETY: as above; every output is `len` long and borrowed mutably.
            unsafe {
                let p = out.add(at);
                _mm256_storeu_si256(p.cast(), sum[0]);
                _mm256_storeu_si256(p.add(32).cast(), sum[1]);
            }
        }
        at += STEP;
    }
    at
}
