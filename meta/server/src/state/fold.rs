//! The thread that folds sealed overlays into the durable file.
//!
//! What always holds: one overlay at a time, in order; a failed fold is final for the state.
//! What it leaves out: what a fold is (`State::fold`).

use super::overlay::Overlay;
use super::store::Mark;
use super::{State, backend};
use holdfast_meta_core::StateError;
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::watch;

/// One sealed overlay.
pub(super) struct Job {
    pub overlay: Arc<Overlay>,
    pub mark: Mark,
    pub generation: u64,
}

/// The way to the thread.
pub(super) struct Folder {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    /// Its other end goes with the thread.
    thread: watch::Receiver<()>,
}

/// What the thread runs on.
pub(super) struct Jobs {
    jobs: mpsc::Receiver<Job>,
    _thread: watch::Sender<()>,
}

impl Folder {
    pub(super) fn new() -> (Self, Jobs) {
        let (send, jobs) = mpsc::channel();
        let (alive, thread) = watch::channel(());
        (Self { jobs: Mutex::new(Some(send)), thread }, Jobs { jobs, _thread: alive })
    }

    /// Whether the thread will do it.
    pub(super) fn send(&self, job: Job) -> bool {
        self.jobs.lock().as_ref().is_some_and(|j| j.send(job).is_ok())
    }

    /// Ends the thread after what it was sent. When this returns it holds the state no more: were it the last to let go of it,
    /// it would still write to the file while the next owner reads it.
    pub(super) async fn end(&self) {
        self.jobs.lock().take();
        let mut thread = self.thread.clone();
        while thread.changed().await.is_ok() {}
    }
}

/// Starts the thread. It holds the state only while it folds, and ends with it.
pub(super) fn start(state: &Arc<State>, jobs: Jobs) -> Result<(), StateError> {
    let state = Arc::downgrade(state);
    let work = move || {
        // Whole, so that both go when the thread ends.
        let jobs = jobs;
        backend::mark_plain_thread();
        be_nice();
        while let Ok(job) = jobs.jobs.recv() {
            let Some(state) = state.upgrade() else { return };
            if let Err(e) = state.fold(job) {
                state.fail(&e);
            }
        }
    };
    std::thread::Builder::new()
        .name("state-fold".into())
        .spawn(work)
        .map(drop)
        .map_err(|e| StateError(format!("start the checkpoint thread: {e}")))
}

/// Rows are folded in slices of this many bytes, about a millisecond of work …
const SLICE_BYTES: usize = 32 << 10;
/// … with this pause between them: a thread that is always ready to run costs the ones that wait for a flush far more than its share.
const PAUSE: Duration = Duration::from_millis(2);
/// The thread's nice value: beside a thread that serves clients it gets about a tenth of a processor. Not the idle policy, under
/// which it could be kept from running while it holds a lock of the file's cache.
const NICE: i32 = 10;

/// Gives way to others between slices, unless somebody waits for the end.
pub(super) struct Pace<'a> {
    state: &'a State,
    slice: usize,
}

impl<'a> Pace<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self { state, slice: 0 }
    }

    pub(super) fn did(&mut self, bytes: usize) {
        self.slice += bytes;
        if self.slice >= SLICE_BYTES {
            self.slice = 0;
            if !self.state.in_a_hurry() {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Lets other threads of the machine go first.
fn be_nice() {
    // SAFETY: the call has no memory to be safe about; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        tracing::debug!("the checkpoint thread keeps its priority");
    }
}
