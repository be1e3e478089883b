//! A short run of every target, the same on every machine, and the corpora; how much memory a decoder takes for its input.

mod memory;

use holdfast_bench_fuzz::{mutate, targets};
use holdfast_objstore_base::dump::hex;
use holdfast_objstore_base::fuzzing::Target;
use holdfast_objstore_base::sim::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Inputs of one target; `HOLDFAST_FUZZ_INPUTS` asks for more.
const INPUTS: u64 = 6000;
/// What a body may take beside what its input makes necessary: fixed tables and serde's cautious reservations.
const FIXED_BYTES: usize = 4 << 20;
/// And for each byte of the input.
const BYTES_PER_BYTE: usize = 4096;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn try_one(t: &Target, input: &[u8], whence: &str) {
    let before = memory::peak_begins();
    let outcome = catch_unwind(AssertUnwindSafe(|| (t.body)(input)));
    let took = memory::peak_since(before);
    let shown = || format!("{} on {whence}; the input is {}", t.name, hex(input));
    assert!(outcome.is_ok(), "{}", shown());
    let most = FIXED_BYTES + BYTES_PER_BYTE * input.len();
    assert!(took <= most, "{took} bytes of memory, {most} are bearable: {}", shown());
}

#[test]
fn every_decoder_bears_changed_encodings() {
    let inputs = std::env::var("HOLDFAST_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(INPUTS);
    let only = std::env::var("HOLDFAST_FUZZ_TARGET").ok();
    for t in targets().iter().filter(|t| only.as_deref().is_none_or(|name| name == t.name)) {
        let samples = (t.samples)();
        assert!(!samples.is_empty(), "{} has no sample", t.name);
        // Targets that run a whole state machine get fewer.
        let inputs = if t.name.starts_with("meta_apply") || t.name == "state_damaged" { inputs / 4 } else { inputs };
        let start = std::time::Instant::now();
        samples.iter().for_each(|s| try_one(t, s, "a sample"));
        let mut rng = Rng::new(1);
        for n in 0..inputs {
            let input = mutate::input(&samples, &mut rng);
            try_one(t, &input, &format!("input {n}"));
        }
        println!("{:22} {inputs} inputs in {:.2} s", t.name, start.elapsed().as_secs_f64());
    }
}

#[test]
fn every_input_that_once_failed_is_borne() {
    for t in targets() {
        let corpus = folder().join("corpus").join(t.name);
        for entry in std::fs::read_dir(&corpus).unwrap_or_else(|e| panic!("{}: {e}", corpus.display())) {
            let path = entry.expect("reads").path();
            try_one(&t, &std::fs::read(&path).expect("reads"), &path.display().to_string());
        }
    }
}

#[test]
fn every_target_has_a_file_for_cargo_fuzz() {
    let mut names: Vec<String> = targets().iter().map(|t| t.name.to_string()).collect();
    names.sort();
    let files = std::fs::read_dir(folder().join("fuzz_targets")).expect("the folder is there");
    let mut on_disk: Vec<String> =
        files.filter_map(|f| Some(f.expect("reads").path().file_stem()?.to_string_lossy().into_owned())).collect();
    on_disk.sort();
    assert_eq!(on_disk, names, "`cargo run -p holdfast-bench-fuzz --example scaffold` writes what is missing");
    let manifest = std::fs::read_to_string(folder().join("Cargo.toml")).expect("reads");
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml lacks {name}");
    }
}
