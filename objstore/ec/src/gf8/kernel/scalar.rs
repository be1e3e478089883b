//! Table look-ups, one byte at a time: the kernel that always works, and the tail of the others.
//!
//! What always holds: no instruction beyond the base set. What it leaves out: speed.

use super::{Job, Kernel};
use crate::gf8::tables::NIBBLES;

pub const KERNEL: Kernel = Kernel { name: "scalar", supported: || true, run };

fn run(job: &mut Job) -> usize {
    from(job, 0);
    job.outputs[0].len()
}

/// Positions `from..` of every output.
pub fn from(job: &mut Job, from: usize) {
    let cols = job.inputs.len();
    for (r, out) in job.outputs.iter_mut().enumerate() {
        let out = &mut out[from..];
        out.fill(0);
        for (c, input) in job.inputs.iter().enumerate() {
            let (low, high) = NIBBLES[job.coefs[r * cols + c] as usize].split_at(16);
            for (o, &x) in out.iter_mut().zip(&input[from..]) {
                *o ^= low[(x & 15) as usize] ^ high[(x >> 4) as usize];
            }
        }
    }
}
