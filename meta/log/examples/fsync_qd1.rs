//! What an fsync of 4 KiB at depth one costs through openraft: its tasks on the data thread, against a runtime of their own.
//!
//! Usage: `fsync_qd1 DIR [ROUNDS] [MILLISECONDS]`. Each operation writes and flushes a 4 KiB block of a shard file, then has a
//! command of 300 bytes committed; all cells of a round run one after the other, over the same filesystem. Prints a table:
//! operations per second, context switches and CPU time per operation, and the ratio to a raw 4 KiB pwrite + fdatasync.

use bytes::Bytes;
use holdfast_meta_log::{Entry, MetaLog, Result, StateMachine, raft};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, File, Open, write_zeroes};
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_base::real::{RealClock, RealDisk, runtime};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 16 * 1024;
const COMMAND_BYTES: usize = 300;

/// A state that keeps nothing but its place.
#[derive(Default)]
struct Nothing(Mutex<(u64, Option<Bytes>)>);

impl StateMachine for Nothing {
    fn apply(&self, entries: &[Entry], tail: Bytes) -> Result<Vec<Bytes>> {
        let mut s = self.0.lock();
        if let Some(e) = entries.last() {
            s.0 = e.index;
        }
        s.1 = Some(tail);
        Ok(vec![Bytes::new(); entries.len()])
    }
    fn restore(&self) -> Result<(u64, Option<Bytes>)> {
        Ok(self.0.lock().clone())
    }
    fn checkpoint(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { Ok(self.0.lock().0) })
    }
}

#[derive(Clone, Copy, Default)]
struct Sample {
    per_s: f64,
    waits: f64,
    preempted: f64,
    cpu_us: f64,
}

struct Meter {
    began: Instant,
    usage: libc::rusage,
    ops: u64,
    until: Instant,
}

fn usage() -> libc::rusage {
    // SAFETY: rusage is plain data, and a valid place for the answer.
    unsafe {
        let mut u: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut u), 0);
        u
    }
}

fn cpu_us(u: &libc::rusage) -> f64 {
    let t = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    t(u.ru_utime) + t(u.ru_stime)
}

impl Meter {
    fn start(length: Duration) -> Self {
        Self { began: Instant::now(), usage: usage(), ops: 0, until: Instant::now() + length }
    }
    fn more(&mut self) -> bool {
        let more = Instant::now() < self.until;
        self.ops += u64::from(more);
        more
    }
    fn sample(self) -> Sample {
        let (u, n) = (usage(), self.ops as f64);
        Sample {
            per_s: n / self.began.elapsed().as_secs_f64(),
            waits: (u.ru_nvcsw - self.usage.ru_nvcsw) as f64 / n,
            preempted: (u.ru_nivcsw - self.usage.ru_nivcsw) as f64 / n,
            cpu_us: (cpu_us(&u) - cpu_us(&self.usage)) / n,
        }
    }
}

/// A cheap walk over the blocks that is no sequence.
fn offset(n: u64) -> u64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % BLOCKS * 4096
}

fn raw(path: &Path, length: Duration, twice: bool) -> Sample {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).expect("opens");
    let block = AlignedBuf::copy_of(&[5; 4096]);
    let mut m = Meter::start(length);
    while m.more() {
        for i in 0..1 + u64::from(twice) {
            // SAFETY: the block outlives the call.
            let n = unsafe { libc::pwrite(file.as_raw_fd(), block.as_ptr().cast(), 4096, offset(2 * m.ops + i) as i64) };
            // SAFETY: no memory is involved.
            assert!(n == 4096 && unsafe { libc::fdatasync(file.as_raw_fd()) } == 0);
        }
    }
    m.sample()
}

/// The data thread's loop: the shard, then the commit.
async fn operations(shard: &dyn File, log: Option<&dyn MetaLog>, with_shard: bool, length: Duration) -> Sample {
    let block = AlignedBuf::copy_of(&[6; 4096]).freeze();
    let command = Bytes::from(vec![7u8; COMMAND_BYTES]);
    let mut m = Meter::start(length);
    while m.more() {
        let _hand = InHand::new();
        if with_shard {
            shard.write_at(offset(m.ops), vec![block.clone()]).await.expect("writes");
            shard.flush().await.expect("flushes");
        }
        if let Some(log) = log {
            log.propose(command.clone()).await.expect("commits");
        }
    }
    m.sample()
}

fn fresh(dir: &Path, name: &str) -> Vec<PathBuf> {
    let path = dir.join(name);
    let _ = std::fs::remove_dir_all(&path);
    vec![path]
}

async fn open(disk: &RealDisk, dirs: Vec<PathBuf>) -> Arc<dyn MetaLog> {
    raft::open(Arc::new(disk.clone()), dirs, raft::Config::new(1, true), Arc::new(RealClock), Arc::new(Nothing::default()))
        .await
        .expect("opens")
}

fn median(mut v: Vec<f64>) -> (f64, f64, f64) {
    v.sort_by(f64::total_cmp);
    (v[v.len() / 2], v[0], v[v.len() - 1])
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("usage: fsync_qd1 DIR [ROUNDS] [MILLISECONDS]"));
    let rounds: usize = args.next().map_or(7, |a| a.parse().expect("a number of rounds"));
    let length = Duration::from_millis(args.next().map_or(1000, |a| a.parse().expect("milliseconds")));
    std::fs::create_dir_all(&dir).expect("makes the folder");
    let names = [
        "raw pwrite 4 KiB + fdatasync",
        "raw, both twice (the floor of shard + commit)",
        "shard write + flush through base::disk",
        "commit alone, tasks on the data thread",
        "commit alone, tasks on a runtime of two threads",
        "shard + commit, tasks on the data thread",
        "shard + commit, tasks on a runtime of two threads",
    ];
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); names.len()];

    let own = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    let disk = RealDisk::new();
    let there = {
        let (disk, dirs) = (disk.clone(), fresh(&dir, "wal-own"));
        own.block_on(own.spawn(async move { open(&disk, dirs).await })).expect("opens")
    };
    runtime::block_on(async {
        let here = open(&disk, fresh(&dir, "wal-here")).await;
        let path = dir.join("shard");
        let shard = disk.open(&path, Open::Create).expect("opens");
        write_zeroes(&*shard, 0, BLOCKS * 4096).await.expect("writes zeroes");
        shard.flush_all().await.expect("flushes");
        for round in 0..=rounds {
            let cells = [
                raw(&path, length, false),
                raw(&path, length, true),
                operations(&*shard, None, true, length).await,
                operations(&*shard, Some(&*here), false, length).await,
                operations(&*shard, Some(&*there), false, length).await,
                operations(&*shard, Some(&*here), true, length).await,
                operations(&*shard, Some(&*there), true, length).await,
            ];
            // The first round makes the segments.
            if round > 0 {
                samples.iter_mut().zip(cells).for_each(|(s, c)| s.push(c));
            }
        }
        here.shutdown().await;
    })
    .expect("runs");
    own.block_on(there.shutdown());

    println!("| cell | operations/s | µs | % of raw | % of raw twice | waits per op | preempted per op | CPU-µs per op |");
    println!("|---|---|---|---|---|---|---|---|");
    let of = |cell: usize, f: &dyn Fn(&Sample) -> f64| median(samples[cell].iter().map(f).collect());
    for (cell, name) in names.iter().enumerate() {
        let (rate, low, high) = of(cell, &|s| s.per_s);
        let ratio = |base: usize| median((0..rounds).map(|r| 100.0 * samples[cell][r].per_s / samples[base][r].per_s).collect()).0;
        println!(
            "| {name} | {rate:.0} [{low:.0}–{high:.0}] | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} |",
            1e6 / rate,
            ratio(0),
            ratio(1),
            of(cell, &|s| s.waits).0,
            of(cell, &|s| s.preempted).0,
            of(cell, &|s| s.cpu_us).0,
        );
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    println!("\nrounds {rounds} of {length:?}; load {}; cpu pressure {}", load.trim(), pressure.lines().next().unwrap_or("not shown"));
    for name in ["wal-own", "wal-here"] {
        let _ = std::fs::remove_dir_all(dir.join(name));
    }
    let _ = std::fs::remove_file(dir.join("shard"));
}
