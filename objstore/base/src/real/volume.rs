//! A block device that gives an OSD its files: a header, a directory in two slots written in turn, and units for large files.
//!
//! What always holds: the directory on the device is that of some commit, whole; what a commit names was zeroed or written, and
//! stable, before it; units that a change freed are given to nobody before that change is stable.
//! What it leaves out: what the files mean; many small files (each stands in the directory itself); who may use the device.
//! The format is drawn in docs/formats/volume.md.

mod area;
mod directory;
mod dump;
mod header;
mod units;

use super::disk::{io, skip_flush};
use super::file::{Handle, RealFile};
use super::{device, sys};
use crate::buf::AlignedBuf;
use crate::disk::{DiskError, DiskSpace, File, Open, Result};
use crate::flush::FlushGroup;
use crate::metrics::Metrics;
use crate::units::{BLOCK, block_up};
use area::{Area, Shape};
use directory::{NAME_BYTES_MAX, Names, SMALL_BYTES_MAX, Stored};
use header::{Bad, Header};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use units::{Free, Run};

#[cfg(feature = "fuzzing")]
pub(crate) use directory::{directory_samples, fuzz_directory};
pub use dump::dump;
pub use header::{BYTES_MIN, claimed_id};
#[cfg(feature = "fuzzing")]
pub(crate) use header::{fuzz_header, header_samples};

/// Why a device cannot be used. Each is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("{} is in use: it is mounted, swapped to, part of an array or volume group, or held by another process", .0.display())]
    InUse(PathBuf),
    #[error("{} is read-only", .0.display())]
    ReadOnly(PathBuf),
    #[error("{} is too small: {bytes} bytes, at least {BYTES_MIN} are needed", .path.display())]
    TooSmall { path: PathBuf, bytes: u64 },
    #[error("{} writes blocks of {bytes} bytes; at most 4096 are supported", .path.display())]
    Blocks { path: PathBuf, bytes: u32 },
    #[error("{} has {now} bytes and was formatted with {formatted}", .path.display())]
    Shrunk { path: PathBuf, now: u64, formatted: u64 },
    #[error("{} is no volume of an OSD", .0.display())]
    NotAVolume(PathBuf),
    #[error("{} was written by a newer Holdfast (format {version}); upgrade", .path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("{} is damaged: {why}", .path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

/// See the module. Everything is below `root`, the device's path as its user says it.
pub struct Volume {
    root: PathBuf,
    raw: RealFile,
    header: Header,
    state: Mutex<State>,
    /// One commit at a time.
    commits: Mutex<()>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    free: Free,
    /// Freed by changes that are not stable yet.
    freed: Vec<Run>,
    generation: u64,
    /// Changes so far, and how many of them are stable.
    changes: u64,
    stable: u64,
    /// Whether a change gave units to a file, whose zeroes must be stable before the directory is.
    grown: bool,
}

#[derive(Clone)]
enum Entry {
    Folder,
    Small(Arc<[u8]>),
    Large(Arc<Shape>),
}

fn open_device(path: &Path) -> std::result::Result<(std::fs::File, u64), DeviceError> {
    let file = device::open_exclusively(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => DeviceError::InUse(path.into()),
        Some(libc::EROFS | libc::EACCES | libc::EPERM) if device::facts(path).is_ok_and(|f| f.read_only) => {
            DeviceError::ReadOnly(path.into())
        }
        _ => DeviceError::Io { path: path.into(), error },
    })?;
    let other = |error| DeviceError::Io { path: path.into(), error };
    let facts = device::facts(path).map_err(other)?;
    if facts.read_only {
        return Err(DeviceError::ReadOnly(path.into()));
    }
    if facts.logical_block as usize > BLOCK {
        return Err(DeviceError::Blocks { path: path.into(), bytes: facts.logical_block });
    }
    Ok((file, facts.bytes))
}

fn read_blocks(file: &std::fs::File, offset: u64, len: usize) -> std::io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len);
    file.read_exact_at(buf.padded_mut(), offset)?;
    Ok(buf)
}

impl Volume {
    /// Makes a device into an empty volume. Everything on it is lost. Blocks.
    pub fn format(path: &Path, id: u128, metrics: &Metrics, ring_only: &Arc<AtomicBool>) -> std::result::Result<Volume, DeviceError> {
        let (file, bytes) = open_device(path)?;
        let header = Header::plan(id, bytes).ok_or_else(|| DeviceError::TooSmall { path: path.into(), bytes })?;
        let write = || -> std::io::Result<()> {
            // Not every device can; it is only a favour to those that can.
            let _ = device::discard(&file, 0, bytes & !(BLOCK as u64 - 1));
            // The marks of what was there, at both ends, and both slots.
            device::zero_out(&file, 0, header.unit_at(0))?;
            let last = (bytes & !(BLOCK as u64 - 1)).saturating_sub(header::UNIT);
            device::zero_out(&file, last, header::UNIT.min(bytes - last) & !(BLOCK as u64 - 1))?;
            let empty = AlignedBuf::copy_of(&directory::encode(&header, 1, std::iter::empty()));
            file.write_all_at(empty.padded(), header.slot_at(1))?;
            file.sync_data()?;
            // The header comes last: without it the device is nobody's.
            file.write_all_at(AlignedBuf::copy_of(&header.encode()).padded(), 0)?;
            file.sync_data()
        };
        write().map_err(|error| DeviceError::Io { path: path.into(), error })?;
        let state = State { free: Free::all(header.units), generation: 1, ..State::default() };
        Ok(Self::assemble(path, file, header, state, metrics, ring_only))
    }

    /// Opens a volume for this process alone. Changes nothing. Blocks.
    pub fn open(path: &Path, metrics: &Metrics, ring_only: &Arc<AtomicBool>) -> std::result::Result<Volume, DeviceError> {
        let (file, bytes) = open_device(path)?;
        let other = |error| DeviceError::Io { path: path.to_path_buf(), error };
        let block = read_blocks(&file, 0, BLOCK).map_err(other)?;
        let header = match Header::decode(&block) {
            Ok(h) => h,
            Err(Bad::Foreign) => return Err(DeviceError::NotAVolume(path.into())),
            Err(Bad::Newer(version)) => return Err(DeviceError::Newer { path: path.into(), version }),
            Err(Bad::Damaged) => return Err(DeviceError::Damaged { path: path.into(), why: "its first block".into() }),
        };
        if bytes < header.bytes {
            return Err(DeviceError::Shrunk { path: path.into(), now: bytes, formatted: header.bytes });
        }
        let (mut newest, mut why) = (None, Vec::new());
        for slot in 0..2 {
            match read_slot(&file, &header, slot).map_err(other)? {
                Ok(found) if newest.as_ref().is_none_or(|(g, ..): &(u64, Names, Free)| *g < found.0) => newest = Some(found),
                Ok(_) => {}
                Err(bad) => why.push(bad),
            }
        }
        let Some((generation, names, free)) = newest else {
            return Err(DeviceError::Damaged { path: path.into(), why: format!("neither directory is whole: {}", why.join(", ")) });
        };
        let entry = |stored| match stored {
            Stored::Folder => Entry::Folder,
            Stored::Small(bytes) => Entry::Small(bytes.into()),
            Stored::Large { len, runs } => Entry::Large(Shape::new(len, runs)),
        };
        let entries = names.into_iter().map(|(name, stored)| (name, entry(stored))).collect();
        Ok(Self::assemble(path, file, header, State { entries, free, generation, ..State::default() }, metrics, ring_only))
    }

    fn assemble(path: &Path, file: std::fs::File, header: Header, state: State, metrics: &Metrics, ring_only: &Arc<AtomicBool>) -> Volume {
        let raw = RealFile(Arc::new(Handle {
            file,
            path: path.to_path_buf(),
            group: FlushGroup::new(metrics.flush_waiters.clone()),
            metrics: metrics.clone(),
            len: AtomicU64::new(u64::MAX),
            grown: AtomicU64::new(0),
            grown_stable: AtomicU64::new(0),
            ring_only: ring_only.clone(),
        }));
        Volume { root: path.to_path_buf(), raw, header, state: Mutex::new(state), commits: Mutex::new(()) }
    }

    pub fn id(&self) -> u128 {
        self.header.id
    }

    // ---- space ----

    fn take(&self, units: u32) -> Option<Vec<Run>> {
        self.state.lock().free.take(units)
    }
    fn give_back(&self, runs: Vec<Run>) {
        let mut s = self.state.lock();
        runs.into_iter().for_each(|r| s.free.give(r));
    }
    fn zero(&self, offset: u64, len: u64) -> std::io::Result<()> {
        device::zero_out(&self.raw.0.file, offset, len)
    }
    /// Notes a change; answers its number.
    fn changed(&self, freed: Vec<Run>, grown: bool) -> u64 {
        self.state.lock().change(freed, grown)
    }
    fn stable(&self) -> u64 {
        self.state.lock().stable
    }

    // ---- the directory ----

    /// Makes every change so far stable. Blocks for a flush or two; a failure is final for the device.
    fn commit(&self) -> Result<()> {
        self.raw.0.check()?;
        let _one = self.commits.lock();
        let (slot, generation, changes, freed, grown) = {
            let mut s = self.state.lock();
            if s.changes == s.stable {
                return Ok(());
            }
            let generation = s.generation + 1;
            let names = s.entries.iter().map(|(name, entry)| (name.as_str(), entry.stored()));
            let slot = directory::encode(&self.header, generation, names);
            if slot.len() as u64 > self.header.slot_bytes {
                return Err(self.error("write", "", libc::ENOSPC));
            }
            (slot, generation, s.changes, std::mem::take(&mut s.freed), std::mem::take(&mut s.grown))
        };
        let h = &self.raw.0;
        let store = || -> std::io::Result<()> {
            if grown {
                self.flush_in_place()?;
            }
            h.file.write_all_at(AlignedBuf::copy_of(&slot).padded(), self.header.slot_at(generation))?;
            self.flush_in_place()
        };
        if let Err(e) = store() {
            h.group.poison(format!("the directory of {} could not be written: {e}", self.root.display()));
            return Err(io("write", &self.root, e));
        }
        for run in &freed {
            // A favour to flash; what it cannot do is no failure. Nobody has the run yet.
            let _ = device::discard(&h.file, self.header.unit_at(run.first), run.count as u64 * header::UNIT);
        }
        let mut s = self.state.lock();
        (s.generation, s.stable) = (generation, changes);
        freed.into_iter().for_each(|r| s.free.give(r));
        Ok(())
    }

    fn flush_in_place(&self) -> std::io::Result<()> {
        let h = &self.raw.0;
        if skip_flush() {
            return Ok(());
        }
        h.metrics.flushes.inc();
        match sys::fdatasync(h.file.as_raw_fd()) {
            0 => Ok(()),
            e => Err(std::io::Error::from_raw_os_error(-e)),
        }
    }

    // ---- what a disk does; `name` is the path below the root, empty for the root itself ----

    fn error(&self, call: &'static str, name: &str, errno: i32) -> DiskError {
        DiskError::Io { call, path: self.root.join(name), errno }
    }

    fn area(self: &Arc<Self>, name: &str, shape: Arc<Shape>) -> Arc<dyn File> {
        Arc::new(Area { volume: self.clone(), shape, path: self.root.join(name) })
    }

    pub fn open_file(self: &Arc<Self>, name: &str, how: Open) -> Result<Arc<dyn File>> {
        let mut s = self.state.lock();
        match (s.entries.get(name), how) {
            (Some(_), Open::CreateNew) => Err(self.error("open", name, libc::EEXIST)),
            (Some(Entry::Large(shape)), _) => Ok(self.area(name, shape.clone())),
            (Some(Entry::Folder), _) => Err(self.error("open", name, libc::EISDIR)),
            // One that is replaced whole is not written in part.
            (Some(Entry::Small(_)), _) => Err(self.error("open", name, libc::EINVAL)),
            (None, Open::Existing) => Err(self.error("open", name, libc::ENOENT)),
            (None, _) => {
                self.check_new(&s, "open", name)?;
                let shape = Arc::new(Shape::default());
                s.entries.insert(name.to_string(), Entry::Large(shape.clone()));
                s.change(Vec::new(), false);
                Ok(self.area(name, shape))
            }
        }
    }

    /// Whether `name` may be made: it is short enough and its folder is there.
    fn check_new(&self, s: &State, call: &'static str, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(self.error(call, name, libc::EISDIR));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(self.error(call, name, libc::ENAMETOOLONG));
        }
        match name.rsplit_once('/').map(|(parent, _)| s.entries.get(parent)) {
            None | Some(Some(Entry::Folder)) => Ok(()),
            Some(None) => Err(self.error(call, name, libc::ENOENT)),
            Some(Some(_)) => Err(self.error(call, name, libc::ENOTDIR)),
        }
    }

    pub fn read_small(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let entry = self.state.lock().entries.get(name).cloned();
        match entry {
            None if name.is_empty() => Err(self.error("read", name, libc::EISDIR)),
            None => Ok(None),
            Some(Entry::Small(bytes)) => Ok(Some(bytes.to_vec())),
            Some(_) => Err(self.error("read", name, libc::EISDIR)),
        }
    }

    pub fn write_small(&self, name: &str, data: &[u8]) -> Result<()> {
        if data.len() > SMALL_BYTES_MAX {
            return Err(self.error("write", name, libc::EFBIG));
        }
        {
            let mut s = self.state.lock();
            if matches!(s.entries.get(name), Some(Entry::Folder)) {
                return Err(self.error("write", name, libc::EISDIR));
            }
            self.check_new(&s, "write", name)?;
            let old = s.entries.insert(name.to_string(), Entry::Small(data.into()));
            let freed = old.map(Entry::removed).unwrap_or_default();
            s.change(freed, false);
        }
        self.commit()
    }

    pub fn create_dir_all(&self, name: &str) -> Result<()> {
        {
            let mut s = self.state.lock();
            let ends = name.match_indices('/').map(|(i, _)| i).chain([name.len()]);
            for prefix in ends.map(|end| &name[..end]).filter(|p| !p.is_empty()) {
                match s.entries.get(prefix) {
                    Some(Entry::Folder) => {}
                    Some(_) => return Err(self.error("mkdir", prefix, libc::ENOTDIR)),
                    None => {
                        self.check_new(&s, "mkdir", prefix)?;
                        s.entries.insert(prefix.to_string(), Entry::Folder);
                        s.change(Vec::new(), false);
                    }
                }
            }
        }
        self.commit()
    }

    pub fn list(&self, name: &str) -> Result<Vec<String>> {
        let s = self.state.lock();
        match s.entries.get(name) {
            Some(Entry::Folder) => {}
            None if name.is_empty() => {}
            None => return Err(self.error("open", name, libc::ENOENT)),
            Some(_) => return Err(self.error("open", name, libc::ENOTDIR)),
        }
        let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
        let below = s.entries.range(prefix.clone()..).take_while(|(n, _)| n.starts_with(&prefix)).map(|(n, _)| &n[prefix.len()..]);
        Ok(below.filter(|n| !n.contains('/')).map(str::to_string).collect())
    }

    pub fn exists(&self, name: &str) -> bool {
        name.is_empty() || self.state.lock().entries.contains_key(name)
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let mut s = self.state.lock();
        match s.entries.get(name) {
            None => return Err(self.error("unlink", name, libc::ENOENT)),
            Some(Entry::Folder) => return Err(self.error("unlink", name, libc::EISDIR)),
            Some(_) => {}
        }
        let freed = s.entries.remove(name).map(Entry::removed).unwrap_or_default();
        s.change(freed, false);
        Ok(())
    }

    /// Of files only.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut s = self.state.lock();
        match s.entries.get(from) {
            None => return Err(self.error("rename", from, libc::ENOENT)),
            Some(Entry::Folder) => return Err(self.error("rename", from, libc::EISDIR)),
            Some(_) => {}
        }
        if matches!(s.entries.get(to), Some(Entry::Folder)) {
            return Err(self.error("rename", to, libc::EISDIR));
        }
        self.check_new(&s, "rename", to)?;
        if from != to
            && let Some(moved) = s.entries.remove(from)
        {
            let freed = s.entries.insert(to.to_string(), moved).map(Entry::removed).unwrap_or_default();
            s.change(freed, false);
        }
        Ok(())
    }

    pub fn sync_dir(&self) -> Result<()> {
        self.commit()
    }

    pub fn space(&self) -> DiskSpace {
        let free = self.state.lock().free.units();
        DiskSpace { total: self.header.units as u64 * header::UNIT, free: free as u64 * header::UNIT }
    }
}

impl State {
    fn change(&mut self, freed: Vec<Run>, grown: bool) -> u64 {
        self.freed.extend(freed);
        self.grown |= grown;
        self.changes += 1;
        self.changes
    }
}

impl Entry {
    fn stored(&self) -> Stored {
        match self {
            Entry::Folder => Stored::Folder,
            Entry::Small(bytes) => Stored::Small(bytes.to_vec()),
            Entry::Large(shape) => {
                let (len, runs) = shape.stored();
                Stored::Large { len, runs }
            }
        }
    }
    fn removed(self) -> Vec<Run> {
        match self {
            Entry::Large(shape) => shape.remove(),
            Entry::Folder | Entry::Small(_) => Vec::new(),
        }
    }
}

type Slot = std::result::Result<(u64, Names, Free), &'static str>;

fn read_slot(file: &std::fs::File, header: &Header, slot: u64) -> std::io::Result<Slot> {
    let at = header.slot_at(slot);
    let first = read_blocks(file, at, BLOCK)?;
    let Some(bytes) = directory::claimed_bytes(&first, header) else { return Ok(Err("it is not a directory")) };
    let whole = read_blocks(file, at, block_up(bytes as u64) as usize)?;
    Ok(directory::decode(&whole, header))
}
