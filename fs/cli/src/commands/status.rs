//! `holdfast status`: as a table for people, as JSON for programs. The JSON is made by the running process.

use crate::admin::client::Client;
use crate::args::Status;
use serde_json::Value;

pub async fn run(args: Status) -> anyhow::Result<()> {
    let status = Client::by_data(&args.data).await?.status().await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", table(&status));
    }
    Ok(())
}

/// The same facts for a reader. Absent fields show as a dash.
fn table(s: &Value) -> String {
    let mut out = String::new();
    let mut line = |k: &str, v: String| out.push_str(&format!("{k:<10} {v}\n"));
    line("health", text(&s["health"]));
    if let Some(why) = s["reasons"].as_array().filter(|r| !r.is_empty()) {
        why.iter().for_each(|w| line("", text(w)));
    }
    if let Some(warnings) = s["warnings"].as_array() {
        warnings.iter().for_each(|w| line("warning", text(w)));
    }
    line("cluster", text(&s["cluster"]));
    line("code", format!("{} (kernel {})", text(&s["code"]), text(&s["codec_kernel"])));
    line("s3", text(&s["address"]));
    line("mounts", s["mounts"].as_array().map_or("-".into(), |m| m.iter().map(text).collect::<Vec<_>>().join(" ")));
    line(
        "space",
        format!("{} used of {}, {} free for data", size(&s["space"]["used"]), size(&s["space"]["total"]), size(&s["space"]["usable_free"])),
    );
    let packs = &s["metadata"]["packs"];
    line(
        "debt",
        format!(
            "{} of small writes to pack, {} dead in packs, {} small stripes to gather",
            size(&packs["staged_bytes"]),
            size(&packs["dead_bytes"]),
            text(&packs["small_stripes"])
        ),
    );
    let copies: Vec<&Value> = s["metadata"]["log"].as_array().into_iter().flatten().collect();
    if copies.len() > 1 {
        let lag = copies.iter().filter_map(|c| c["lag_records"].as_u64()).max().unwrap_or(0);
        let whole = copies.iter().filter(|c| c["role"] == "copy").count();
        line("log", format!("{whole} copies on {} devices, {lag} records behind", copies.len()));
    }
    if s["debt"]["worn_bytes"].as_u64().is_some_and(|b| b > 0)
        || s["debt"]["cleaning_bytes"].as_u64().is_some_and(|b| b > 0)
        || s["debt"]["deleting"].as_u64().is_some_and(|n| n > 0)
    {
        line(
            "",
            format!(
                "{} dead in stripes partly alive, {} to be moved by cleaning, {} stripes and files to be deleted",
                size(&s["debt"]["worn_bytes"]),
                size(&s["debt"]["cleaning_bytes"]),
                text(&s["debt"]["deleting"])
            ),
        );
    }
    line("repair", repair_line(&s["repair"]));
    line("scrub", scrub_line(&s["scrub"]));
    out.push('\n');
    out.push_str(&osd_table(s));
    out.push('\n');
    out.push_str(&super::fs::table(&s["buckets"]));
    out.push_str(&format!("\n{:<14} {:<20} {:>8}\n", "SESSION", "CLIENT", "GRANTS"));
    for x in s["sessions"].as_array().into_iter().flatten() {
        out.push_str(&format!("{:<14} {:<20} {:>8}\n", text(&x["id"]), text(&x["client"]), text(&x["grants"])));
    }
    out
}

fn text(v: &Value) -> String {
    match v {
        Value::String(t) => t.clone(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    }
}

fn size(v: &Value) -> String {
    v.as_u64().map_or("-".to_string(), human)
}

/// A line for each OSD, and why it is not simply up.
pub fn osd_table(s: &Value) -> String {
    let mut out = String::new();
    out.push_str(&format!("{:<8} {:<10} {:>10} {:>10}  {}\n", "OSD", "STATE", "USED", "FREE", "PATH"));
    for o in s["osds"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "{:<8} {:<10} {:>10} {:>10}  {}\n",
            text(&o["id"]),
            text(&o["state"]),
            size(&o["used"]),
            size(&o["free"]),
            text(&o["path"])
        ));
        if let Some(why) = o["why"].as_str() {
            out.push_str(&format!("         {why}\n"));
        }
    }
    out
}

/// How far repair is: what waits, how fast it goes, and until when.
fn repair_line(r: &Value) -> String {
    let n = |k: &str| r[k].as_u64().unwrap_or(0);
    let state = r["state"].as_str().unwrap_or("-");
    let mut line = state.to_string();
    if state == "walking" {
        line += &format!(", {} of about {} stripes looked at", n("walked"), n("walk_total"));
    }
    if n("queued") > 0 {
        line += &format!(", {} stripes ({}) to go, {}/s", n("queued"), human(n("queued_bytes")), human(n("rate_bytes_s")));
    }
    if let Some(eta) = r["eta_s"].as_u64() {
        line += &format!(", about {eta} s");
    }
    if n("waiting") > 0 {
        line += &format!(", {} wait for an OSD", n("waiting"));
    }
    if n("repaired_stripes") > 0 {
        line += &format!("; since the start {} stripes ({})", n("repaired_stripes"), human(n("repaired_bytes")));
    }
    line
}

/// The scrub that runs, or the last that ended.
pub fn scrub_line(s: &Value) -> String {
    let running = &s["running"];
    if let Some(depth) = running["depth"].as_str() {
        let n = |k: &str| running[k].as_u64().unwrap_or(0);
        return format!("{depth}: {} of about {} stripes, {} read, {} faults", n("stripes"), s["total"], human(n("bytes")), n("faults"));
    }
    let last = |k: &str| {
        s[k]["faults"].as_u64().map(|f| format!("{k} {} stripes, {f} faults, ended {}", s[k]["stripes"], when(&s[k]["ended_ns"])))
    };
    match (last("deep"), last("light")) {
        (None, None) => "none yet".into(),
        (deep, light) => [deep, light].into_iter().flatten().collect::<Vec<_>>().join("; last "),
    }
}

/// A moment, as seconds since 1970: any tool makes a date of it.
fn when(ns: &Value) -> String {
    format!("@{}", ns.as_u64().unwrap_or(0) / 1_000_000_000)
}

pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_each_osd_and_its_trouble() {
        let s = serde_json::json!({"health": "degraded", "osds": [{"id": "osd.1", "state": "lost", "path": "/d/osd.1", "why": "folder is empty"}]});
        let t = table(&s);
        assert!(t.contains("degraded") && t.contains("osd.1") && t.contains("folder is empty"), "{t}");
        assert_eq!(human(3 << 29), "1.5 GiB");
    }
}
