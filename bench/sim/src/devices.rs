//! The cluster's devices: simulated disks under one door, with one power switch, a pace in virtual time, and faults.
//!
//! What always holds: the first component of a path names its device, and devices fail, tear and flush each on its own. Every
//! operation is a line of the trace and a step at which the power may go. A write or flush on its way when its future is dropped
//! goes on, as the door promises.
//! What it leaves out: pace for the state's file: its reads and writes are calls that block, and virtual time stands still in them.

mod file;
mod power;

pub use power::Power;

use crate::history::End;
use crate::trace::Trace;
use file::SeenFile;
use holdfast_objstore_base::disk::{Disk, DiskError, DiskSpace, File, Open, Result};
use holdfast_objstore_base::sim::{Rng, SimDisk};
use holdfast_objstore_base::told::Told;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// How long operations take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Of 100 operations, how many take time at all …
    pub percent: u64,
    /// … and how long, milliseconds at most.
    pub ms_max: u64,
}

pub(crate) struct Device {
    pub number: usize,
    disk: Mutex<SimDisk>,
    manners: Mutex<Manners>,
    hung: Told<bool>,
    lost: AtomicBool,
    /// It is away, with what it had; from the moment it goes until it is back.
    away: Mutex<Away>,
    /// What it held when the life began, of one that will go back to it.
    former: Mutex<Option<SimDisk>>,
}

/// How a device goes about its work.
struct Manners {
    rng: Rng,
    pace: Pace,
    mischief: Mischief,
}

/// Of 100 writes, how many are answered and not done, land elsewhere, or are done in part; of 100 reads, how many answer what lies elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mischief {
    pub lost: u64,
    pub astray: u64,
    pub short: u64,
    pub misread: u64,
}

/// What becomes of a write.
pub(crate) enum Fate {
    Done,
    Lost,
    /// It lands this many blocks further on.
    Astray(u64),
    /// Only so many per mille of its blocks are written.
    Short(u64),
}

#[derive(Default)]
enum Away {
    #[default]
    Here,
    Going,
    Gone(SimDisk),
}

/// All devices. Clones share them.
#[derive(Clone)]
pub struct Devices(Arc<Inner>);

struct Inner {
    devices: Vec<Arc<Device>>,
    power: Arc<Power>,
    trace: Arc<Trace>,
}

/// The folder of a device.
pub fn folder(number: usize) -> PathBuf {
    PathBuf::from(format!("d{number}"))
}

impl Devices {
    pub fn new(count: usize, seed: u64, pace: Pace, power: Arc<Power>, trace: Arc<Trace>) -> Self {
        let devices = (0..count).map(|number| {
            let seed = seed ^ (number as u64 + 1) << 40;
            Arc::new(Device {
                number,
                disk: Mutex::new(SimDisk::new(seed)),
                manners: Mutex::new(Manners { rng: Rng::new(seed), pace, mischief: Mischief::default() }),
                former: Mutex::default(),
                hung: Told::new(false),
                lost: AtomicBool::new(false),
                away: Mutex::default(),
            })
        });
        Self(Arc::new(Inner { devices: devices.collect(), power, trace }))
    }

    pub fn count(&self) -> usize {
        self.0.devices.len()
    }

    /// The simulated disk beneath a device.
    pub fn disk(&self, number: usize) -> SimDisk {
        self.0.devices[number].disk.lock().clone()
    }

    /// From now on every call of the device fails, and after the next start it is empty.
    pub fn lose(&self, number: usize) {
        self.0.trace.note(format_args!("d{number} is lost"));
        let d = &self.0.devices[number];
        d.lost.store(true, Ordering::Relaxed);
        d.disk.lock().cut_now();
        d.hung.tell(|h| *h = false);
    }

    /// As [`Devices::lose`], but it comes back at the start after the next one.
    pub fn go_away(&self, number: usize) {
        self.0.trace.note(format_args!("d{number} goes away"));
        let d = &self.0.devices[number];
        *d.away.lock() = Away::Going;
        d.disk.lock().cut_now();
        d.hung.tell(|h| *h = false);
    }

    pub fn is_lost(&self, number: usize) -> bool {
        let d = &self.0.devices[number];
        d.lost.load(Ordering::Relaxed) || !matches!(*d.away.lock(), Away::Here)
    }

    /// Operations neither fail nor end while `on`.
    pub fn hang(&self, number: usize, on: bool) {
        self.0.trace.note(format_args!("d{number} hangs: {on}"));
        self.0.devices[number].hung.tell(|h| *h = on);
    }

    pub fn set_pace(&self, number: usize, pace: Pace) {
        self.0.trace.note(format_args!("d{number} takes {pace:?}"));
        self.0.devices[number].manners.lock().pace = pace;
    }

    /// Some writes are answered and not done, and so on.
    pub fn misbehave(&self, number: usize, mischief: Mischief) {
        self.0.trace.note(format_args!("d{number} does {mischief:?}"));
        self.0.devices[number].manners.lock().mischief = mischief;
    }

    /// Keeps what the device holds now; after the next restart it holds just that.
    pub fn will_go_back(&self, number: usize) {
        self.0.trace.note(format_args!("d{number} will go back to this moment"));
        let d = &self.0.devices[number];
        *d.former.lock() = Some(d.disk.lock().kill());
    }

    /// The next read, write or flush, or one soon after, fails.
    pub fn fail_soon(&self, number: usize, rng: &mut Rng) {
        let (disk, n) = (self.disk(number), 1 + rng.below(6));
        let what = rng.below(3);
        self.0.trace.note(format_args!("d{number} will fail: {what} in {n}"));
        match what {
            0 => disk.fail_read(n),
            1 => disk.fail_write(n),
            _ => disk.fail_flush(n),
        }
    }

    /// Flushes say Ok and do nothing.
    pub fn lie(&self, number: usize) {
        self.0.trace.note(format_args!("d{number} lies"));
        self.disk(number).lying_flush(true);
    }

    /// Takes a file away, or a folder with all that is in it.
    pub fn remove_all(&self, path: &Path) -> Result<()> {
        self.at("remove_all", path)?.remove_all(path)
    }

    /// Damages some bytes of the OSD's log, or of the metadata log's copy, on the device.
    pub fn rot(&self, number: usize, rng: &mut Rng) {
        let disk = self.disk(number);
        let log = folder(number).join(if rng.below(4) == 0 { "meta/wal" } else { "osd/log" });
        let names: Vec<String> = disk.list(&log).unwrap_or_default().into_iter().filter(|n| n.ends_with(".segment")).collect();
        if names.is_empty() {
            return;
        }
        let path = log.join(&names[rng.below(names.len() as u64) as usize]);
        let blocks = disk.open(&path, Open::Existing).and_then(|f| f.len()).unwrap_or(0) / BLOCK;
        // Most of what is stored lies near a segment's start.
        let reach = 1 + rng.below(blocks.max(1));
        let block = rng.below(blocks.min(reach));
        let from = block * BLOCK + rng.below(BLOCK - 64);
        let done = disk.corrupt(&path, from..from + 1 + rng.below(64), rng.next_u64());
        self.0.trace.note(format_args!("d{number} rots at {} byte {from}: {done}", path.display()));
    }

    /// The devices as the next start finds them. The power is off until [`Power::on`].
    pub fn restart(&self, end: End, seed: u64, pace: Pace) {
        self.0.power.cut();
        for d in &self.0.devices {
            let seed = seed ^ d.number as u64;
            let mut disk = d.disk.lock();
            let old = disk.clone();
            let mut away = d.away.lock();
            let former = d.former.lock().take();
            *disk = match (d.lost.load(Ordering::Relaxed), std::mem::take(&mut *away), end) {
                (true, ..) => SimDisk::new(seed),
                (false, Away::Going, _) => {
                    *away = Away::Gone(old.crash(seed));
                    SimDisk::new(seed)
                }
                (false, Away::Gone(had), _) => had.kill(),
                (false, Away::Here, _) if former.is_some() => former.unwrap_or(old),
                (false, Away::Here, End::PowerCut) => old.crash(seed),
                (false, Away::Here, End::Killed | End::Stopped) => old.kill(),
            };
            d.hung.tell(|h| *h = false);
            let mut manners = d.manners.lock();
            (manners.pace, manners.mischief) = (pace, Mischief::default());
        }
        self.0.power.on(self.0.devices.iter().map(|d| d.disk.lock().clone()).collect());
    }

    /// Over every name and every byte on every device.
    pub fn digest(&self) -> u64 {
        let mut digest = Xxh3::new();
        for d in &self.0.devices {
            d.disk.lock().visit(&mut |path, at, bytes| {
                digest.update(path.as_os_str().as_encoded_bytes());
                digest.update(&at.to_le_bytes());
                digest.update(bytes);
            });
        }
        digest.digest()
    }

    fn device(&self, path: &Path) -> Result<&Arc<Device>> {
        let first = path.iter().next().and_then(|c| c.to_str()).and_then(|c| c.strip_prefix('d')).and_then(|n| n.parse::<usize>().ok());
        let missing = || DiskError::Io { call: "open", path: path.to_path_buf(), errno: libc::ENOENT };
        first.and_then(|n| self.0.devices.get(n)).ok_or_else(missing)
    }

    /// The disk for a call that may change something, counted.
    fn at(&self, call: &str, path: &Path) -> Result<SimDisk> {
        self.0.power.step();
        let disk = self.device(path)?.disk.lock().clone();
        self.0.trace.note(format_args!("{call} {}", path.display()));
        Ok(disk)
    }
}

impl Disk for Devices {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        let disk = self.at("open", path)?;
        let inner = disk.open(path, how)?;
        Ok(SeenFile::over(inner, self.device(path)?.clone(), self.0.power.clone(), self.0.trace.clone()))
    }
    fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        self.device(path)?.disk.lock().read_small(path)
    }
    fn write_small(&self, path: &Path, data: &[u8], mode: u32) -> Result<()> {
        self.at("write_small", path)?.write_small(path, data, mode)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.at("mkdir", path)?.create_dir_all(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.device(path)?.disk.lock().list(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.device(path).is_ok_and(|d| d.disk.lock().exists(path))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.at("remove", path)?.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.at("rename", from)?.rename(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.at("sync_dir", path)?.sync_dir(path)
    }
    fn space(&self, path: &Path) -> Result<DiskSpace> {
        self.device(path)?.disk.lock().space(path)
    }
}

impl Device {
    /// What becomes of the next write.
    fn fate(&self) -> Fate {
        let m = &mut *self.manners.lock();
        let Mischief { lost, astray, short, .. } = m.mischief;
        if lost + astray + short == 0 {
            return Fate::Done;
        }
        match m.rng.below(100) {
            n if n < lost => Fate::Lost,
            n if n < lost + astray => Fate::Astray(1 + m.rng.below(8)),
            n if n < lost + astray + short => Fate::Short(m.rng.below(1000)),
            _ => Fate::Done,
        }
    }

    /// How many blocks further on the next read reads.
    fn misreads(&self) -> u64 {
        let m = &mut *self.manners.lock();
        if m.mischief.misread > 0 && m.rng.below(100) < m.mischief.misread { 1 + m.rng.below(8) } else { 0 }
    }

    /// Takes the time an operation takes; never while it hangs.
    async fn wait(&self) {
        let ms = {
            let Manners { rng, pace, .. } = &mut *self.manners.lock();
            if rng.below(100) < pace.percent { 1 + rng.below(pace.ms_max) } else { 0 }
        };
        if ms > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
        }
        self.hung.until(|hung| (!hung).then_some(())).await;
    }
}
