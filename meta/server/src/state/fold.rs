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

/// One sealed overlay.
pub(super) struct Job {
    pub overlay: Arc<Overlay>,
    pub mark: Mark,
    pub generation: u64,
}

/// The way to the thread.
pub(super) struct Folder {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
}

impl Folder {
    pub(super) fn new() -> (Self, mpsc::Receiver<Job>) {
        let (send, receive) = mpsc::channel();
        (Self { jobs: Mutex::new(Some(send)) }, receive)
    }

    /// Whether the thread will do it.
    pub(super) fn send(&self, job: Job) -> bool {
        self.jobs.lock().as_ref().is_some_and(|j| j.send(job).is_ok())
    }

    /// The thread ends after what it was sent.
    pub(super) fn end(&self) {
        self.jobs.lock().take();
    }
}

/// Starts the thread. It holds the state only while it folds, and ends with it.
pub(super) fn start(state: &Arc<State>, jobs: mpsc::Receiver<Job>) -> Result<(), StateError> {
    let state = Arc::downgrade(state);
    let work = move || {
        backend::mark_plain_thread();
        be_nice();
        while let Ok(job) = jobs.recv() {
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
