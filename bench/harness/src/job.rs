//! A fio job file: one claim, what it measures, and the same file at another size.
//!
//! What always holds: a job has a `[prepare]` section that writes its file and one measured section named as the file;
//! the durability its comment claims is the one its options give, else it is refused.
//! What it leaves out: fio options that do not matter for comparing; fio itself judges them.

use crate::results::Durability;
use anyhow::{Context, bail, ensure};
use std::collections::HashMap;
use std::path::Path;

/// One job file.
#[derive(Debug, Clone)]
pub struct Job {
    /// The file's name without `.fio`, and the name of its measured section.
    pub name: String,
    /// The sentence after `; Claim:`.
    pub claim: String,
    pub durability: Durability,
    /// Whether the measured section reads.
    pub reads: bool,
    /// `MiB/s` for blocks of 64 KiB and more, else `IOPS`.
    pub unit: &'static str,
    /// Jobs that run at once, each on a file of its own size.
    pub jobs: u32,
    /// Requests in flight over all jobs.
    pub depth: u32,
    pub engine: String,
    text: String,
}

/// The section that writes the file and is never measured.
pub const PREPARE: &str = "prepare";

macro_rules! embed {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../fio-jobs/", $name, ".fio")))),*]
    };
}

/// The job files of the repository, in the order they run: sequential first, so that a report reads top down.
static EMBEDDED: &[(&str, &str)] = embed![
    "seq-write",
    "seq-write-fdatasync",
    "seq-read",
    "randwrite-qd1",
    "randwrite-qd1-fdatasync",
    "randwrite-qd32",
    "randwrite-qd32-fdatasync",
    "randread-qd1",
    "randread-qd32",
];

/// The jobs built into this program.
pub fn embedded() -> Vec<Job> {
    EMBEDDED.iter().map(|(name, text)| Job::parse(name, text).expect("tests parse every embedded job")).collect()
}

/// Every `*.fio` of a folder, by name.
pub fn in_dir(dir: &Path) -> anyhow::Result<Vec<Job>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read the job folder {}", dir.display()))?;
    let mut jobs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "fio") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            jobs.push(Job::parse(&name, &text)?);
        }
    }
    ensure!(!jobs.is_empty(), "{} holds no .fio file", dir.display());
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(jobs)
}

impl Job {
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Job> {
        let comment = |key: &str| {
            let lines = text.lines().filter_map(|l| l.strip_prefix(';'));
            lines.filter_map(|l| l.trim().strip_prefix(key)).map(|v| v.trim().to_string()).next()
        };
        let claim = comment("Claim:").with_context(|| format!("{name}.fio has no '; Claim:' line"))?;
        let said = comment("durability=").with_context(|| format!("{name}.fio has no '; durability=' line"))?;
        let durability: Durability = said.parse().map_err(|e| anyhow::anyhow!("{name}.fio: {e}"))?;

        let sections = sections(text);
        ensure!(sections.iter().any(|(s, _)| s == PREPARE), "{name}.fio has no [{PREPARE}] section");
        let mut options = HashMap::new();
        for (section, set) in &sections {
            if section == "global" || section == name {
                options.extend(set.iter().map(|(k, v)| (k.as_str(), v.as_str())));
            }
        }
        let Some((_, measured)) = sections.iter().find(|(s, _)| s == name) else {
            bail!("{name}.fio has no [{name}] section, the one that is measured");
        };
        for key in ["size", "runtime", "rw", "bs"] {
            ensure!(options.contains_key(key), "{name}.fio does not set {key}");
        }
        ensure!(options.contains_key("time_based"), "{name}.fio is not time_based");
        ensure!(measured.iter().any(|(k, _)| k == "stonewall"), "{name}.fio: [{name}] does not wait for [{PREPARE}]");

        let number = |key: &str| options.get(key).map_or(Ok(1u32), |v| v.parse());
        let jobs = number("numjobs").with_context(|| format!("{name}.fio: numjobs"))?;
        let each = number("iodepth").with_context(|| format!("{name}.fio: iodepth"))?;
        let depth = jobs.checked_mul(each).filter(|d| *d > 0).with_context(|| format!("{name}.fio: numjobs or iodepth cannot be"))?;
        let reads = options["rw"].contains("read");
        let real = Durability::of_options(|key| options.get(key).copied());
        ensure!(real == durability, "{name}.fio claims durability={durability}, but its options give {real}");
        let engine = options.get("ioengine").unwrap_or(&"psync").to_string();
        let unit = if bytes(options["bs"])? >= 64 << 10 { "MiB/s" } else { "IOPS" };
        Ok(Job { name: name.into(), claim, durability, reads, unit, jobs, depth, engine, text: text.into() })
    }

    /// The job file with its files together `total` bytes large and a measured time of `seconds`.
    pub fn sized(&self, total: u64, seconds: u32) -> String {
        // Whole MiB, as the largest block is.
        let each = (total / self.jobs as u64) >> 20 << 20;
        let lines = self.text.lines().map(|line| match line.split_once('=').map(|(k, _)| k.trim()) {
            Some("size") => format!("size={each}"),
            Some("runtime") => format!("runtime={seconds}"),
            _ => line.to_string(),
        });
        lines.map(|l| l + "\n").collect()
    }
}

type Section = (String, Vec<(String, String)>);

fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with([';', '#'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            sections.push((name.to_string(), Vec::new()));
        } else if let Some((_, options)) = sections.last_mut() {
            let (key, value) = line.split_once('=').unwrap_or((line, "1"));
            options.push((key.trim().to_string(), value.trim().to_string()));
        }
    }
    sections
}

/// fio's sizes: a number with k, m or g, all binary.
fn bytes(text: &str) -> anyhow::Result<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => bail!("'{text}' is not a size"),
    };
    let number: u64 = number.parse().with_context(|| format!("'{text}' is not a size"))?;
    number.checked_mul(1 << shift).with_context(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_job_is_sound_and_every_job_file_is_embedded() {
        let jobs = embedded();
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fio-jobs");
        let mut on_disk: Vec<String> = in_dir(&dir).unwrap().into_iter().map(|j| j.name).collect();
        let mut names: Vec<String> = jobs.iter().map(|j| j.name.clone()).collect();
        names.sort();
        on_disk.sort();
        assert_eq!(names, on_disk);
        for job in jobs {
            assert!(job.text.contains("direct=1") && job.text.contains("stats=0"), "{}", job.name);
            assert_eq!(job.depth, if job.name.contains("qd32") { 32 } else { 1 }, "{}", job.name);
            assert_eq!(job.unit == "MiB/s", job.name.starts_with("seq"), "{}", job.name);
            assert_eq!(job.reads, job.name.contains("read"));
            assert_eq!(job.durability == Durability::Fdatasync, job.name.contains("fdatasync"));
        }
    }

    #[test]
    fn a_sized_job_has_the_bytes_asked_for_in_all() {
        let jobs = embedded();
        let one = jobs.iter().find(|j| j.name == "seq-write").unwrap().sized(256 << 20, 1);
        assert!(one.contains("\nsize=268435456\n") && one.contains("\nruntime=1\n") && !one.contains("=1g"));
        let many = jobs.iter().find(|j| j.name == "randwrite-qd32-fdatasync").unwrap().sized(256 << 20, 5);
        assert!(many.contains("\nsize=8388608\n") && many.contains("\nruntime=5\n"));
    }

    #[test]
    fn a_job_that_claims_more_than_it_does_is_refused() {
        let honest = EMBEDDED.iter().find(|(n, _)| *n == "randwrite-qd1").unwrap().1;
        for (from, to, why) in [
            ("durability=device-written", "durability=fdatasync", "its options give device-written"),
            ("direct=1", "direct=0", "its options give none"),
            ("; durability=device-written", ";", "no '; durability=' line"),
            ("durability=device-written", "durability=eventually", "eventually"),
            ("[prepare]", "[layout]", "no [prepare] section"),
            ("stonewall", "", "does not wait"),
            ("time_based=1", "", "not time_based"),
        ] {
            let error = Job::parse("randwrite-qd1", &honest.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
