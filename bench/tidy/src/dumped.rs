//! Every stored record is drawn in docs/formats and told of by `holdfast dump`: each page ends in the kinds of its lines.

use crate::tree::{files, read};
use std::collections::BTreeSet;

/// A page that draws what lies inside of others' records only.
const INSIDE: [&str; 1] = ["stripe"];

fn words_in<'a>(text: &'a str, quote: char) -> impl Iterator<Item = &'a str> {
    text.split(quote).skip(1).step_by(2)
}

/// The kinds of lines that shipped code makes.
fn told() -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    for path in ["objstore", "meta", "fs"].iter().flat_map(|f| files(f, ".rs")) {
        let name = path.to_string_lossy().into_owned();
        let text = read(&path);
        if name.contains("/tests") || name.contains("fuzzing") || !text.contains("Line") {
            continue;
        }
        let shipped = text.find("#[cfg(test)]\nmod tests").map_or(&text[..], |at| &text[..at]);
        for start in ["Line::new(", ".named(\"", ".named(if", ".part("] {
            for (at, _) in shipped.match_indices(start) {
                let argument = shipped[at..].split_once('(').map_or("", |(_, rest)| rest.split([',', ')']).next().unwrap_or(""));
                told.extend(words_in(argument, '"').map(str::to_string));
            }
        }
        // Kinds that go through a variable.
        if name.ends_with("service/snapshot.rs") {
            told.extend(words_in(shipped, '"').filter(|w| w.starts_with("index-")).map(str::to_string));
        }
    }
    told
}

#[test]
fn every_format_that_is_drawn_is_told_of_by_a_dump() {
    let told = told();
    let mut drawn = BTreeSet::new();
    for page in files("docs/formats", ".md") {
        let name = page.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let text = read(&page);
        let Some(list) = text.lines().find_map(|l| l.strip_prefix("In a dump: ")) else {
            assert!(INSIDE.contains(&name.as_str()), "docs/formats/{name}.md does not say by which lines a dump tells of it");
            continue;
        };
        for kind in words_in(list, '`') {
            assert!(told.contains(kind), "docs/formats/{name}.md names the line {kind}, which no dump prints");
            drawn.insert(kind.to_string());
        }
    }
    let more: Vec<_> = told.difference(&drawn).collect();
    assert!(more.is_empty(), "a dump prints lines that no page of docs/formats names: {more:?}");
}
