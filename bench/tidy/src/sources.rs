//! Habits of source files: a header, a bearable length, nothing left undone.

use crate::tree::{files, read};

const FOLDERS: [&str; 4] = ["objstore", "meta", "fs", "bench"];
/// A file past this hides two nouns.
const LINES_MAX: usize = 800;

fn sources() -> impl Iterator<Item = (String, String)> {
    FOLDERS.iter().flat_map(|f| files(f, ".rs")).map(|p| (p.to_string_lossy().into_owned(), read(&p))).filter(|(p, _)| {
        !p.contains("/target/") && !p.ends_with("generated.rs") && !p.starts_with("bench/faultdisk/") && !p.starts_with("bench/tidy/")
    })
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/fuzz/") || path.contains("conformance")
}

/// The part of a file that ships: before its inline test module.
fn shipped(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests").map_or(text, |at| &text[..at])
}

#[test]
fn every_file_says_what_it_is() {
    let bad: Vec<_> = sources().filter(|(_, t)| !t.starts_with("//!")).map(|(p, _)| p).collect();
    assert!(bad.is_empty(), "files without a header: {bad:?}");
}

#[test]
fn no_file_hides_two_nouns() {
    let bad: Vec<_> = sources().filter(|(p, t)| !is_test(p) && shipped(t).lines().count() > LINES_MAX).map(|(p, _)| p).collect();
    assert!(bad.is_empty(), "files over {LINES_MAX} lines: {bad:?}");
}

#[test]
fn nothing_is_left_undone() {
    let marks = ["todo!(", "unimplemented!(", "TODO", "FIXME", "XXX", "HACK", "#[ignore"];
    for (path, text) in sources() {
        for (n, line) in text.lines().enumerate() {
            assert!(!marks.iter().any(|m| line.contains(m)), "{path}:{}: {line}", n + 1);
        }
    }
}

#[test]
fn shipped_code_does_not_unwrap() {
    for (path, text) in sources().filter(|(p, _)| !is_test(p) && !p.contains("/examples/")) {
        for (n, line) in shipped(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            assert!(!code.contains(".unwrap()"), "{path}:{}: {line}", n + 1);
        }
    }
}
