//! The thread that folds sealed overlays into the durable file.
//!
//! What always holds: one overlay at a time, in order; a failed fold is final for the state.
//! What it leaves out: what a fold is (`State::fold`).

use super::overlay::Overlay;
use super::store::Mark;
use super::{State, backend};
use holdfast_meta_core::StateError;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Rows are folded in slices of this many bytes …
const SLICE_BYTES: usize = 128 << 10;
/// … with this pause between them, so that a fold leaves the processor to those who wait for an answer (at most 128 MB/s).
const PAUSE: Duration = Duration::from_millis(1);

/// Gives way to others between slices, unless somebody waits for the end.
pub(super) struct Pace<'a> {
    hurry: &'a AtomicBool,
    slice: usize,
}

impl<'a> Pace<'a> {
    pub(super) fn new(hurry: &'a AtomicBool) -> Self {
        Self { hurry, slice: 0 }
    }

    pub(super) fn did(&mut self, bytes: usize) {
        self.slice += bytes;
        if self.slice >= SLICE_BYTES {
            self.slice = 0;
            if !self.hurry.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
            }
        }
    }
}
