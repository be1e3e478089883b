//! Inputs by seed: real encodings, changed a little.
//!
//! What always holds: the same seed and samples give the same inputs, on every machine.

use holdfast_objstore_base::sim::Rng;

/// Longest input made here.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// One input: a sample, or noise, changed in one to six places.
pub fn input(samples: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut b = match samples.len() as u64 {
        n if n > 0 && rng.below(16) > 0 => samples[rng.below(n) as usize].clone(),
        _ => {
            let mut noise = vec![0; rng.below(200) as usize];
            rng.fill(&mut noise);
            noise
        }
    };
    for _ in 0..1 + rng.below(6) {
        change(&mut b, samples, rng);
    }
    b.truncate(INPUT_BYTES_MAX);
    b
}

fn change(b: &mut Vec<u8>, samples: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(b.len() as u64 + 1) as usize;
    let run = |rng: &mut Rng, from: usize, len: usize| from + rng.below((len - from).min(32) as u64 + 1) as usize;
    match rng.below(9) {
        0 | 1 if at < b.len() => b[at] ^= 1 << rng.below(8),
        2 if at < b.len() => b[at] = rng.next_u64() as u8,
        3 => b.insert(at, rng.next_u64() as u8),
        4 => drop(b.drain(at..run(rng, at, b.len()))),
        5 => b.truncate(at),
        6 => {
            // A number of some width at its edge.
            let bytes = EDGES[rng.below(EDGES.len() as u64) as usize].to_le_bytes();
            let width = [1, 2, 4, 8][rng.below(4) as usize];
            for (slot, byte) in b[at..].iter_mut().zip(&bytes[..width]) {
                *slot = *byte;
            }
        }
        7 => {
            // A run of it once more.
            let piece = b[at..run(rng, at, b.len())].to_vec();
            let to = rng.below(b.len() as u64 + 1) as usize;
            b.splice(to..to, piece);
        }
        _ if !samples.is_empty() => {
            // The end of another.
            let other = &samples[rng.below(samples.len() as u64) as usize];
            let from = rng.below(other.len() as u64 + 1) as usize;
            b.truncate(at);
            b.extend_from_slice(&other[from..]);
        }
        _ => {}
    }
}
