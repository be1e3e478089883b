//! Folding sealed overlays into the durable file, beside the data thread.
//!
//! What always holds: one overlay at a time, in order; a failed fold is final for the state.
//! What it leaves out: what a fold is (`State::fold`).

use super::overlay::Overlay;
use super::store::Mark;
use super::{State, backend};
use futures::FutureExt;
use holdfast_meta_core::StateError;
use holdfast_meta_log::Blocking;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// One sealed overlay.
pub(super) struct Job {
    pub overlay: Arc<Overlay>,
    pub mark: Mark,
    pub generation: u64,
}

/// The way to the worker.
pub(super) struct Folder {
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    /// Its other end goes with the worker.
    worker: watch::Receiver<()>,
}

/// What the worker runs on.
pub(super) struct Jobs {
    jobs: mpsc::UnboundedReceiver<Job>,
    _worker: watch::Sender<()>,
}

impl Folder {
    pub(super) fn new() -> (Self, Jobs) {
        let (send, jobs) = mpsc::unbounded_channel();
        let (alive, worker) = watch::channel(());
        (Self { jobs: Mutex::new(Some(send)), worker }, Jobs { jobs, _worker: alive })
    }

    /// Whether the worker will do it.
    pub(super) fn send(&self, job: Job) -> bool {
        self.jobs.lock().as_ref().is_some_and(|j| j.send(job).is_ok())
    }

    /// Ends the worker after what it was sent. When this returns it holds the state no more: were it the last to let go of it,
    /// it would still write to the file while the next owner reads it.
    pub(super) async fn end(&self) {
        self.jobs.lock().take();
        let mut worker = self.worker.clone();
        while worker.changed().await.is_ok() {}
    }
}

/// Starts the worker: a thread of its own, or a task where blocking is to be done on the spot. It holds the state only while it
/// folds, and ends with it.
pub(super) fn start(state: &Arc<State>, jobs: Jobs, blocking: Blocking) -> Result<(), StateError> {
    let state = Arc::downgrade(state);
    match blocking {
        Blocking::Here => drop(tokio::spawn(on_task(state, jobs))),
        Blocking::Pool => {
            let thread = std::thread::Builder::new().name("state-fold".into()).spawn(|| on_thread(state, jobs));
            thread.map_err(|e| StateError(format!("start the checkpoint thread: {e}")))?;
        }
    }
    Ok(())
}

fn on_thread(state: Weak<State>, mut jobs: Jobs) {
    backend::mark_plain_thread();
    be_nice();
    while let Some(job) = jobs.jobs.blocking_recv() {
        let Some(state) = state.upgrade() else { return };
        // On a thread of its own a fold blocks and never waits.
        if let Some(Err(e)) = state.fold(job, Pause::Thread).now_or_never() {
            state.fail(&e);
        }
    }
}

async fn on_task(state: Weak<State>, mut jobs: Jobs) {
    while let Some(job) = jobs.jobs.recv().await {
        let Some(state) = state.upgrade() else { return };
        if let Err(e) = state.fold(job, Pause::Task).await {
            state.fail(&e);
        }
    }
}

/// Rows are folded in slices of this many bytes, about a millisecond of work …
pub(super) const SLICE_BYTES: usize = 32 << 10;
/// … with this pause between them: a thread that is always ready to run costs the ones that wait for a flush far more than its share.
const PAUSE: Duration = Duration::from_millis(2);
/// The thread's nice value: beside a thread that serves clients it gets about a tenth of a processor. Not the idle policy, under
/// which it could be kept from running while it holds a lock of the file's cache.
const NICE: i32 = 10;

/// How a fold gives way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pause {
    /// It has a thread to itself, which sleeps.
    Thread,
    /// It is a task among others.
    Task,
}

impl Pause {
    /// Between two slices; a short one when somebody waits for the end.
    pub(super) async fn between_slices(self, hurry: bool) {
        match (self, hurry) {
            (Pause::Thread, true) => {}
            (Pause::Thread, false) => std::thread::sleep(PAUSE),
            (Pause::Task, true) => tokio::task::yield_now().await,
            (Pause::Task, false) => tokio::time::sleep(PAUSE).await,
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
