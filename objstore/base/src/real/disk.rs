//! The machine's folder trees, and the block devices that were attached: a path that begins with an attached device's leads into
//! the volume on it.
//!
//! What always holds: files are opened for direct I/O wherever the filesystem can; files of one device that can share a
//! flush get one domain for the life of this object, also across threads.
//! What it leaves out: reading and writing ([`super::file`]).

use super::domain::shared_device;
use super::file::{Handle, RealFile};
use super::volume::{DeviceError, Volume};
use crate::disk::{Disk, DiskError, DiskSpace, File, Open, Result};
use crate::flush::FlushGroup;
use crate::metrics::Metrics;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Disk access through the kernel. One per process: flush domains are shared through it.
#[derive(Clone, Default)]
pub struct RealDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    domains: Mutex<HashMap<u64, Arc<FlushGroup>>>,
    /// By the device's path; without a volume it is known to be lost.
    devices: Mutex<BTreeMap<PathBuf, Option<Arc<Volume>>>>,
    metrics: Metrics,
    ring_only: Arc<AtomicBool>,
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

    /// Makes the device at `path` into an empty volume, and attaches it. Everything on it is lost. Blocks.
    pub fn format_device(&self, path: &Path, id: u128) -> std::result::Result<(), DeviceError> {
        let volume = Volume::format(path, id, &self.shared.metrics, &self.shared.ring_only)?;
        self.shared.devices.lock().insert(path.into(), Some(Arc::new(volume)));
        Ok(())
    }

    /// Opens the volume on the device at `path` for this process alone, as a folder of that name; its id. Blocks.
    pub fn attach_device(&self, path: &Path) -> std::result::Result<u128, DeviceError> {
        let volume = Volume::open(path, &self.shared.metrics, &self.shared.ring_only)?;
        let id = volume.id();
        self.shared.devices.lock().insert(path.into(), Some(Arc::new(volume)));
        Ok(id)
    }

    /// Lets `path` be an absent folder: the device that belongs there is lost, and whatever stands there now is not looked at.
    pub fn attach_lost(&self, path: &Path) {
        self.shared.devices.lock().insert(path.into(), None);
    }

    /// Lets go of a device; files of it that are open keep it open.
    pub fn detach_device(&self, path: &Path) {
        self.shared.devices.lock().remove(path);
    }

    /// Whether `path` lies on an attached (or lost) device.
    pub fn is_device(&self, path: &Path) -> bool {
        self.device(path).is_some()
    }

    /// The device that `path` lies on, and the rest of the path.
    fn device(&self, path: &Path) -> Option<(Option<Arc<Volume>>, String)> {
        let devices = self.shared.devices.lock();
        if devices.is_empty() {
            return None;
        }
        let (root, volume) = path.ancestors().find_map(|a| devices.get_key_value(a))?;
        let rest = path.strip_prefix(root).ok()?.to_string_lossy().into_owned();
        Some((volume.clone(), rest))
    }

    /// As [`Self::device`]; `ENODEV` when it is lost.
    fn volume(&self, call: &'static str, path: &Path) -> Result<Option<(Arc<Volume>, String)>> {
        match self.device(path) {
            None => Ok(None),
            Some((Some(volume), rest)) => Ok(Some((volume, rest))),
            Some((None, _)) => Err(DiskError::Io { call, path: path.into(), errno: libc::ENODEV }),
        }
    }

    /// With several devices no call may hold up its thread, or one that hangs would keep the others from being asked: from now on every
    /// call goes through the ring, where the thread has one.
    pub fn never_in_place(&self) {
        self.shared.ring_only.store(true, Ordering::Relaxed);
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
        if let Some((volume, rest)) = self.volume("open", path)? {
            return volume.open_file(&rest, how);
        }
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
            ring_only: self.shared.ring_only.clone(),
        }))))
    }

    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        if let Some((volume, rest)) = self.volume("read", path)? {
            return volume.read_small(&rest);
        }
        match std::fs::read(path) {
            Ok(data) => Ok(Some(data)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io("read", path, e)),
        }
    }

    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        if let Some((volume, rest)) = self.volume("write", path)? {
            return volume.write_small(&rest, data);
        }
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
        if let Some((volume, rest)) = self.volume("mkdir", path)? {
            return volume.create_dir_all(&rest);
        }
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
        if let Some((volume, rest)) = self.volume("open", path)? {
            return volume.list(&rest);
        }
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| io("open", path, e))? {
            let entry = entry.map_err(|e| io("readdir", path, e))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        match self.device(path) {
            None => path.exists(),
            Some((volume, rest)) => volume.is_some_and(|v| v.exists(&rest)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if let Some((volume, rest)) = self.volume("unlink", path)? {
            return volume.remove(&rest);
        }
        std::fs::remove_file(path).map_err(|e| io("unlink", path, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match (self.volume("rename", from)?, self.volume("rename", to)?) {
            (None, None) => {}
            (Some((a, from)), Some((b, to))) if Arc::ptr_eq(&a, &b) => return a.rename(&from, &to),
            _ => return Err(io("rename", from, std::io::Error::from_raw_os_error(libc::EXDEV))),
        }
        std::fs::rename(from, to).map_err(|e| io("rename", from, e))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if let Some((volume, _)) = self.volume("fsync", path)? {
            return volume.sync_dir();
        }
        fsync_dir(path)
    }

    fn space(&self, path: &Path) -> Result<DiskSpace> {
        if let Some((volume, _)) = self.volume("statfs", path)? {
            return Ok(volume.space());
        }
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
