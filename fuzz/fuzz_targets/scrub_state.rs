//! See the target `scrub_state` of `bench/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run("scrub_state", bytes));
