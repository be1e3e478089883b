//! Runs fio as a child and reads what it reports.
//!
//! What always holds: a run ends by its deadline, killed with all its workers if need be; fio's error is ours.
//! What it leaves out: which job and where; what the numbers mean beside others.

use crate::job::{Job, PREPARE};
use crate::results::{Conditions, Durability};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Beyond the measured time: start, laying out nothing, draining the queue, on a machine that does other things too.
const GRACE: Duration = Duration::from_secs(60);
/// A file is written slower than this only if something is wrong.
const PREPARE_BYTES_PER_SECOND: u64 = 4 << 20;

/// An installed fio.
pub struct Fio {
    program: PathBuf,
    pub version: String,
    /// Once set, what runs is ended and nothing more is begun.
    stop: Arc<AtomicBool>,
}

/// One measured run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// In the job's unit.
    pub rate: f64,
    pub ops: u64,
    /// User and system time of fio's jobs, µs, without fio's own start.
    pub cpu_us: f64,
    /// As fio ran it; durability as its options give it, the filesystem not yet considered.
    pub conditions: Conditions,
}

impl Fio {
    /// Looks fio up; an error that says how to install it when it is missing.
    pub fn find(program: &Path) -> anyhow::Result<Fio> {
        let output = match Command::new(program).arg("--version").output() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "fio is not installed, and the benchmark runs it: install it with 'apt-get install fio' (Debian, \
                 Ubuntu), 'dnf install fio' (Fedora, RHEL) or 'zypper install fio' (SUSE)"
            ),
            other => other.with_context(|| format!("cannot run {}", program.display()))?,
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_string();
        ensure!(output.status.success() && version.starts_with("fio"), "{} is not fio", program.display());
        Ok(Fio { program: program.to_path_buf(), version, stop: Arc::default() })
    }

    /// Lets `stop` end what runs, and what would follow.
    pub fn until(self, stop: Arc<AtomicBool>) -> Fio {
        Fio { stop, ..self }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes the job's file (or files) of `bytes` in all into `dir` and flushes them.
    pub fn prepare(&self, job: &Job, text: &str, bytes: u64, dir: &Path, scratch: &Path) -> anyhow::Result<()> {
        let limit = GRACE + Duration::from_secs(bytes / PREPARE_BYTES_PER_SECOND);
        self.section(text, PREPARE, dir, scratch, limit).with_context(|| format!("writing the file of {}", job.name))?;
        Ok(())
    }

    /// Runs the measured section.
    pub fn run(&self, job: &Job, text: &str, seconds: u32, dir: &Path, scratch: &Path) -> anyhow::Result<Run> {
        let limit = GRACE + Duration::from_secs(seconds as u64);
        let output = self.section(text, &job.name, dir, scratch, limit).with_context(|| format!("running {}", job.name))?;
        parse(&output, job).with_context(|| format!("reading fio's report on {}", job.name))
    }

    fn section(&self, text: &str, section: &str, dir: &Path, scratch: &Path, limit: Duration) -> anyhow::Result<String> {
        let (job, output, errors) = (scratch.join("job.fio"), scratch.join("output.json"), scratch.join("errors.txt"));
        std::fs::write(&job, text)?;
        let mut command = Command::new(&self.program);
        command.arg(&job).arg("--output-format=json").arg("--eta=never");
        command.arg(format!("--section={section}")).arg(format!("--directory={}", fio_path(dir)));
        command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
        // A group of its own, so that its workers can be ended with it.
        command.process_group(0).current_dir(scratch);
        // SAFETY: prctl is async-signal-safe and touches nothing of ours.
        unsafe {
            command.pre_exec(|| {
                // It must not go on writing when this process is ended.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            })
        };
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if self.stopped() || Instant::now() > deadline {
                // SAFETY: a plain system call; the group is the child's, which is not yet waited for.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                child.wait()?;
                ensure!(!self.stopped(), "interrupted");
                bail!("fio did not end within {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let text = std::fs::read_to_string(&output)?;
        if !status.success() || !text.contains('{') {
            // fio repeats itself; the first line says what happened.
            let said = std::fs::read_to_string(&errors)? + &text;
            let first = said.lines().map(str::trim).find(|l| l.starts_with("fio:")).or(said.lines().next());
            bail!("fio failed ({status}): {}", first.unwrap_or("it did not say why"));
        }
        Ok(text)
    }
}

/// fio takes a list of folders separated by colons.
fn fio_path(dir: &Path) -> String {
    dir.to_string_lossy().replace(':', "\\:")
}

/// Reads the report of one measured section; warnings before it are skipped.
pub fn parse(output: &str, job: &Job) -> anyhow::Result<Run> {
    let start = output.find("\n{").map(|i| i + 1).filter(|_| !output.starts_with('{')).unwrap_or(0);
    let report: Value = serde_json::from_str(&output[start..]).context("not JSON")?;
    let jobs = report["jobs"].as_array().context("no jobs")?;
    let measured = jobs.iter().find(|j| j["jobname"] == job.name.as_str()).context("the measured section is not in it")?;
    let error = measured["error"].as_i64().context("no error field")?;
    ensure!(error == 0, "the job failed: {}", std::io::Error::from_raw_os_error(error as i32));

    let side = &measured[if job.reads { "read" } else { "write" }];
    let number = |of: &Value, key: &str| of[key].as_f64().with_context(|| format!("no {key}"));
    let ops = number(side, "total_ios")? as u64;
    ensure!(ops > 0, "no operation ended");
    let rate = if job.unit == "IOPS" { number(side, "iops")? } else { number(side, "bw_bytes")? / (1 << 20) as f64 };
    // Shares are of the sum of all jobs' times, which is what job_runtime is (ms).
    let share = (number(measured, "usr_cpu")? + number(measured, "sys_cpu")?) / 100.0;
    let cpu_us = share * number(measured, "job_runtime")? * 1000.0;

    let option = |key: &str| measured["job options"][key].as_str().or(report["global options"][key].as_str());
    let count = |key: &str| option(key).map_or(Ok(1u32), |v| v.parse().with_context(|| format!("{key} is {v}")));
    let conditions = Conditions {
        depth: count("numjobs")?.checked_mul(count("iodepth")?).context("numjobs and iodepth are too large")?,
        engine: option("ioengine").unwrap_or("psync").to_string(),
        durability: Durability::of_options(option),
    };
    Ok(Run { rate, ops, cpu_us, conditions })
}
