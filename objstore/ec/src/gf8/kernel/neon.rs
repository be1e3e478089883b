//! NEON: two `tbl` look-ups per product, one for each half of a byte.
//!
//! What always holds: steps of 32 positions; two accumulators per output stay in registers.
//! What it leaves out: the tail below a step.

use super::{Job, Kernel, by_column};
use crate::gf8::tables::NIBBLES;
use std::arch::aarch64::*;

const STEP: usize = 32;

pub const KERNEL: Kernel = Kernel { name: "neon", supported: || std::arch::is_aarch64_feature_detected!("neon"), run };

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

#[target_feature(enable = "neon")]
fn rows<const M: usize>(job: &mut Job) -> usize {
    let tables = by_column::<M, &[u8; 32]>(job, |c| &NIBBLES[c as usize]);
    let len = job.outputs[0].len();
    let outputs: [*mut u8; M] = std::array::from_fn(|r| job.outputs[r].as_mut_ptr());
    let nibble = vdupq_n_u8(15);
    let mut at = 0;
    while at + STEP <= len {
        let mut sums = [[vdupq_n_u8(0); 2]; M];
        for (input, tables) in job.inputs.iter().zip(&tables) {
            // SAFETY: `at + STEP <= len`, and every input is `len` long (checked by `Kernel::product`).
            let x = unsafe {
                let p = input.as_ptr().add(at);
                [vld1q_u8(p), vld1q_u8(p.add(16))]
            };
            for (sum, table) in sums.iter_mut().zip(tables) {
                // SAFETY: a table is 32 bytes: 16 products of the low half, then 16 of the high half.
                let (of_low, of_high) = unsafe { (vld1q_u8(table.as_ptr()), vld1q_u8(table.as_ptr().add(16))) };
                for half in 0..2 {
                    let a = vqtbl1q_u8(of_low, vandq_u8(x[half], nibble));
                    let b = vqtbl1q_u8(of_high, vshrq_n_u8::<4>(x[half]));
                    sum[half] = veorq_u8(sum[half], veorq_u8(a, b));
                }
            }
        }
        for (out, sum) in outputs.iter().zip(sums) {
            // SAFETY: as above; every output is `len` long and borrowed mutably.
            unsafe {
                vst1q_u8(out.add(at), sum[0]);
                vst1q_u8(out.add(at + 16), sum[1]);
            }
        }
        at += STEP;
    }
    at
}
