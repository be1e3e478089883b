//! See the target `s3_chunk_framing` of `bench/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run("s3_chunk_framing", bytes));
