//! What a ceiling run is asked to do.
//!
//! What always holds: whatever the harness cannot find out by looking at the machine, the caller says here.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One `holdfast bench ceiling`.
pub struct CeilingOptions {
    /// Any data folder of the cluster. The raw rung's file lies in a hidden folder beside it, on the same device.
    pub data: PathBuf,
    /// The mount point.
    pub mount: PathBuf,
    /// Where results.json, report.md and report.html go; created when missing.
    pub out: PathBuf,
    /// Three rounds of one second on a small file, instead of five of five seconds on a large one.
    pub quick: bool,
    /// Jobs to run instead of the built-in ones: every `*.fio` in this folder.
    pub fio_jobs_dir: Option<PathBuf>,
    /// Where to keep the raw rung's file instead of beside `data`; must be on the same device as `data`.
    pub raw_dir: Option<PathBuf>,
    /// Mounts the passthrough rung; without it that rung is left out.
    pub pass_mount: Option<Box<dyn PassMount>>,
    pub product: Product,
    /// Set from outside (an interrupt) to end the run: everything made for it is removed.
    pub stop: Arc<AtomicBool>,
}

/// What the product says about itself; printed, except for the process id, as it is.
#[derive(Debug, Clone, Default)]
pub struct Product {
    pub version: String,
    /// For example `4+2`.
    pub code: String,
    /// How requests leave the kernel, for example `/dev/fuse`. The passthrough must use the same.
    pub transport: String,
    /// Which code reads them, for example `own` or `fuser`.
    pub binding: String,
    /// The process that serves the mount: its CPU time is added to fio's.
    pub daemon_pid: Option<u32>,
    /// The product's byte budget: a file that fits may be read from memory, and the report says so.
    pub memory_bytes: Option<u64>,
    /// The OSDs' block devices, where they have some of their own.
    pub devices: Vec<PathBuf>,
}

/// Mounts a filesystem that passes every request on to a folder.
pub trait PassMount {
    /// Mounts `backing` at the empty folder `at`. Returns when it answers; unmounts when the guard is dropped.
    fn mount(&self, backing: &Path, at: &Path) -> anyhow::Result<Box<dyn Any>>;
}

impl<F: Fn(&Path, &Path) -> anyhow::Result<Box<dyn Any>>> PassMount for F {
    fn mount(&self, backing: &Path, at: &Path) -> anyhow::Result<Box<dyn Any>> {
        self(backing, at)
    }
}
