//! Writes what `fuzz/` must have for each target: its file, its place in the manifest, and samples as its first corpus.

use holdfast_bench_fuzz::targets;
use std::fmt::Write as _;
use std::path::Path;

/// Samples of one target that are kept: the others differ little.
const KEPT: usize = 24;

fn main() -> std::io::Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut bins = String::new();
    for t in targets() {
        let file = format!(
            "//! See the target `{0}` of `bench/fuzz`.\n#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_bench_fuzz::run(\"{0}\", bytes));\n",
            t.name
        );
        std::fs::create_dir_all(fuzz.join("fuzz_targets"))?;
        std::fs::write(fuzz.join("fuzz_targets").join(format!("{}.rs", t.name)), file)?;
        let _ =
            write!(bins, "\n[[bin]]\nname = \"{0}\"\npath = \"fuzz_targets/{0}.rs\"\ntest = false\ndoc = false\nbench = false\n", t.name);
        let corpus = fuzz.join("corpus").join(t.name);
        std::fs::create_dir_all(&corpus)?;
        let samples = (t.samples)();
        for (n, sample) in samples.iter().step_by(samples.len().div_ceil(KEPT)).enumerate() {
            std::fs::write(corpus.join(format!("sample-{n:02}")), sample)?;
        }
    }
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml"))?;
    let head = manifest.split("\n[[bin]]").next().unwrap_or_default().trim_end();
    std::fs::write(fuzz.join("Cargo.toml"), format!("{head}\n{bins}"))
}
