//! A state machine that remembers everything it was told, and the pieces to open logs with it.

use bytes::Bytes;
use holdfast_meta_log::{Entry, Error, Result, StateMachine, raft};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_osd::log::Blocking;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

#[derive(Default, Clone)]
pub struct Kept {
    pub index: u64,
    pub tail: Option<Bytes>,
    pub entries: Vec<(u64, i64, Bytes)>,
    /// Indexes of commands that begin with `keep`, since the last command `free`: their bytes are needed.
    pub held: BTreeSet<u64>,
}

/// The state. What `stable` holds survives any end of the process.
pub struct Machine {
    pub stable: Arc<Mutex<Kept>>,
    live: Mutex<Kept>,
    pub fail_apply: AtomicBool,
    pub fail_checkpoint: AtomicBool,
    /// Permits for checkpoints; closed means unlimited.
    pub checkpoints: Semaphore,
    /// Entries a start showed again.
    pub shown: Mutex<Vec<(u64, Bytes)>>,
}

impl Machine {
    pub fn start(stable: &Arc<Mutex<Kept>>) -> Arc<Self> {
        let live = Mutex::new(stable.lock().clone());
        let checkpoints = Semaphore::new(0);
        checkpoints.close();
        Arc::new(Self {
            stable: stable.clone(),
            live,
            fail_apply: false.into(),
            fail_checkpoint: false.into(),
            checkpoints,
            shown: Mutex::default(),
        })
    }

    /// As [`Machine::start`], but checkpoints wait for permits.
    pub fn start_held(stable: &Arc<Mutex<Kept>>) -> Arc<Self> {
        let live = Mutex::new(stable.lock().clone());
        Arc::new(Self {
            stable: stable.clone(),
            live,
            fail_apply: false.into(),
            fail_checkpoint: false.into(),
            checkpoints: Semaphore::new(0),
            shown: Mutex::default(),
        })
    }

    pub fn live(&self) -> Kept {
        self.live.lock().clone()
    }

    pub fn commands(&self) -> Vec<Bytes> {
        self.live.lock().entries.iter().map(|e| e.2.clone()).collect()
    }
}

pub fn reply(index: u64, command: &[u8]) -> Bytes {
    let mut r = index.to_le_bytes().to_vec();
    r.extend_from_slice(command);
    r.into()
}

impl StateMachine for Machine {
    fn apply(&self, entries: &[Entry], tail: Bytes) -> Result<Vec<Bytes>> {
        if self.fail_apply.load(Ordering::SeqCst) {
            return Err(Error::Failed("told to fail".into()));
        }
        let mut live = self.live.lock();
        for e in entries {
            assert!(e.index > live.index, "entry {} after {}", e.index, live.index);
            assert!(live.entries.last().is_none_or(|last| last.1 <= e.now_ns), "time went back");
            live.index = e.index;
            live.entries.push((e.index, e.now_ns, e.command.clone()));
            if e.command.starts_with(b"keep") {
                live.held.insert(e.index);
            } else if e.command == "free" {
                live.held.clear();
            }
        }
        live.tail = Some(tail);
        Ok(entries.iter().map(|e| reply(e.index, &e.command)).collect())
    }

    fn restore(&self) -> Result<(u64, Option<Bytes>)> {
        let live = self.live.lock();
        Ok((live.index, live.tail.clone()))
    }

    fn hold(&self) -> Option<u64> {
        self.live.lock().held.first().copied()
    }

    fn restage(&self, e: &Entry) -> Result<()> {
        self.shown.lock().push((e.index, e.command.clone()));
        Ok(())
    }

    fn checkpoint(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async {
            if self.fail_checkpoint.load(Ordering::SeqCst) {
                return Err(Error::Failed("told to fail".into()));
            }
            let sealed = self.live();
            if let Ok(permit) = self.checkpoints.acquire().await {
                permit.forget();
            }
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            let index = sealed.index;
            *self.stable.lock() = sealed;
            Ok(index)
        })
    }
}

/// A clock that can be set back.
#[derive(Clone, Default)]
pub struct TestClock(pub Arc<AtomicU64>);

impl Clock for TestClock {
    fn wall_ns(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
    fn boot_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub fn clock(at: u64) -> Arc<dyn Clock> {
    Arc::new(TestClock(Arc::new(AtomicU64::new(at))))
}

/// Small segments and frequent checkpoints.
pub fn config() -> raft::Config {
    let mut c = raft::Config::new(77, true);
    c.log.segment_bytes = 64 << 10;
    c.log.segments_max = 64;
    c.log.segments_reserve = 1;
    c.log.blocking = Blocking::Here;
    c.checkpoint_bytes = 96 << 10;
    c.wal_bytes_max = 1 << 20;
    c
}

/// Runs on a current-thread runtime of its own, with a deadline; everything left running ends with it.
pub fn run<T>(what: impl Future<Output = T>) -> T {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    rt.block_on(async { tokio::time::timeout(Duration::from_secs(60), what).await.expect("in time") })
}
