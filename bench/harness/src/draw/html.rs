//! `report.html`: one file, bars as inline SVG, readable in light and dark.

use super::{LEGEND, facts, number, optional, rounds, with_range};
use crate::results::{Results, Row, Stats};
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1f23;--soft:#5b6470;--line:#d9dde2;--page:#fff;--raw:#9aa4b1;--pass:#5f8fbf;--mount:#0b7a5b}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4b1;--line:#363c44;--page:#15181c;--raw:#6d7784;--pass:#6fa3d8;--mount:#37b98f}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:2rem auto;max-width:60rem;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.05rem;margin:1.6rem 0 .2rem}p{color:var(--soft);margin:.3rem 0}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:1rem 0}dt{color:var(--soft)}dd{margin:0}\
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .soft{fill:var(--soft)}\
.raw{fill:var(--raw)}.pass{fill:var(--pass)}.mount{fill:var(--mount)}.range{stroke:var(--ink);stroke-width:1.5}\
.ceiling{stroke:var(--soft);stroke-dasharray:4 3}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;white-space:nowrap}\
th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:right}th:nth-child(-n+4),td:nth-child(-n+4){text-align:left}";

/// Drawing units.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 60.0;
/// Room on the right for a figure and its percentage.
const RIGHT: f64 = 280.0;
const BAR: f64 = 20.0;
const STEP: f64 = 27.0;

pub fn html(results: &Results) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
    let _ = writeln!(out, "<title>Holdfast beside its ceilings</title>\n<style>{STYLE}</style>");
    out += "<h1>Holdfast beside its ceilings</h1>\n<dl>\n";
    for (label, text) in facts(&results.environment) {
        let _ = writeln!(out, "<dt>{label}</dt><dd>{}</dd>", escape(&text));
    }
    out += "</dl>\n";
    LEGEND.iter().for_each(|line| out += &format!("<p>{line}</p>\n"));
    results.rows.iter().for_each(|row| out += &chart(row));
    out += "<h2>All figures</h2>\n";
    out += &table(results);
    if !results.environment.notes.is_empty() {
        out += "<h2>Notes</h2>\n<ul>\n";
        results.environment.notes.iter().for_each(|n| out += &format!("<li>{}</li>\n", escape(n)));
        out += "</ul>\n";
    }
    out + "</html>\n"
}

/// Three bars with their ranges, and a dashed line at the median of raw.
fn chart(row: &Row) -> String {
    let rungs = [("raw", &row.raw, String::new()), ("pass", &row.pass, String::new()), ("mount", &row.mount, compared(row))];
    let most = rungs.iter().filter_map(|(_, s, _)| s.as_ref()).map(|s| s.max).fold(0.0, f64::max);
    let x = |value: f64| LEFT + if most > 0.0 { value / most * (WIDTH - LEFT - RIGHT) } else { 0.0 };
    let height = STEP * rungs.len() as f64;
    let mut out = format!("<h2>{}</h2>\n<p>{}, depth {}, ", escape(&row.job), escape(&row.unit), row.depth);
    let _ = writeln!(out, "{}, durability: {}</p>", escape(&row.engine), row.durability);
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}: raw {}, pass {}, mount {}\">",
        escape(&row.job),
        with_range(&row.raw),
        with_range(&row.pass),
        with_range(&row.mount)
    );
    for (i, (name, stats, percent)) in rungs.iter().enumerate() {
        let top = i as f64 * STEP + (STEP - BAR) / 2.0;
        let middle = top + BAR / 2.0;
        let base = middle + 4.5;
        let _ = writeln!(out, "<text class=\"soft\" x=\"0\" y=\"{base:.1}\">{name}</text>");
        let Some(Stats { median, min, max }) = **stats else {
            let _ = writeln!(out, "<text class=\"soft\" x=\"{LEFT}\" y=\"{base:.1}\">not measured</text>");
            continue;
        };
        let width = x(median) - LEFT;
        let _ = writeln!(out, "<rect class=\"{name}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>");
        for (x1, x2, y1, y2) in
            [(x(min), x(max), middle, middle), (x(min), x(min), middle - 4.0, middle + 4.0), (x(max), x(max), middle - 4.0, middle + 4.0)]
        {
            let _ = writeln!(out, "<line class=\"range\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>");
        }
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{base:.1}\">{}{percent}</text>", WIDTH - RIGHT + 12.0, number(median));
    }
    if let Some(raw) = &row.raw {
        let at = x(raw.median);
        let _ = writeln!(out, "<line class=\"ceiling\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{height}\"/>");
    }
    out + "</svg>\n"
}

fn compared(row: &Row) -> String {
    match (row.percent, row.percent_of_pass) {
        (Some(raw), Some(pass)) => format!(" · {} % of raw, {} % of pass", number(raw), number(pass)),
        (Some(raw), None) => format!(" · {} % of raw", number(raw)),
        (None, Some(pass)) => format!(" · {} % of pass", number(pass)),
        (None, None) => String::new(),
    }
}

fn table(results: &Results) -> String {
    let head = [
        "job",
        "durability",
        "depth, engine",
        "unit",
        "raw",
        "pass",
        "mount",
        "% of raw",
        "% of pass",
        "CPU µs/op",
        "load",
        "waiting",
        "flagged",
    ];
    let mut out = String::from("<div class=\"scroll\"><table>\n<tr>");
    head.iter().for_each(|h| out += &format!("<th>{h}</th>"));
    out += "</tr>\n";
    for r in &results.rows {
        let cells = [
            escape(&r.job),
            r.durability.to_string(),
            escape(&format!("{}, {}", r.depth, r.engine)),
            escape(&r.unit),
            with_range(&r.raw),
            with_range(&r.pass),
            with_range(&r.mount),
            optional(r.percent, " %"),
            optional(r.percent_of_pass, " %"),
            optional(r.cpu_us_per_op, ""),
            format!("{:.1}", r.load),
            optional(r.cpu_pressure, " %"),
            rounds(&r.flagged_rounds),
        ];
        out += "<tr>";
        cells.iter().for_each(|c| out += &format!("<td>{c}</td>"));
        out += "</tr>\n";
    }
    out + "</table></div>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
