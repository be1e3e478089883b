//! Error paths that are counted as reached: the code, the table in docs/FAILPOINTS.md and the tests that look say the same.

use crate::tree::{files, read};
use std::collections::{BTreeMap, BTreeSet};

const FOLDERS: [&str; 3] = ["objstore", "meta", "fs"];

fn is_test(path: &str) -> bool {
    path.contains("/tests") || path.ends_with("tests.rs")
}

/// Names in quotes that follow `call(` anywhere in the text.
fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, call) in text.match_indices("failpoint::reached(") {
        let argument = text[at + call.len()..].split(')').next().unwrap_or("");
        names.extend(argument.split('"').skip(1).step_by(2).map(str::to_string));
    }
    names
}

/// The points of shipped code, each once.
fn points() -> BTreeSet<String> {
    let mut points = BTreeMap::<String, u32>::new();
    for path in FOLDERS.iter().flat_map(|f| files(f, ".rs")) {
        if !is_test(&path.to_string_lossy()) {
            named(&read(&path)).into_iter().for_each(|name| *points.entry(name).or_default() += 1);
        }
    }
    let twice: Vec<_> = points.iter().filter(|(_, n)| **n > 1).collect();
    assert!(twice.is_empty(), "failpoints that stand at two places: {twice:?}");
    points.into_keys().collect()
}

/// The rows of the table: name, what it is, the test that must reach it.
fn rows() -> Vec<(String, String)> {
    let text = read("docs/FAILPOINTS.md");
    let cells = |line: &str| line.split('|').map(|c| c.trim().trim_matches('`').to_string()).collect::<Vec<_>>();
    let rows = text.lines().filter(|l| l.starts_with("| `")).map(cells);
    rows.map(|c| (c[1].clone(), c[3].clone())).collect()
}

/// The text of a test, from its name to the next test.
fn body(tests: &str, name: &str) -> Option<String> {
    let at = tests.find(&format!("fn {name}("))?;
    Some(tests[at..].split("#[test]").next()?.split("#[tokio::test").next()?.to_string())
}

#[test]
fn every_failpoint_is_in_the_table_and_a_test_fails_that_does_not_reach_it() {
    let (points, rows) = (points(), rows());
    let listed: BTreeSet<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let (unlisted, gone): (Vec<_>, Vec<_>) = (points.difference(&listed).collect(), listed.difference(&points).collect());
    assert!(unlisted.is_empty(), "failpoints without a row in docs/FAILPOINTS.md: {unlisted:?}");
    assert!(gone.is_empty(), "docs/FAILPOINTS.md lists what is not in the code: {gone:?}");
    assert_eq!(listed.len(), rows.len(), "a failpoint has two rows");
    let mut tests = String::new();
    for path in ["objstore", "meta", "fs", "bench/sim"].iter().flat_map(|f| files(f, ".rs")) {
        tests.push_str(&read(path));
    }
    for (name, test) in rows {
        let body = body(&tests, &test).unwrap_or_else(|| panic!("docs/FAILPOINTS.md names the test {test}, which is not there"));
        let looks = body.contains("must_reach(") && body.contains(&format!("\"{name}\""));
        assert!(looks, "the test {test} does not look whether {name} was reached");
    }
}
