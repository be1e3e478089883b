//! See the target `log_checkpoint_header` of `bench/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run("log_checkpoint_header", bytes));
