//! Several simulated devices seen as one disk: `d0/…`, `d1/…` each with its own faults and its own end; and logs with copies on them.

use crate::machine::{Machine, clock, config};
use bytes::Bytes;
use holdfast_meta_log::{Error, MetaLog, raft};
use holdfast_objstore_base::disk::{Disk, DiskSpace, File, Open, Result};
use holdfast_objstore_base::sim::SimDisk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone)]
pub struct Fleet(pub Vec<SimDisk>);

impl Fleet {
    pub fn new(devices: usize, seed: u64) -> Self {
        Self((0..devices).map(|d| SimDisk::new(seed * 100 + d as u64)).collect())
    }

    /// Every device as a power cut now could leave it, each torn in its own way.
    pub fn crash(&self, seed: u64) -> Self {
        let after = Self(self.0.iter().enumerate().map(|(d, disk)| disk.crash(seed * 31 + d as u64)).collect());
        self.0.iter().for_each(SimDisk::cut_now);
        after
    }

    /// One folder for a copy on each device.
    pub fn dirs(&self) -> Vec<PathBuf> {
        (0..self.0.len()).map(|d| PathBuf::from(format!("d{d}/wal"))).collect()
    }

    fn of(&self, path: &Path) -> &SimDisk {
        let first = path.components().next().and_then(|c| c.as_os_str().to_str()).expect("a path below a device");
        &self.0[first[1..].parse::<usize>().expect("a device's number")]
    }
}

impl Disk for Fleet {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        self.of(path).open(path, how)
    }
    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        self.of(path).read_small(path)
    }
    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        self.of(path).write_small(path, data, mode)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.of(path).create_dir_all(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.of(path).list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.of(path).exists(path)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.of(path).remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.of(from).rename(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.of(path).sync_dir(path)
    }
    fn space(&self, path: &Path) -> Result<DiskSpace> {
        self.of(path).space(path)
    }
}

pub type Log = Arc<dyn MetaLog>;

pub fn mirrored(copies: usize) -> raft::Config {
    let mut c = config();
    c.mirrors.copies = copies;
    c
}

pub async fn open(fleet: &Fleet, sm: &Arc<Machine>, config: raft::Config) -> std::result::Result<Log, Error> {
    raft::open(Arc::new(fleet.clone()), fleet.dirs(), config, clock(1), sm.clone()).await
}

pub async fn propose(log: &Log, numbers: std::ops::Range<u32>) {
    for n in numbers {
        log.propose(Bytes::from(n.to_string())).await.expect("proposes");
    }
}

pub fn expect(sm: &Machine, numbers: std::ops::Range<u32>) {
    let want: Vec<Bytes> = numbers.map(|n| Bytes::from(n.to_string())).collect();
    assert_eq!(sm.commands(), want);
}

/// Waits until the devices do this.
pub async fn until(log: &Log, roles: &[&str]) {
    loop {
        let now: Vec<_> = log.mirrors().iter().map(|m| m.role).collect();
        if now == roles && log.mirrors().iter().all(|m| m.lag_records == 0 || m.role == "lost" || m.role == "spare" || m.role == "late") {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub fn failed<T>(r: std::result::Result<T, Error>) -> String {
    match r {
        Err(Error::Failed(why)) => why,
        Err(e) => panic!("not the failure expected: {e}"),
        Ok(_) => panic!("it did not fail"),
    }
}
