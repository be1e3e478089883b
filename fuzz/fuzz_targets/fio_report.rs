//! See the target `fio_report` of `bench/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run("fio_report", bytes));
