//! Reports from a stored results file, byte for byte. `BLESS=1 cargo test -p holdfast-bench-harness` writes them anew.

use holdfast_bench_harness::{Results, render, render_beside};

const RESULTS: &str = include_str!("golden/results.json");

#[test]
fn reports_are_the_golden_ones() {
    let rendered = render(RESULTS).unwrap();
    for (name, text) in [("report.md", &rendered.markdown), ("report.html", &rendered.html)] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        assert!(*text == std::fs::read_to_string(&path).unwrap(), "{name} is not the golden one");
    }
}

#[test]
fn a_report_loads_nothing_from_elsewhere_and_escapes_what_it_shows() {
    let html = render(RESULTS).unwrap().html;
    for outside in ["http", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("<svg"));
    assert!(html.contains("disk &lt;fast&gt; &amp; small"), "the drive's model is escaped");
}

#[test]
fn results_survive_reading_and_writing() {
    let results: Results = serde_json::from_str(RESULTS).unwrap();
    let again: serde_json::Value = serde_json::to_value(&results).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(RESULTS).unwrap());
    let row = again["rows"][0].as_object().unwrap();
    let mut keys: Vec<&str> = row.keys().map(String::as_str).collect();
    keys.sort();
    let mut want = vec![
        "job",
        "unit",
        "depth",
        "engine",
        "durability",
        "raw",
        "pass",
        "mount",
        "percent",
        "percent_of_pass",
        "cpu_us_per_op",
        "load",
        "cpu_pressure",
        "flagged_rounds",
    ];
    want.sort();
    assert_eq!(keys, want);
}

#[test]
fn a_report_can_be_drawn_again_beside_its_results() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    std::fs::write(&path, RESULTS).unwrap();
    render_beside(&path).unwrap();
    assert!(dir.path().join("report.md").exists() && dir.path().join("report.html").exists());
    std::fs::write(&path, "{}").unwrap();
    assert!(render_beside(&path).unwrap_err().to_string().contains("results.json"));
}
