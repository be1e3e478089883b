//! Matrix times shards, with the fastest instructions this processor has.
//!
//! What always holds: all kernels give the same bytes; which one is live is decided once and can be named in logs.
//! A kernel does whole steps of at most [`ROWS_MAX`] outputs and says how far it came; the rest is done here.
//! What it leaves out: what the coefficients mean.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512_gfni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use std::sync::OnceLock;

/// Outputs a kernel makes at once: one accumulator (or a few) each, kept in registers.
const ROWS_MAX: usize = 4;
/// With more outputs the inputs are read once per group of [`ROWS_MAX`]; a piece of this many positions of 16 inputs
/// is still in the second-level cache for the next group.
const PIECE_BYTES: usize = 16 << 10;

/// out[r] = Σ_c coefs[r · cols + c] · inputs[c], for at most [`ROWS_MAX`] outputs of one length.
struct Job<'a, 'b> {
    coefs: &'a [u8],
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
}

/// One implementation.
pub struct Kernel {
    pub name: &'static str,
    supported: fn() -> bool,
    /// Does positions `0..returned` of every output; only called where `supported` said yes.
    run: fn(&mut Job) -> usize,
}

/// Fastest first; the last always works.
static KERNELS: &[Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    avx512_gfni::KERNEL,
    #[cfg(target_arch = "x86_64")]
    avx2_gfni::KERNEL,
    #[cfg(target_arch = "x86_64")]
    avx2::KERNEL,
    #[cfg(target_arch = "aarch64")]
    neon::KERNEL,
    scalar::KERNEL,
];

/// The kernel in use.
pub fn live() -> &'static Kernel {
    static LIVE: OnceLock<&'static Kernel> = OnceLock::new();
    LIVE.get_or_init(|| KERNELS.iter().find(|k| (k.supported)()).expect("scalar always works"))
}

/// Name of the GF(2^8) kernel in use, for logs and metrics: a silent fall-back to scalar costs a factor of fifty.
pub fn kernel_name() -> &'static str {
    live().name
}

/// Every kernel this machine can run.
#[doc(hidden)]
pub fn kernels_for_tests() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().filter(|k| (k.supported)())
}

impl Kernel {
    /// outputs[r] = Σ_c coefs[r · inputs.len() + c] · inputs[c], over all positions. Any length is right; multiples of
    /// 128 bytes are fast.
    pub fn product(&self, coefs: &[u8], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let cols = inputs.len();
        let Some(len) = outputs.first().map(|o| o.len()) else { return };
        assert!(cols > 0 && coefs.len() == cols * outputs.len(), "a coefficient for each input and output");
        assert!(inputs.iter().all(|i| i.len() == len) && outputs.iter().all(|o| o.len() == len), "one length");
        if outputs.len() <= ROWS_MAX {
            return self.group(&mut Job { coefs, inputs, outputs });
        }
        for from in (0..len).step_by(PIECE_BYTES) {
            let to = len.min(from + PIECE_BYTES);
            let inputs: smallvec::SmallVec<[&[u8]; 16]> = inputs.iter().map(|i| &i[from..to]).collect();
            for (coefs, outputs) in coefs.chunks(cols * ROWS_MAX).zip(outputs.chunks_mut(ROWS_MAX)) {
                let mut outputs: smallvec::SmallVec<[&mut [u8]; ROWS_MAX]> = outputs.iter_mut().map(|o| &mut o[from..to]).collect();
                self.group(&mut Job { coefs, inputs: &inputs, outputs: &mut outputs });
            }
        }
    }

    fn group(&self, job: &mut Job) {
        let done = (self.run)(job);
        if done < job.outputs[0].len() {
            scalar::from(job, done);
        }
    }
}

/// The job's coefficients turned into what a kernel multiplies by, column by column, one per output.
fn by_column<const M: usize, T: Copy>(job: &Job, of: impl Fn(u8) -> T) -> smallvec::SmallVec<[[T; M]; 16]> {
    let cols = job.inputs.len();
    (0..cols).map(|c| std::array::from_fn(|r| of(job.coefs[r * cols + c]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf8::tables::mul;

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    fn check(kernel: &Kernel, cols: usize, rows: usize, len: usize, skew: usize) {
        let coefs = bytes((cols * 31 + rows) as u64, cols * rows);
        let inputs: Vec<Vec<u8>> = (0..cols).map(|c| bytes(c as u64 + 7, len + skew)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(|i| &i[skew..]).collect();
        let mut outputs = vec![vec![0xaa; len + skew + 1]; rows];
        let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(|o| &mut o[skew..skew + len]).collect();
        kernel.product(&coefs, &inputs, &mut views);
        for r in 0..rows {
            assert!(outputs[r][..skew].iter().chain(&outputs[r][skew + len..]).all(|&b| b == 0xaa), "wrote outside");
            for at in 0..len {
                let want = (0..cols).fold(0, |sum, c| sum ^ mul(coefs[r * cols + c], inputs[c][at]));
                assert_eq!(outputs[r][skew + at], want, "{} {cols}x{rows} len {len} at {at}", kernel.name);
            }
        }
    }

    #[test]
    fn every_kernel_agrees_with_the_definition_at_every_length() {
        for kernel in kernels_for_tests() {
            for len in (0..400).chain([4095, 4096, 8192, 65536]) {
                check(kernel, 4, 2, len, 0);
                check(kernel, 3, 1, len, 1);
            }
        }
    }

    #[test]
    fn every_kernel_agrees_at_every_shape() {
        for kernel in kernels_for_tests() {
            for (cols, rows) in (1..=17).flat_map(|c| (1..=9).map(move |r| (c, r))) {
                check(kernel, cols, rows, 520, 3);
            }
            check(kernel, 16, 8, 2 * PIECE_BYTES + 77, 5);
        }
    }

    #[test]
    fn every_kernel_multiplies_every_pair() {
        let all: Vec<u8> = (0..=255).collect();
        for kernel in kernels_for_tests() {
            for c in 0..=255u8 {
                let mut out = vec![0; 256];
                kernel.product(&[c], &[&all], &mut [&mut out]);
                assert!(all.iter().all(|&x| out[x as usize] == mul(c, x)), "{} by {c}", kernel.name);
            }
        }
    }

    #[test]
    fn the_live_kernel_is_the_fastest_supported() {
        assert_eq!(kernel_name(), kernels_for_tests().next().expect("scalar").name);
    }
}
