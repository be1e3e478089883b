//! The machine's folder trees.
//!
//! What always holds: files are opened for direct I/O wherever the filesystem can; files of one device that can share a
//! flush get one domain for the life of this object, also across threads.
//! What it leaves out: reading and writing ([`super::file`]).

use super::domain::shared_device;
use super::file::{Handle, RealFile};
use crate::disk::{Disk, DiskError, DiskSpace, File, Open, Result};
use crate::flush::FlushGroup;
use crate::metrics::Metrics;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

/// Disk access through the kernel. One per process: flush domains are shared through it.
#[derive(Clone, Default)]
pub struct RealDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    domains: Mutex<HashMap<u64, Arc<FlushGroup>>>,
    metrics: Metrics,
}

/// The negative control of the power-cut tests: flushes say Ok and do nothing.
static SKIP_FLUSH: LazyLock<bool> = LazyLock::new(|| {
    let skip = std::env::var_os("HOLDFAST_UNSAFE_SKIP_FLUSH").is_some_and(|v| v == "1");
    if skip {
        tracing::error!("HOLDFAST_UNSAFE_SKIP_FLUSH=1: NOTHING IS FLUSHED, A POWER CUT LOSES ACKNOWLEDGED DATA. For tests only.");
    }
    skip
});

pub(super) fn skip_flush() -> bool {
    *SKIP_FLUSH
}

pub(super) fn io(call: &'static str, path: &Path, e: std::io::Error) -> DiskError {
    DiskError::Io { call, path: path.to_path_buf(), errno: e.raw_os_error().unwrap_or(libc::EIO) }
}

impl RealDisk {
    pub fn new() -> Self {
        LazyLock::force(&SKIP_FLUSH);
        Self::default()
    }

    /// The counters of everything done through this object.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    fn group(&self, file: &std::fs::File, direct: bool) -> Arc<FlushGroup> {
        let fresh = || FlushGroup::new(self.shared.metrics.flush_waiters.clone());
        // Without direct I/O the bytes wait in the page cache, and only the file's own flush writes them out.
        match shared_device(file).filter(|_| direct) {
            Some(dev) => self.shared.domains.lock().entry(dev).or_insert_with(fresh).clone(),
            None => fresh(),
        }
    }
}

fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(p) if p.as_os_str().is_empty() => fsync_dir(Path::new(".")),
        Some(p) => fsync_dir(p),
        None => Ok(()),
    }
}

fn fsync_dir(path: &Path) -> Result<()> {
    let dir = std::fs::File::open(path).map_err(|e| io("open", path, e))?;
    if skip_flush() {
        return Ok(());
    }
    dir.sync_all().map_err(|e| io("fsync", path, e))
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        let options = |direct: bool| {
            let mut o = OpenOptions::new();
            o.read(true).write(true).mode(0o600).custom_flags(if direct { libc::O_DIRECT } else { 0 });
            match how {
                Open::Existing => &mut o,
                Open::Create => o.create(true),
                Open::CreateNew => o.create_new(true),
            };
            o
        };
        let (file, direct) = match options(true).open(path) {
            Ok(file) => (file, true),
            // A filesystem without direct I/O. It may have made the file before it refused.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                let mut again = options(false);
                if how == Open::CreateNew {
                    again.create_new(false).create(true);
                }
                (again.open(path).map_err(|e| io("open", path, e))?, false)
            }
            Err(e) => return Err(io("open", path, e)),
        };
        let group = self.group(&file, direct);
        let len = file.metadata().map_err(|e| io("stat", path, e))?;
        let len = if len.is_file() { len.len() } else { u64::MAX };
        Ok(Arc::new(RealFile(Arc::new(Handle {
            file,
            path: path.to_path_buf(),
            group,
            metrics: self.shared.metrics.clone(),
            len: AtomicU64::new(len),
            grown: AtomicU64::new(0),
            grown_stable: AtomicU64::new(0),
        }))))
    }

    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        match std::fs::read(path) {
            Ok(data) => Ok(Some(data)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io("read", path, e)),
        }
    }

    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        let mut name = path.file_name().ok_or_else(|| io("open", path, std::io::Error::from_raw_os_error(libc::EINVAL)))?.to_os_string();
        name.push(".tmp");
        let tmp: PathBuf = path.with_file_name(name);
        // A left-over may have another mode; the new file must not begin with it.
        match std::fs::remove_file(&tmp) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io("unlink", &tmp, e)),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&tmp).map_err(|e| io("open", &tmp, e))?;
        file.write_all(data).map_err(|e| io("write", &tmp, e))?;
        if !skip_flush() {
            file.sync_all().map_err(|e| io("fsync", &tmp, e))?;
        }
        std::fs::rename(&tmp, path).map_err(|e| io("rename", path, e))?;
        sync_parent(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent)?;
        }
        match std::fs::create_dir(path) {
            Ok(()) => sync_parent(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(e) => Err(io("mkdir", path, e)),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| io("open", path, e))? {
            let entry = entry.map_err(|e| io("readdir", path, e))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|e| io("unlink", path, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(|e| io("rename", from, e))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        fsync_dir(path)
    }

    fn space(&self, path: &Path) -> Result<DiskSpace> {
        let c =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| io("statfs", path, std::io::Error::from_raw_os_error(libc::EINVAL)))?;
        // SAFETY: statvfs is plain data; zero is a valid value of it.
        let mut s: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: `c` is a C string and `s` a valid place for the answer.
        if unsafe { libc::statvfs(c.as_ptr(), &mut s) } != 0 {
            return Err(io("statfs", path, std::io::Error::last_os_error()));
        }
        Ok(DiskSpace { total: s.f_blocks * s.f_frsize, free: s.f_bavail * s.f_frsize })
    }
}
