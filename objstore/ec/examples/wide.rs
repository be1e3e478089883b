//! What a wide code costs in each codec: encoding a stripe, rebuilding one 4 KiB block and one whole shard.
//!
//! `cargo run --release -p holdfast-objstore-ec --example wide` prints one line for each; docs/rfcs quotes it.

use holdfast_objstore_ec::{encode, kernel_name, reconstruct};
use holdfast_objstore_proto::{Code, Codec};
use std::time::{Duration, Instant};

/// Bytes of data in one stripe.
const STRIPE: usize = 4 << 20;
const LONG: Duration = Duration::from_millis(400);

fn time(mut work: impl FnMut()) -> f64 {
    work();
    let (start, mut n) = (Instant::now(), 0u32);
    while start.elapsed() < LONG {
        work();
        n += 1;
    }
    start.elapsed().as_secs_f64() / n as f64 * 1e6
}

fn main() {
    println!("kernel {}", kernel_name());
    for (k, m) in [(4u8, 2u8), (8, 3), (12, 4), (16, 4), (16, 8)] {
        let code = Code::new(k, m);
        let len = STRIPE.div_ceil(k as usize).next_multiple_of(4096);
        let data: Vec<Vec<u8>> = (0..k as usize).map(|i| (0..len).map(|p| (p * 31 + i * 7) as u8).collect()).collect();
        let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        for codec in [Codec::Gf8Cauchy, Codec::Gf16Simd] {
            let mut parity = vec![vec![0; len]; m as usize];
            let encoding = time(|| encode(codec, code, &views, &mut parity.iter_mut().map(|p| &mut p[..]).collect::<Vec<_>>()));
            let shards: Vec<&[u8]> = views.iter().copied().chain(parity.iter().map(Vec::as_slice)).collect();
            let rebuild = |bytes: usize, lost: usize| {
                let present: Vec<Option<&[u8]>> = shards.iter().enumerate().map(|(i, s)| (i >= lost).then(|| &s[..bytes])).collect();
                let mut out = vec![0; bytes];
                time(|| reconstruct(codec, code, &present, &[0], &mut [&mut out]).expect("enough are there"))
            };
            let (one, all_lost) = (rebuild(4096, 1), rebuild(4096, m as usize));
            let whole = rebuild(len, 1);
            println!(
                "{code} {codec:?}: encode {:.0} MiB/s of data, rebuild 4 KiB {one:.1} us with 1 lost, {all_lost:.1} us with {m} lost, a shard {:.0} MiB/s",
                STRIPE as f64 / (1 << 20) as f64 / (encoding / 1e6),
                len as f64 / (1 << 20) as f64 / (whole / 1e6)
            );
        }
    }
}
