//! A door to devices through which a start sees the copies of the metadata log as each of them sees itself.
//!
//! What it is: of all devices' records of which copies count, the oldest one whose device calls itself a copy is shown for every
//! device, as if that copy were the only one: a start that asks no majority.
//! What it leaves out: the layout of that record beyond what is changed here (`meta/log/src/raft/mirror/set.rs` draws it).

use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::disk::{Disk, DiskSpace, File, Open, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Believing {
    pub inner: Arc<dyn Disk>,
}

/// More devices than a plan has.
const DEVICES_MAX: usize = 16;
/// Where the set's epoch begins; the known devices and the members are counted behind it.
const EPOCH: usize = 40;
const KNOWN: usize = 52;
const MEMBERS: usize = 54;
const PLACES: usize = 56;

fn number(b: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?) as usize)
}

/// The epoch of a record in which `device` is a member.
fn claims(b: &[u8], device: usize) -> Option<(u64, u32)> {
    let (known, members) = (number(b, KNOWN)?, number(b, MEMBERS)?);
    let is_member = (0..members).any(|i| number(b, PLACES + 2 * (known + i)) == Some(device));
    let start = u64::from_le_bytes(b.get(EPOCH..EPOCH + 8)?.try_into().ok()?);
    let change = u32::from_le_bytes(b.get(EPOCH + 8..EPOCH + 12)?.try_into().ok()?);
    is_member.then_some((start, change))
}

/// The record with `device` as its only member.
fn alone(b: &[u8], device: usize) -> Option<Vec<u8>> {
    let mut out = b.get(..PLACES + 2 * number(b, KNOWN)?)?.to_vec();
    out[MEMBERS..MEMBERS + 2].copy_from_slice(&1u16.to_le_bytes());
    out.extend_from_slice(&(device as u16).to_le_bytes());
    let len = (out.len() + 4) as u32;
    out[12..16].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    Some(out)
}

impl Believing {
    fn oldest(&self) -> Option<Vec<u8>> {
        let record = |device: usize| {
            let path = PathBuf::from(format!("d{device}/meta/wal/mirrors"));
            let bytes = self.inner.read_small(&path).ok().flatten()?;
            Some((claims(&bytes, device)?, device, bytes))
        };
        let (_, device, bytes) = (0..DEVICES_MAX).filter_map(record).min_by_key(|r| r.0)?;
        alone(&bytes, device)
    }
}

impl Disk for Believing {
    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let own = self.inner.read_small(path)?;
        match path.ends_with("wal/mirrors") && own.is_some() {
            true => Ok(self.oldest().or(own)),
            false => Ok(own),
        }
    }
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        self.inner.open(path, how)
    }
    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        self.inner.write_small(path, data, mode)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }
    fn space(&self, path: &Path) -> Result<DiskSpace> {
        self.inner.space(path)
    }
}
