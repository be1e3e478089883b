//! How the house is kept: its rules as ordinary tests, so that breaking one fails a run instead of waiting for a reader.
//!
//! It reads manifests and sources as text. What it leaves out: everything the compiler, clippy and rustfmt already say.

#[cfg(test)]
mod arrows;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod dumped;
#[cfg(test)]
mod failpoints;
#[cfg(test)]
mod fuzzed;
#[cfg(test)]
mod sources;

#[cfg(test)]
mod tree {
    use std::path::{Path, PathBuf};

    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is two folders up").to_path_buf()
    }

    pub fn read(path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(root().join(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
    }

    /// All files below `folder` with this ending, relative to the root.
    pub fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
        let (mut out, mut open) = (Vec::new(), vec![root().join(folder)]);
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.to_string_lossy().ends_with(ending) {
                    out.push(path.strip_prefix(root()).expect("below the root").to_path_buf());
                }
            }
        }
        out.sort();
        out
    }
}
