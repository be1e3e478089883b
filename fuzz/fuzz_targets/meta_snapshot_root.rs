//! See the target `meta_snapshot_root` of `bench/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run("meta_snapshot_root", bytes));
