//! `results.json`: what was measured and where. The only thing a report is drawn from.
//!
//! What always holds: a percentage is there only between rungs of equal depth, engine and durability.
//! What it leaves out: how it looks (`draw`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub environment: Environment,
    pub rows: Vec<Row>,
}

/// Where and how it was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub kernel: String,
    pub cpu: String,
    pub cores: u32,
    pub memory_bytes: u64,
    /// Device below the data folder: name, model, size, scheduler.
    pub drive: String,
    /// Filesystem below the data folder.
    pub filesystem: String,
    pub transport: String,
    pub binding: String,
    pub code: String,
    /// The product's byte budget, if known.
    pub budget_bytes: Option<u64>,
    /// Bytes of the file (or of all files) of each job, the same on every rung.
    pub file_bytes: u64,
    pub rounds: u32,
    /// Measured time of one run.
    pub round_seconds: u32,
    pub quick: bool,
    /// UTC, ISO 8601.
    pub date: String,
    pub version: String,
    pub fio: String,
    /// Where fio and the daemons ran; `unpinned`: as the scheduler chose.
    pub placement: String,
    /// The raw rung was not on the device of the data: nothing is compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_device: bool,
    /// What a reader must know to read the rows right, and what failed.
    pub notes: Vec<String>,
}

/// One job on all rungs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub job: String,
    pub unit: String,
    /// Requests in flight.
    pub depth: u32,
    pub engine: String,
    /// What the mount had promised when an operation counted.
    pub durability: Durability,
    /// A written file on the device, without us.
    pub raw: Option<Stats>,
    /// The same file through a FUSE passthrough.
    pub pass: Option<Stats>,
    pub mount: Option<Stats>,
    /// Median of the mount over median of raw.
    pub percent: Option<f64>,
    /// Median of the mount over median of the passthrough.
    pub percent_of_pass: Option<f64>,
    /// CPU time of fio and the daemon per operation on the mount, µs, median of the rounds.
    pub cpu_us_per_op: Option<f64>,
    /// Load average (1 minute) as the runs began, median.
    pub load: f64,
    /// Part of the time some task waited for a CPU (PSI `some`), percent, median of the runs; fio's own are among them.
    pub cpu_pressure: Option<f64>,
    /// Rounds, from 1, in which others took CPU time away. They count; this says how far to trust them.
    pub flagged_rounds: Vec<u32>,
}

/// Of the rounds, in the row's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Stats {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Stats> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Stats { median: tenth(median(&sorted)), min: tenth(min), max: tenth(max) })
    }
}

fn median(sorted: &[f64]) -> f64 {
    let mid = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[mid] } else { (sorted[mid - 1] + sorted[mid]) / 2.0 }
}

/// Median rounded to a tenth; `None` without values.
pub fn median_of(values: &[f64]) -> Option<f64> {
    Stats::of(values).map(|s| s.median)
}

fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

/// What has to be equal for two runs to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    pub depth: u32,
    pub engine: String,
    pub durability: Durability,
}

/// `of` in percent of `base`; `None` where their conditions differ, or one is missing.
pub fn percent(of: Option<(&Stats, &Conditions)>, base: Option<(&Stats, &Conditions)>) -> Option<f64> {
    let ((of, here), (base, there)) = (of?, base?);
    (here == there && base.median > 0.0).then(|| tenth(of.median / base.median * 100.0))
}

/// What is certain about a write when it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing (buffered writes), or nothing to ask (reads).
    None,
    /// The devices have it; their caches are not flushed.
    DeviceWritten,
    /// It is on stable media.
    Fdatasync,
}

impl Durability {
    /// What a job's fio options give on a filesystem that keeps its promises.
    pub fn of_options<'a>(option: impl Fn(&str) -> Option<&'a str>) -> Durability {
        let on = |key| option(key).is_some_and(|v| v != "0");
        // A sync after every second write leaves the first in doubt.
        let each = |key| option(key) == Some("1");
        match () {
            _ if !option("rw").unwrap_or("read").contains("write") => Durability::None,
            _ if each("fdatasync") || each("fsync") || on("sync") && option("sync") != Some("none") => Durability::Fdatasync,
            _ if on("direct") => Durability::DeviceWritten,
            _ => Durability::None,
        }
    }

    /// The same on the filesystem it ran on: one that lives in memory promises nothing.
    pub fn on(self, filesystem: &str) -> Durability {
        if matches!(filesystem, "tmpfs" | "ramfs") { Durability::None } else { self }
    }
}

const NAMES: [(Durability, &str); 3] =
    [(Durability::None, "none"), (Durability::DeviceWritten, "device-written"), (Durability::Fdatasync, "fdatasync")];

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(d, _)| d == self).map_or("", |(_, n)| n))
    }
}

impl FromStr for Durability {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, n)| *n == s).map(|(d, _)| *d);
        found.ok_or_else(|| format!("'{s}' is not a durability: none, device-written or fdatasync"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_are_median_and_range() {
        assert_eq!(Stats::of(&[3.0, 1.0, 2.04]), Some(Stats { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Stats::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Stats::of(&[]), None);
    }

    #[test]
    fn a_percentage_needs_equal_depth_engine_and_durability() {
        let stats = |median| Stats { median, min: median, max: median };
        let same = Conditions { depth: 1, engine: "psync".into(), durability: Durability::DeviceWritten };
        let (ours, raw) = (stats(75.0), stats(100.0));
        let of = |c: Conditions| percent(Some((&ours, &c)), Some((&raw, &same)));
        assert_eq!(of(same.clone()), Some(75.0));
        assert_eq!(of(Conditions { depth: 32, ..same.clone() }), None);
        assert_eq!(of(Conditions { engine: "libaio".into(), ..same.clone() }), None);
        assert_eq!(of(Conditions { durability: Durability::None, ..same.clone() }), None);
        assert_eq!(percent(None, Some((&raw, &same))), None);
        assert_eq!(percent(Some((&ours, &same)), Some((&stats(0.0), &same))), None);
    }

    #[test]
    fn durability_is_what_the_options_give() {
        let of = |options: &'static [(&str, &str)]| Durability::of_options(|k| options.iter().find(|(o, _)| *o == k).map(|(_, v)| *v));
        assert_eq!(of(&[("rw", "write"), ("direct", "1")]), Durability::DeviceWritten);
        assert_eq!(of(&[("rw", "randwrite"), ("direct", "1"), ("fdatasync", "1")]), Durability::Fdatasync);
        assert_eq!(of(&[("rw", "randwrite"), ("direct", "1"), ("fdatasync", "8")]), Durability::DeviceWritten);
        assert_eq!(of(&[("rw", "randwrite"), ("fsync", "1")]), Durability::Fdatasync);
        assert_eq!(of(&[("rw", "randwrite"), ("sync", "dsync")]), Durability::Fdatasync);
        assert_eq!(of(&[("rw", "randwrite")]), Durability::None);
        assert_eq!(of(&[("rw", "randread"), ("direct", "1"), ("fdatasync", "1")]), Durability::None);
        assert_eq!(Durability::Fdatasync.on("tmpfs"), Durability::None);
        assert_eq!(Durability::Fdatasync.on("ext4"), Durability::Fdatasync);
        for (durability, name) in NAMES {
            assert_eq!(name.parse(), Ok(durability));
            assert_eq!(serde_json::to_string(&durability).unwrap(), format!("\"{name}\""));
        }
    }
}
