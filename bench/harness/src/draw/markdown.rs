//! `report.md`.

use super::{LEGEND, facts, optional, rounds, with_range};
use crate::results::Results;
use std::fmt::Write;

pub fn markdown(results: &Results) -> String {
    let mut out = String::from("# Holdfast beside its ceilings\n\n");
    for (label, text) in facts(&results.environment) {
        let _ = writeln!(out, "- **{label}**: {}", escape(&text));
    }
    out += "\n| job | durability | depth, engine | unit | raw | pass | mount | % of raw | % of pass | CPU µs/op | load | waiting | flagged |\n";
    out += "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for r in &results.rows {
        let _ = writeln!(
            out,
            "| {} | {} | {}, {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {} | {} |",
            escape(&r.job),
            r.durability,
            r.depth,
            escape(&r.engine),
            escape(&r.unit),
            with_range(&r.raw),
            with_range(&r.pass),
            with_range(&r.mount),
            optional(r.percent, " %"),
            optional(r.percent_of_pass, " %"),
            optional(r.cpu_us_per_op, ""),
            r.load,
            optional(r.cpu_pressure, " %"),
            rounds(&r.flagged_rounds),
        );
    }
    out += "\n";
    for line in LEGEND {
        let _ = writeln!(out, "{line}\n");
    }
    if !results.environment.notes.is_empty() {
        out += "## Notes\n\n";
        for note in &results.environment.notes {
            let _ = writeln!(out, "- {}", escape(note));
        }
    }
    out
}

/// What would break a table or start markup.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
