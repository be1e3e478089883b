//! AVX2 without GFNI: two `vpshufb` look-ups per product, one for each half of a byte.
//!
//! What always holds: steps of 32 positions; one accumulator per output stays in a register.
//! What it leaves out: the tail below a step.

use super::{Job, Kernel, by_column};
use crate::gf8::tables::NIBBLES;
use std::arch::x86_64::*;

const STEP: usize = 32;

pub const KERNEL: Kernel = Kernel { name: "avx2", supported: || is_x86_feature_detected!("avx2"), run };

fn run(job: &mut Job) -> usize {
    // SAFETY: the dispatcher calls this only where `supported` found the feature.
    unsafe {
        match job.outputs.len() {
            1 => rows::<1>(job),
            2 => rows::<2>(job),
            3 => rows::<3>(job),
            _ => rows::<4>(job),
        }
    }
}

#[target_feature(enable = "avx2")]
fn rows<const M: usize>(job: &mut Job) -> usize {
    let tables = by_column::<M, &[u8; 32]>(job, |c| &NIBBLES[c as usize]);
    let len = job.outputs[0].len();
    let outputs: [*mut u8; M] = std::array::from_fn(|r| job.outputs[r].as_mut_ptr());
    let nibble = _mm256_set1_epi8(15);
    let mut at = 0;
    while at + STEP <= len {
        let mut sums = [_mm256_setzero_si256(); M];
        for (input, tables) in job.inputs.iter().zip(&tables) {
            // SAFETY: `at + STEP <= len`, and every input is `len` long (checked by `Kernel::product`).
            let x = unsafe { _mm256_loadu_si256(input.as_ptr().add(at).cast()) };
            let low = _mm256_and_si256(x, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi64::<4>(x), nibble);
            for (sum, table) in sums.iter_mut().zip(tables) {
                // SAFETY: a table is 32 bytes: 16 products of the low half, then 16 of the high half.
                let (of_low, of_high) = unsafe {
                    let p: *const __m128i = table.as_ptr().cast();
                    (_mm_loadu_si128(p), _mm_loadu_si128(p.add(1)))
                };
                let a = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(of_low), low);
                let b = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(of_high), high);
                *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(a, b));
            }
        }
        for (out, sum) in outputs.iter().zip(sums) {
            // SAFETY: as above; every output is `len` long and borrowed mutably.
            unsafe { _mm256_storeu_si256(out.add(at).cast(), sum) };
        }
        at += STEP;
    }
    at
}
