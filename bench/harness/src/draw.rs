//! Reports, drawn from `results.json` and nothing else.
//!
//! What always holds: the same results give the same bytes; no report loads anything from elsewhere.
//! What it leaves out: measuring.

mod html;
mod markdown;
mod terminal;

pub use terminal::terminal;

use crate::results::{Environment, Results, Stats};
use anyhow::Context;
use std::path::Path;

/// Both reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub markdown: String,
    pub html: String,
}

/// Draws both reports from the text of a `results.json`.
pub fn render(results_json: &str) -> anyhow::Result<Rendered> {
    let results: Results = serde_json::from_str(results_json).context("not a results.json of this program")?;
    Ok(Rendered { markdown: markdown::markdown(&results), html: html::html(&results) })
}

/// Reads `results` and writes `report.md` and `report.html` beside it.
pub fn render_beside(results: &Path) -> anyhow::Result<()> {
    let json = std::fs::read_to_string(results).with_context(|| format!("cannot read {}", results.display()))?;
    let rendered = render(&json).with_context(|| format!("cannot draw {}", results.display()))?;
    let dir = results.parent().unwrap_or(Path::new("."));
    for (name, text) in [("report.md", rendered.markdown), ("report.html", rendered.html)] {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Writes `results.json` into `out`, then the reports from it.
pub fn write(results: &Results, out: &Path) -> anyhow::Result<()> {
    let path = out.join("results.json");
    let json = serde_json::to_string_pretty(results)? + "\n";
    std::fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    render_beside(&path)
}

/// What the environment says, label and text, in the order it is shown.
fn facts(e: &Environment) -> Vec<(&'static str, String)> {
    let or_unknown = |s: &String| if s.is_empty() { "unknown".to_string() } else { s.clone() };
    let budget = e.budget_bytes.map_or("unknown".to_string(), size);
    vec![
        ("Code", or_unknown(&e.code)),
        ("Transport, binding", format!("{}, {}", or_unknown(&e.transport), or_unknown(&e.binding))),
        ("File", format!("{}, written before it is measured", size(e.file_bytes))),
        ("Rounds", format!("{} of {} s, rungs in turns; median (least – most)", e.rounds, e.round_seconds)),
        ("Drive", format!("{}; {}", or_unknown(&e.drive), or_unknown(&e.filesystem))),
        ("Machine", format!("{}, {} cores, {}", or_unknown(&e.cpu), e.cores, size(e.memory_bytes))),
        ("Memory budget", budget),
        ("Kernel", or_unknown(&e.kernel)),
        ("Placement", or_unknown(&e.placement)),
        ("Version", format!("{}, {}", or_unknown(&e.version), or_unknown(&e.fio))),
        ("Date", or_unknown(&e.date)),
    ]
}

/// What the rungs are and what is meant by the columns.
const LEGEND: [&str; 4] = [
    "raw: a written file on the device, without Holdfast. pass: the same file through a FUSE filesystem that only passes \
     requests on, the most any design can reach on this path. mount: Holdfast.",
    "device-written: a write counts when the devices have the bytes. fdatasync: when it is flushed to stable media. none: \
     reads, or writes that may still be in memory.",
    "No percentage is given where depth, engine or durability differ between two rungs, nor for reads of a file that fits the mount's memory.",
    "CPU: time of fio and the serving process per operation on the mount. Waiting: part of the time some task, fio's own \
     included, waited for a CPU. Flagged: rounds in which others used the CPU; they count.",
];

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{} GiB", number(b as f64 / (1u64 << 30) as f64)),
        b => format!("{} MiB", number(b as f64 / (1u64 << 20) as f64)),
    }
}

/// Three significant digits or whole numbers, thousands set apart: `0.52`, `41.3`, `12 345`.
fn number(x: f64) -> String {
    if x < 10.0 {
        let text = format!("{x:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    if x < 100.0 {
        let text = format!("{x:.1}");
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    let digits = format!("{x:.0}");
    let first = digits.len() % 3;
    let groups = std::iter::once(&digits[..first]).chain((first..digits.len()).step_by(3).map(|i| &digits[i..i + 3]));
    groups.filter(|g| !g.is_empty()).collect::<Vec<_>>().join("\u{202f}")
}

fn median(stats: &Option<Stats>) -> String {
    stats.map_or("–".into(), |s| number(s.median))
}

fn with_range(stats: &Option<Stats>) -> String {
    stats.map_or("–".into(), |s| format!("{} ({} – {})", number(s.median), number(s.min), number(s.max)))
}

fn optional(x: Option<f64>, unit: &str) -> String {
    x.map_or("–".into(), |x| format!("{}{unit}", number(x)))
}

fn rounds(flagged: &[u32]) -> String {
    match flagged {
        [] => "–".into(),
        some => some.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let read = [0.5, 9.0, 41.25, 99.96, 456.4, 12345.0, 1234567.0].map(number);
        assert_eq!(read, ["0.5", "9", "41.2", "100", "456", "12\u{202f}345", "1\u{202f}234\u{202f}567"]);
        assert_eq!((size(256 << 20), size(4 << 30)), ("256 MiB".into(), "4 GiB".into()));
    }
}
