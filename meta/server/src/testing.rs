//! For tests by seed.

use std::ops::Range;

/// The seeds a test runs: `SEEDS=7` replays one, `SEEDS=0..500` looks further.
pub(crate) fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return usual };
    let number = |s: &str| s.parse::<u64>().unwrap_or_else(|_| panic!("SEEDS={text} is neither a number nor a range"));
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}
