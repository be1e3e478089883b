//! One job on all rungs, in turns.
//!
//! What always holds: every round visits every rung once, and the one that begins changes from round to round, so that
//! a drift of the machine falls on all alike. A rung that fails once in a job has no figure in it.
//! What it leaves out: choosing jobs, and drawing.

use crate::fio::{Fio, Run};
use crate::job::Job;
use crate::pressure::{Pressure, Snapshot};
use crate::results::{Conditions, Row, Stats, median_of, percent};
use std::fmt;
use std::path::{Path, PathBuf};

/// What a job runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// A file on the device's filesystem.
    Raw,
    /// The same file, through a FUSE passthrough.
    Pass,
    /// The product.
    Mount,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rung::Raw => "raw",
            Rung::Pass => "pass",
            Rung::Mount => "mount",
        })
    }
}

/// A rung and its folder.
pub struct Place {
    pub rung: Rung,
    pub dir: PathBuf,
    /// Filesystem whose promises count: for the passthrough that below it.
    pub fstype: String,
}

/// What is the same for all jobs.
pub struct Ladder<'a> {
    pub fio: &'a Fio,
    pub places: &'a [Place],
    pub work: &'a Path,
    pub file_bytes: u64,
    pub rounds: u32,
    pub seconds: u32,
    pub cores: u32,
    pub daemon_pid: Option<u32>,
}

struct Sample {
    rung: Rung,
    round: u32,
    run: Run,
    pressure: Pressure,
}

/// Which rung comes when: (round from 1, index into `rungs`).
pub fn turns(rounds: u32, rungs: usize) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| (0..rungs).map(move |i| (round + 1, (round as usize + i) % rungs)))
}

impl Ladder<'_> {
    /// Runs `job`; the row, and a sentence for each rung that failed. `say` is told each figure as it comes.
    pub fn climb(&self, job: &Job, say: &mut dyn FnMut(&str)) -> (Row, Vec<String>) {
        let text = job.sized(self.file_bytes, self.seconds);
        let mut failed: Vec<(Rung, String)> = Vec::new();
        for place in self.places.iter().filter(|p| p.rung != Rung::Pass) {
            if let Err(e) = self.fio.prepare(job, &text, self.file_bytes, &place.dir, self.work) {
                failed.push((place.rung, format!("{}: {} failed: {e:#}", job.name, place.rung)));
                // The passthrough serves the same file.
                if place.rung == Rung::Raw {
                    failed.push((Rung::Pass, format!("{}: pass has no file to run on", job.name)));
                }
            }
        }

        let mut samples = Vec::new();
        for (round, i) in turns(self.rounds, self.places.len()) {
            let place = &self.places[i];
            if self.fio.stopped() || failed.iter().any(|(rung, _)| *rung == place.rung) {
                continue;
            }
            let before = Snapshot::take(self.daemon_pid);
            let result = self.fio.run(job, &text, self.seconds, &place.dir, self.work);
            let pressure = before.until(&Snapshot::take(self.daemon_pid), self.cores);
            match result {
                Ok(mut run) => {
                    run.conditions.durability = run.conditions.durability.on(&place.fstype);
                    let flag = if pressure.flagged { ", others used the CPU" } else { "" };
                    say(&format!("round {round}/{} {}: {:.0} {}{flag}", self.rounds, place.rung, run.rate, job.unit));
                    samples.push(Sample { rung: place.rung, round, run, pressure });
                }
                Err(e) => {
                    say(&format!("round {round}/{} {}: failed: {e:#}", self.rounds, place.rung));
                    failed.push((place.rung, format!("{}: {} failed in round {round}: {e:#}", job.name, place.rung)));
                }
            }
        }
        for place in self.places {
            remove_files(&place.dir);
        }
        samples.retain(|s| failed.iter().all(|(rung, _)| *rung != s.rung));
        (row(job, &samples), failed.into_iter().map(|(_, why)| why).collect())
    }
}

fn row(job: &Job, samples: &[Sample]) -> Row {
    let on = |rung| samples.iter().filter(move |s| s.rung == rung);
    let stats = |rung| Stats::of(&on(rung).map(|s| s.run.rate).collect::<Vec<_>>());
    let conditions = |rung| on(rung).map(|s| &s.run.conditions).next();
    let (raw, pass, mount) = (stats(Rung::Raw), stats(Rung::Pass), stats(Rung::Mount));
    let side = |stats: &Option<Stats>, rung| stats.zip(conditions(rung));
    let compare = |a: Option<(Stats, &Conditions)>, b: Option<(Stats, &Conditions)>| {
        percent(a.as_ref().map(|(s, c)| (s, *c)), b.as_ref().map(|(s, c)| (s, *c)))
    };
    let ours = side(&mount, Rung::Mount);

    let per_op = on(Rung::Mount).map(|s| Some((s.run.cpu_us + s.pressure.daemon_us?) / s.run.ops as f64));
    let as_asked = Conditions { depth: job.depth, engine: job.engine.clone(), durability: job.durability };
    let shown = ours.map(|(_, c)| c).or(conditions(Rung::Raw)).unwrap_or(&as_asked);
    let mut flagged: Vec<u32> = samples.iter().filter(|s| s.pressure.flagged).map(|s| s.round).collect();
    flagged.dedup();
    let waiting: Vec<f64> = samples.iter().filter_map(|s| s.pressure.waiting_percent).collect();
    let load: Vec<f64> = samples.iter().map(|s| s.pressure.load).collect();
    Row {
        job: job.name.clone(),
        unit: job.unit.into(),
        depth: shown.depth,
        engine: shown.engine.clone(),
        durability: shown.durability,
        percent: compare(ours, side(&raw, Rung::Raw)),
        percent_of_pass: compare(ours, side(&pass, Rung::Pass)),
        raw,
        pass,
        mount,
        cpu_us_per_op: per_op.collect::<Option<Vec<f64>>>().and_then(|v| median_of(&v)),
        load: median_of(&load).unwrap_or(0.0),
        cpu_pressure: median_of(&waiting),
        flagged_rounds: flagged,
    }
}

/// Removes fio's files, so that the next job begins with freshly written ones.
fn remove_files(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Durability;

    #[test]
    fn every_round_visits_every_rung_and_each_begins_in_turn() {
        let order: Vec<_> = turns(3, 3).collect();
        assert_eq!(order, [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 0), (3, 2), (3, 0), (3, 1)]);
        assert_eq!(turns(2, 2).collect::<Vec<_>>(), [(1, 0), (1, 1), (2, 1), (2, 0)]);
    }

    fn sample(rung: Rung, round: u32, rate: f64, durability: Durability) -> Sample {
        let conditions = Conditions { depth: 1, engine: "psync".into(), durability };
        let run = Run { rate, ops: 1000, cpu_us: 20_000.0, conditions };
        let flagged = round == 2 && rung != Rung::Raw;
        let pressure = Pressure { load: 1.0, waiting_percent: Some(5.0), daemon_us: Some(10_000.0), flagged };
        Sample { rung, round, run, pressure }
    }

    fn job() -> Job {
        crate::job::embedded().into_iter().find(|j| j.name == "randwrite-qd1").unwrap()
    }

    #[test]
    fn a_row_compares_medians_and_names_flagged_rounds() {
        let mut samples = Vec::new();
        for (round, slow) in [(1, 1.0), (2, 0.5), (3, 1.0)] {
            for (rung, rate) in [(Rung::Raw, 1000.0), (Rung::Pass, 800.0), (Rung::Mount, 600.0)] {
                samples.push(sample(rung, round, rate * slow, Durability::DeviceWritten));
            }
        }
        let row = row(&job(), &samples);
        assert_eq!((row.percent, row.percent_of_pass), (Some(60.0), Some(75.0)));
        assert_eq!(row.mount, Some(Stats { median: 600.0, min: 300.0, max: 600.0 }));
        assert_eq!((row.cpu_us_per_op, row.cpu_pressure), (Some(30.0), Some(5.0)));
        assert_eq!(row.flagged_rounds, [2]);
    }

    #[test]
    fn a_rung_that_promises_less_or_is_missing_gets_no_percentage() {
        let raw = sample(Rung::Raw, 1, 1000.0, Durability::None);
        let ours = sample(Rung::Mount, 1, 900.0, Durability::DeviceWritten);
        let row = row(&job(), &[raw, ours]);
        assert_eq!((row.percent, row.percent_of_pass, row.pass), (None, None, None));
        assert_eq!(row.durability, Durability::DeviceWritten);
        assert!(row.raw.is_some() && row.mount.is_some());
        let alone = super::row(&job(), &[]);
        assert_eq!((alone.mount, alone.percent, alone.cpu_us_per_op), (None, None, None));
    }
}
