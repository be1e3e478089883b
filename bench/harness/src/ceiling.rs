//! `holdfast bench ceiling`: all jobs on all rungs, then the report.
//!
//! What always holds: whatever fails is in the report and in the exit; folders and mounts made here are gone at the end.
//! What it leaves out: speed of S3 and of metadata.

use crate::fio::Fio;
use crate::job::{self, Job};
use crate::ladder::{Ladder, Place, Rung};
use crate::options::{CeilingOptions, Product};
use crate::place::{self, Scratch};
use crate::results::{Durability, Environment, Results};
use crate::{date, draw, drive, machine};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};

/// Measures and reports: progress to standard error, the table to standard output, `results.json`, `report.md` and
/// `report.html` into `out`. An error when nothing could be measured, or, after the report is written, when a rung failed.
pub fn ceiling(opts: CeilingOptions) -> anyhow::Result<()> {
    let fio = Fio::find(Path::new("fio"))?.until(opts.stop.clone());
    let jobs = match &opts.fio_jobs_dir {
        Some(dir) => job::in_dir(dir)?,
        None => job::embedded(),
    };
    place::check_mounted(&opts.mount)?;
    let beside = place::beside(&opts.data, opts.raw_dir.as_deref())?;
    let wanted = place::file_bytes_wanted(opts.quick);
    let file_bytes = place::file_bytes(wanted, machine::free_bytes(&beside)?, machine::free_bytes(&opts.mount)?)?;
    std::fs::create_dir_all(&opts.out).with_context(|| format!("cannot make {}", opts.out.display()))?;

    let (rounds, seconds) = if opts.quick { (3, 1) } else { (5, 5) };
    let environment = Environment {
        kernel: machine::kernel(),
        cpu: machine::cpu(),
        cores: machine::cores(),
        memory_bytes: machine::memory_bytes(),
        drive: drives(&opts.product, &beside)?,
        filesystem: machine::mount_of(&beside)?.fstype,
        transport: opts.product.transport.clone(),
        binding: opts.product.binding.clone(),
        code: opts.product.code.clone(),
        budget_bytes: opts.product.memory_bytes,
        file_bytes,
        rounds,
        round_seconds: seconds,
        quick: opts.quick,
        date: date::now(),
        version: opts.product.version.clone(),
        other_device: !opts.product.devices.is_empty(),
        fio: fio.version.clone(),
        placement: "unpinned".into(),
        notes: notes(&opts, file_bytes, wanted),
    };
    // Declared before the guard: the passthrough is unmounted first, then its folders go.
    let scratch = Scratch::make(&beside, &opts.mount)?;
    let _mounted = match &opts.pass_mount {
        Some(pass) => Some(pass.mount(&scratch.raw, &scratch.pass).context("cannot mount the passthrough")?),
        None => None,
    };
    let setup = Setup {
        jobs,
        raw: scratch.raw.clone(),
        pass: opts.pass_mount.is_some().then(|| scratch.pass.clone()),
        mount: scratch.mount.clone(),
        work: scratch.work.clone(),
        daemon_pid: opts.product.daemon_pid,
    };
    let (results, failures) = measure(&fio, &setup, environment, &mut |line| eprintln!("{line}"))?;
    draw::write(&results, &opts.out)?;
    print!("{}", draw::terminal(&results));
    eprintln!("report: {}", opts.out.join("report.html").display());
    ensure!(failures == 0, "{failures} of the runs failed: see the notes in {}", opts.out.join("report.md").display());
    Ok(())
}

/// The device of the data, or those of the OSDs where they lie on their own.
fn drives(product: &Product, beside: &Path) -> anyhow::Result<String> {
    if product.devices.is_empty() {
        return drive::describe(beside);
    }
    Ok(product.devices.iter().map(|d| drive::describe(d)).collect::<anyhow::Result<Vec<_>>>()?.join("; "))
}

fn notes(opts: &CeilingOptions, file_bytes: u64, wanted: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if opts.quick {
        notes.push("Quick: short rounds on a small file, to see that all works; not figures to publish.".to_string());
    }
    if file_bytes < wanted {
        notes.push(format!("The file is {} MiB instead of {}: there is no room for more.", file_bytes >> 20, wanted >> 20));
    }
    if opts.product.memory_bytes.is_some_and(|budget| file_bytes <= budget) {
        notes.push(
            "The file fits the mount's memory budget: its reads may be answered from memory, raw ones come from the device, so they get no \
             percentage."
                .to_string(),
        );
    }
    if !opts.product.devices.is_empty() {
        notes.push(
            "The OSDs lie on block devices of their own; the raw rung is a file on another filesystem, so there are no percentages."
                .to_string(),
        );
    }
    if opts.product.daemon_pid.is_none() {
        notes.push("The serving process is not known: CPU per operation is left out.".to_string());
    }
    notes.push("Random writes are bursts: they end before the log has cleaned up after them.".to_string());
    notes
}

/// Folders that are ready, and jobs to run in them.
pub struct Setup {
    pub jobs: Vec<Job>,
    pub raw: PathBuf,
    pub pass: Option<PathBuf>,
    pub mount: PathBuf,
    pub work: PathBuf,
    pub daemon_pid: Option<u32>,
}

/// Runs all jobs with the rounds, seconds and size that `environment` names. Also returns how many rungs failed; why is
/// in the notes.
pub fn measure(fio: &Fio, setup: &Setup, mut environment: Environment, say: &mut dyn FnMut(&str)) -> anyhow::Result<(Results, usize)> {
    let below = machine::mount_of(&setup.raw)?.fstype;
    let mut places = vec![Place { rung: Rung::Raw, dir: setup.raw.clone(), fstype: below.clone() }];
    if let Some(dir) = &setup.pass {
        places.push(Place { rung: Rung::Pass, dir: dir.clone(), fstype: below });
    }
    let fstype = machine::mount_of(&setup.mount)?.fstype;
    places.push(Place { rung: Rung::Mount, dir: setup.mount.clone(), fstype });
    let ladder = Ladder {
        fio,
        places: &places,
        work: &setup.work,
        file_bytes: environment.file_bytes,
        rounds: environment.rounds,
        seconds: environment.round_seconds,
        cores: environment.cores,
        daemon_pid: setup.daemon_pid,
    };
    let (mut rows, mut failures) = (Vec::new(), 0);
    for (i, job) in setup.jobs.iter().enumerate() {
        say(&format!("[{}/{}] {}: {}", i + 1, setup.jobs.len(), job.name, job.claim));
        let (mut row, failed) = ladder.climb(job, &mut |line| say(&format!("  {line}")));
        if row.durability == Durability::None && environment.budget_bytes.is_some_and(|budget| environment.file_bytes <= budget) {
            // Memory held against a device is no ceiling.
            (row.percent, row.percent_of_pass) = (None, None);
        }
        if environment.other_device {
            (row.percent, row.percent_of_pass) = (None, None);
        }
        ensure!(!fio.stopped(), "interrupted: what was made for the run is removed, no report was written");
        rows.push(row);
        failures += failed.len();
        environment.notes.extend(failed);
    }
    Ok((Results { environment, rows }, failures))
}
