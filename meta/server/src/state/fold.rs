//! Folding sealed overlays into the durable file, beside the data thread.
//!
//! What always holds: one overlay at a time, in order; a failed fold is final for the state.
//! What it leaves out: what a fold is (`State::fold`).

use super::overlay::Overlay;
use super::pace::Pace;
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
        if let Some(Err(e)) = state.fold(job, On::Thread).now_or_never() {
            state.fail(&e);
        }
    }
}

async fn on_task(state: Weak<State>, mut jobs: Jobs) {
    while let Some(job) = jobs.jobs.recv().await {
        let Some(state) = state.upgrade() else { return };
        if let Err(e) = state.fold(job, On::Task).await {
            state.fail(&e);
        }
    }
}

/// The thread's nice value: beside a thread that serves clients it gets about a tenth of a processor. Not the idle policy, under
/// which it could be kept from running while it holds a lock of the file's cache.
const NICE: i32 = 10;

/// What a fold runs on.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    /// A thread to itself, which sleeps.
    Thread,
    /// It is a task among others.
    Task,
}

impl On {
    pub(super) fn begin(self) {
        if let On::Thread = self {
            Pace::begin();
        }
    }

    /// Between two pieces; the last one took so long.
    pub(super) async fn between_pieces(self, pace: &Pace, took: Duration) {
        match self {
            On::Thread => pace.sleep(),
            On::Task => pace.wait(took).await,
        }
    }
}

/// Lets other threads of the machine go first.
fn be_nice() {
    // SAFETY: the call has no memory to be safe about; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        tracing::debug!("the checkpoint thread keeps its priority");
    }
    // A batch thread that wakes up does not take the processor from the one that runs.
    let plain = libc::sched_param { sched_priority: 0 };
    // SAFETY: `plain` outlives the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &plain) } != 0 {
        tracing::debug!("the checkpoint thread keeps its scheduling policy");
    }
}
