//! The simulated folder tree.

use super::file::SimFile;
use super::state::{Cell, Domain, Inode, Node, State, apply, block_of};
use crate::disk::{Disk, DiskError, DiskSpace, DomainId, File, Open, Result};
use crate::flush::FlushGroup;
use crate::metrics::Metrics;
use crate::units::BLOCK;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a simulated disk behaves.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A flush domain per folder instead of one for all.
    pub domain_per_dir: bool,
    /// Reads, writes and flushes take a few polls, chosen by the seed, so that calls overlap.
    pub overlap: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { domain_per_dir: false, overlap: true }
    }
}

/// A disk in memory. Clones are the same disk; [`SimDisk::crash`] and [`SimDisk::kill`] make another.
#[derive(Clone)]
pub struct SimDisk {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub state: Mutex<State>,
    pub options: Options,
    pub metrics: Metrics,
}

pub(super) fn fail(call: &'static str, path: &Path, errno: i32) -> DiskError {
    DiskError::Io { call, path: path.to_path_buf(), errno }
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Options::default())
    }

    pub fn with(seed: u64, options: Options) -> Self {
        Self::from_state(State::new(seed), options)
    }

    pub(super) fn from_state(state: State, options: Options) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state), options, metrics: Metrics::default() }) }
    }

    /// The counters of this disk, counted as the real one does.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Takes a file away, or a folder with all that is in it, durably: what an operator does with a folder that is of no use any more.
    pub fn remove_all(&self, path: &Path) -> Result<()> {
        let mut s = self.shared.state.lock();
        s.step().map_err(|e| fail("unlink", path, e))?;
        let gone: Vec<PathBuf> = s.names.keys().filter(|p| p.starts_with(path)).cloned().collect();
        let files = gone.iter().filter_map(|p| s.inodes.get(&s.file(p)?));
        let freed: u64 = files.map(|i| i.cells.len() as u64).sum();
        s.allocated = s.allocated.saturating_sub(freed);
        s.unsynced.iter_mut().for_each(|c| c.retain(|(p, _)| !p.starts_with(path)));
        s.names.retain(|p, _| !p.starts_with(path));
        s.stable_names.retain(|p, _| !p.starts_with(path));
        Ok(())
    }

    /// Flushes done in one domain.
    pub fn flushes(&self, domain: DomainId) -> u64 {
        let s = self.shared.state.lock();
        s.domains.values().filter(|d| d.group.id() == domain).map(|d| d.flushes).sum()
    }
}

impl Shared {
    fn domain_key(&self, path: &Path) -> PathBuf {
        match path.parent() {
            Some(p) if self.options.domain_per_dir => p.to_path_buf(),
            _ => PathBuf::new(),
        }
    }

    fn parent_exists(&self, s: &State, path: &Path) -> Result<()> {
        if s.is_dir(path.parent().unwrap_or(Path::new(""))) { Ok(()) } else { Err(fail("open", path, libc::ENOENT)) }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        let mut s = self.shared.state.lock();
        if s.faults.cut {
            return Err(fail("open", path, libc::EIO));
        }
        let id = match (s.names.get(path).copied(), how) {
            (Some(Node::Dir), _) => return Err(fail("open", path, libc::EISDIR)),
            (Some(Node::File(_)), Open::CreateNew) => return Err(fail("open", path, libc::EEXIST)),
            (Some(Node::File(id)), _) => id,
            (None, Open::Existing) => return Err(fail("open", path, libc::ENOENT)),
            (None, _) => {
                self.shared.parent_exists(&s, path)?;
                s.step().map_err(|e| fail("open", path, e))?;
                let id = s.next_inode;
                s.next_inode += 1;
                s.inodes.insert(id, Inode { mode: 0o600, ..Inode::default() });
                s.change_names(vec![(path.to_path_buf(), Some(Node::File(id)))]);
                id
            }
        };
        let key = self.shared.domain_key(path);
        let served = self.shared.metrics.flush_waiters.clone();
        let domain = s.domains.entry(key.clone()).or_insert_with(|| Domain {
            group: FlushGroup::new(served),
            flight: None,
            asked: Default::default(),
            flushes: 0,
            held: Vec::new(),
        });
        let group = domain.group.clone();
        Ok(Arc::new(SimFile { shared: self.shared.clone(), path: path.to_path_buf(), id, key, group }))
    }

    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let s = self.shared.state.lock();
        if s.faults.cut {
            return Err(fail("read", path, libc::EIO));
        }
        let Some(inode) = s.file(path).and_then(|id| s.inodes.get(&id)) else { return Ok(None) };
        let mut data = vec![0u8; inode.len as usize];
        for (at, chunk) in data.chunks_mut(BLOCK).enumerate() {
            if let Some(cell) = inode.cells.get(&(at as u64)) {
                chunk.copy_from_slice(&cell.now()[..chunk.len()]);
            }
        }
        Ok(Some(data))
    }

    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        let mut s = self.shared.state.lock();
        self.shared.parent_exists(&s, path)?;
        s.step().map_err(|e| fail("write", path, e))?;
        let mut inode = Inode { len: data.len() as u64, stable_len: data.len() as u64, mode, ..Inode::default() };
        for (at, chunk) in data.chunks(BLOCK).enumerate() {
            let mut block = [0u8; BLOCK];
            block[..chunk.len()].copy_from_slice(chunk);
            inode.cells.insert(at as u64, Cell { stable: Some(block_of(&block)), versions: Vec::new() });
        }
        let id = s.next_inode;
        s.next_inode += 1;
        s.inodes.insert(id, inode);
        // Durable on return; earlier changes of the same name must not undo it later.
        s.unsynced.iter_mut().for_each(|c| c.retain(|(p, _)| p != path));
        let change = vec![(path.to_path_buf(), Some(Node::File(id)))];
        apply(&mut s.names, &change);
        apply(&mut s.stable_names, &change);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut s = self.shared.state.lock();
        s.step().map_err(|e| fail("mkdir", path, e))?;
        let mut change = Vec::new();
        for p in path.ancestors() {
            match s.names.get(p) {
                None => change.push((p.to_path_buf(), Some(Node::Dir))),
                Some(Node::Dir) => {}
                Some(Node::File(_)) => return Err(fail("mkdir", p, libc::ENOTDIR)),
            }
        }
        apply(&mut s.names, &change);
        apply(&mut s.stable_names, &change);
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let s = self.shared.state.lock();
        if s.faults.cut {
            return Err(fail("open", path, libc::EIO));
        }
        if !s.is_dir(path) {
            return Err(fail("open", path, libc::ENOENT));
        }
        let names = s.names.keys().filter(|p| p.parent() == Some(path) && !p.as_os_str().is_empty());
        let mut names: Vec<String> = names.filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        self.shared.state.lock().names.contains_key(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut s = self.shared.state.lock();
        let Some(id) = s.file(path) else { return Err(fail("unlink", path, libc::ENOENT)) };
        s.step().map_err(|e| fail("unlink", path, e))?;
        let freed = s.inodes.get(&id).map_or(0, |i| i.cells.len() as u64);
        s.allocated = s.allocated.saturating_sub(freed);
        s.change_names(vec![(path.to_path_buf(), None)]);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut s = self.shared.state.lock();
        let Some(id) = s.file(from) else { return Err(fail("rename", from, libc::ENOENT)) };
        self.shared.parent_exists(&s, to)?;
        s.step().map_err(|e| fail("rename", from, e))?;
        s.change_names(vec![(from.to_path_buf(), None), (to.to_path_buf(), Some(Node::File(id)))]);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut s = self.shared.state.lock();
        if !s.is_dir(path) {
            return Err(fail("open", path, libc::ENOENT));
        }
        s.step().map_err(|e| fail("fsync", path, e))?;
        if s.faults.lying {
            return Ok(());
        }
        let State { unsynced, stable_names, .. } = &mut *s;
        unsynced.retain(|change| {
            let here = change.iter().any(|(p, _)| p.parent() == Some(path));
            if here {
                apply(stable_names, change);
            }
            !here
        });
        Ok(())
    }

    fn space(&self, path: &Path) -> Result<DiskSpace> {
        let s = self.shared.state.lock();
        if !s.names.contains_key(path) {
            return Err(fail("statfs", path, libc::ENOENT));
        }
        let total = s.faults.capacity.unwrap_or(1 << 40);
        Ok(DiskSpace { total, free: total.saturating_sub(s.allocated * BLOCK as u64) })
    }
}
