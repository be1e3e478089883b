//! Documents that must stay true.

use crate::tree::{files, read, root};

#[test]
fn every_file_that_a_document_names_is_there() {
    for doc in ["README.md", "docs/ARCHITECTURE.md", "docs/SEMANTICS.md", "docs/OPERATIONS.md"] {
        let text = read(doc);
        for word in text.split(['`', '(', ')']) {
            let path = word.trim();
            let looks = path.contains('/') && !path.contains([' ', '*', ':', '<', '$']) && !path.starts_with(['/', '.', '-']);
            let ours =
                ["objstore/", "meta/", "fs/", "bench/", "fio-jobs/", "docs/", "tests/", "scripts/"].iter().any(|f| path.starts_with(f));
            if looks && ours {
                assert!(root().join(path).exists(), "{doc} names {path}, which is not there");
            }
        }
    }
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let text = read("docs/SEMANTICS.md");
    let mut tests = String::new();
    for f in files("tests", ".py") {
        tests.push_str(&read(f));
    }
    for folder in ["objstore", "meta", "fs", "bench"] {
        for f in files(folder, ".rs") {
            tests.push_str(&read(f));
        }
    }
    let mut named = 0;
    for line in text.lines().filter(|l| l.starts_with("- ")) {
        let Some((_, list)) = line.split_once(" — ") else { panic!("a promise without a test: {line}") };
        for name in list.split('`').skip(1).step_by(2) {
            named += 1;
            assert!(
                tests.contains(&format!("fn {name}(")) || tests.contains(&format!("def {name}(")),
                "SEMANTICS.md names a test that does not exist: {name}"
            );
        }
    }
    assert!(named > 20, "SEMANTICS.md names only {named} tests");
}

#[test]
fn formats_are_drawn() {
    let drawn = files("docs/formats", ".md");
    for name in ["log", "osd", "wal", "stripe", "metadata", "state", "cluster", "volume"] {
        assert!(drawn.iter().any(|d| d.file_stem().is_some_and(|s| s == name)), "docs/formats/{name}.md is missing");
    }
}
