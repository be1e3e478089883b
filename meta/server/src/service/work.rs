//! Background work of the service: freeing orphans, deleting retired stripes, packing small ones.
//!
//! What always holds: it is woken by what makes work (only cold stripes are looked for now and then); it stops at the next step when told to; what fails is tried
//! again, ever less often.
//! What it leaves out: repair and scrubbing (they are the object cluster's).

mod orphans;
mod packs;
mod relief;
mod snapshots;
mod stripes;
mod worn;
mod writer;

pub use packs::{PackStore, PackWrite, Room};
pub use snapshots::{SnapshotStatus, SnapshotStore, Snapshots};
pub use stripes::{NoStripes, StripeReaper};

pub(crate) use orphans::Orphans;
pub(crate) use snapshots::{Known, is_system_name};

use super::core::Core;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_proto::Code;
use holdfast_objstore_proto::meta::Reply;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Pauses between attempts that fail: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// What a command may leave behind that its answer does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leaves {
    Nothing,
    /// Retired stripes.
    Stripes,
    /// Those, and orphans.
    Orphans,
}

/// A wake-up that is not lost when nobody waits yet.
#[derive(Default)]
pub(crate) struct Signal(Notify);

impl Signal {
    pub(crate) fn notify(&self) {
        self.0.notify_one();
    }
    pub(crate) async fn notified(&self) {
        self.0.notified().await;
    }
}

pub(crate) struct Work {
    pub orphans: Orphans,
    pub stripes: Signal,
    packing: AtomicBool,
    /// While rewriting worn stripes gives nothing.
    worn_rest: worn::Rest,
    /// A session ended: its ranges are closed.
    pub ranges: Signal,
    /// Space is short: what was retired is to be deleted now.
    hurry: Signal,
    /// The same for what is dead in stripes that are partly alive.
    worn: Signal,
    stop: Told<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            orphans: Orphans::default(),
            stripes: Signal::default(),
            packing: AtomicBool::new(false),
            worn_rest: worn::Rest::default(),
            ranges: Signal::default(),
            hurry: Signal::default(),
            worn: Signal::default(),
            stop: Told::new(false),
            tasks: Mutex::default(),
        }
    }
}

impl Work {
    /// Looks at what a command's answer left behind.
    pub(crate) fn after(&self, reply: &Reply, leaves: Leaves) {
        match reply {
            Reply::Unlinked { ino, nlink: 0 } | Reply::Renamed { replaced: Some((ino, 0)), .. } => self.orphans.look_at([*ino]),
            Reply::Put { replaced: Some(ino), .. } | Reply::Removed { ino: Some(ino) } => self.orphans.look_at([*ino]),
            _ => {}
        }
        if leaves >= Leaves::Orphans {
            self.orphans.look_at_all();
        }
        if leaves >= Leaves::Stripes {
            self.stripes.notify();
        }
    }

    /// Waits for `work`, or for the end: `None` then.
    async fn or_stop<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stop.until(|s| s.then_some(())) => None,
            done = work => Some(done),
        }
    }

    /// The same for what is only waited for: whether to go on.
    async fn unless_stopped(&self, until: impl Future<Output = ()>) -> bool {
        self.or_stop(until).await.is_some()
    }

    /// Whether inline bytes are packed here, so that writers may send some.
    pub(crate) fn packs(&self) -> bool {
        self.packing.load(Ordering::Relaxed)
    }

    /// Waits `grace`, so that what is retired meanwhile goes along; less when space is short. False: it is to stop.
    async fn gather(&self, grace: Duration) -> bool {
        let wait = async {
            tokio::select! {
                biased;
                () = tokio::time::sleep(grace) => {}
                () = self.hurry.notified() => {}
            }
        };
        grace.is_zero() || self.unless_stopped(wait).await
    }

    /// Asks for retired stripes to be deleted now, and for worn ones to be looked at.
    pub(crate) fn hurry(&self) {
        self.hurry.notify();
        self.stripes.notify();
        self.worn.notify();
    }

    fn stopping(&self) -> bool {
        self.stop.get()
    }
}

impl Core {
    /// Runs `work` until it is stopped.
    fn spawn_work(&self, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(work);
        self.work.tasks.lock().push(task);
    }

    /// Starts freeing orphans, beginning with those a former run left.
    pub(crate) fn start_orphans(self: &Arc<Self>) {
        self.work.orphans.look_at_all();
        self.spawn_work(orphans::run(self.clone()));
    }

    /// Starts deleting retired stripes.
    pub(crate) fn start_stripes(self: &Arc<Self>, reaper: Arc<dyn StripeReaper>) {
        self.work.stripes.notify();
        self.spawn_work(stripes::run(self.clone(), reaper));
    }

    /// Starts packing small stripes. From now on writers may send their bytes inline.
    pub(crate) fn start_packs(self: &Arc<Self>, store: Arc<dyn PackStore>) {
        self.work.packing.store(true, Ordering::Relaxed);
        let packing = Packing(self.clone());
        let packs = packs::run(self.clone(), store);
        self.spawn_work(async move {
            let _packing = packing;
            packs.await;
        });
        self.spawn_work(relief::run(self.clone()));
    }

    /// Starts making snapshots in the pool, if the configuration speaks of them.
    pub(crate) fn start_snapshots(self: &Arc<Self>, packs: Arc<dyn PackStore>, store: Arc<dyn SnapshotStore>, code: Code) {
        self.spawn_work(snapshots::run(self.clone(), packs, store, code));
    }

    /// Ends background work; none is left when it returns.
    pub(crate) async fn stop_work(&self) {
        self.work.stop.tell(|s| *s = true);
        let tasks = std::mem::take(&mut *self.work.tasks.lock());
        for t in tasks {
            // A task that panicked is as gone as one that returned.
            let _ = t.await;
        }
    }
}

/// While it is there inline bytes are packed; it goes with the packer, however that ends.
struct Packing(Arc<Core>);

impl Drop for Packing {
    fn drop(&mut self) {
        self.0.work.packing.store(false, Ordering::Relaxed);
    }
}

/// Grows with each failure, up to a bound; back to the start with a success.
struct Backoff(Duration);

impl Backoff {
    fn new() -> Self {
        Self(BACKOFF.0)
    }
    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (self.0 * 2).min(BACKOFF.1);
        now
    }
}
