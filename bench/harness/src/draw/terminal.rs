//! The table printed at the end of a run.

use super::{median, optional, rounds};
use crate::results::Results;

/// Aligned columns, one line per job, then the notes.
pub fn terminal(results: &Results) -> String {
    let head = ["job", "durability", "unit", "raw", "pass", "mount", "% raw", "% pass", "CPU µs/op", "load", "waiting", "flagged"];
    let mut table = vec![head.map(String::from)];
    table.extend(results.rows.iter().map(|r| {
        [
            r.job.clone(),
            r.durability.to_string(),
            r.unit.clone(),
            median(&r.raw),
            median(&r.pass),
            median(&r.mount),
            optional(r.percent, ""),
            optional(r.percent_of_pass, ""),
            optional(r.cpu_us_per_op, ""),
            format!("{:.1}", r.load),
            optional(r.cpu_pressure, " %"),
            rounds(&r.flagged_rounds),
        ]
    }));
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &table {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Words to the left, figures to the right.
            let pad = " ".repeat(width - cell.chars().count());
            text += &if column < 3 { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    results.environment.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}
