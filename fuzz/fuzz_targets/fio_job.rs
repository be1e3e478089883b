//! See the target `fio_job` of `bench/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run("fio_job", bytes));
