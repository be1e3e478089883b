//! The metadata state: layers in memory over a durable file, one writer, many readers.
//!
//! What always holds: readers see whole batches only; a batch never waits for the file's writer or its flush; at most one
//! overlay is being folded; the sealed overlay and the file that lacks it are replaced at one moment. The first failure to read or
//! write is final.
//! What it leaves out: what commands mean (`meta/core`), their order and durability (`meta/log`).

mod backend;
mod cover;
mod dump;
mod fold;
mod guarded;
mod layers;
mod machine;
mod overlay;
mod pace;
mod staging;
mod store;
#[cfg(test)]
mod tests;
mod watches;

pub(crate) use backend::mark_plain_thread;
pub(crate) use cover::{Change, Cover};
pub(crate) use dump::{Item, dump_rows};
pub(crate) use layers::Layers;
#[cfg(feature = "fuzzing")]
pub(crate) use machine::encode_reply;
pub(crate) use machine::{decode, decode_reply, encode_request};
pub(crate) use overlay::Overlay;
pub(crate) use staging::{Staged, inline_of};
pub(crate) use store::{Mark, Snapshot, Store};

use crate::image::Root;
use crate::metrics::Metrics;
use crate::service::Snapshots;
use bytes::Bytes;
use fold::{Folder, Job};
use holdfast_meta_core::{StateError, incarnation, initialise, read};
use holdfast_meta_log::Blocking;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::told::Told;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::meta::Inline;
use parking_lot::RwLock;
use staging::{STRIPE_BYTES, Staging};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio::time::Instant;
use watches::Watches;

/// Bounds of the state in memory.
#[derive(Debug, Clone)]
pub struct StateConfig {
    /// A checkpoint begins when the overlay takes this many bytes.
    pub overlay_bytes: usize,
    /// New commands wait while overlays take this many bytes: a fold is behind.
    pub overlay_bytes_max: usize,
    /// Pages of the durable file kept in memory.
    pub cache_bytes: usize,
    /// Inline bytes that may wait to be packed, with what keeping them costs; past it writers are told that there is no room.
    pub staged_bytes_max: usize,
    /// Bytes of the log kept for what cannot be packed, past which it is written to the log anew and no writer sends more inline. The log has to
    /// have room for as much beside what it keeps between two checkpoints.
    pub held_bytes_max: u64,
}

impl StateConfig {
    /// Whether so much is staged that it is to be packed at once: a quarter of either bound.
    pub(crate) fn is_much(&self, now: &Staged) -> bool {
        now.memory_bytes() >= self.staged_bytes_max / 4 || now.held_bytes >= self.held_bytes_max / 4
    }

    /// Whether so much of the log is kept that what is staged is to be written to it anew.
    pub(crate) fn holds_much(&self, now: &Staged) -> bool {
        // Not for the sake of little more than what is written then.
        now.held_bytes >= self.held_bytes_max && now.held_bytes / 4 >= now.memory_bytes() as u64
    }
}

impl Default for StateConfig {
    fn default() -> Self {
        Self {
            overlay_bytes: 32 << 20,
            overlay_bytes_max: 128 << 20,
            cache_bytes: 64 << 20,
            staged_bytes_max: 16 << 20,
            held_bytes_max: 128 << 20,
        }
    }
}

/// Up to where the durable file reaches.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    generation: u64,
    applied: u64,
    /// Set once, with the failure in `State::failure`.
    failed: bool,
}

pub(crate) struct State {
    layers: RwLock<Layers>,
    /// `None`: in memory only, and a checkpoint promises nothing.
    store: Option<Store>,
    folder: Option<Folder>,
    reached: Told<Reached>,
    failure: OnceLock<String>,
    watches: Watches,
    /// Bytes of both overlays.
    overlay_bytes: AtomicUsize,
    /// Inline bytes and what keeping them costs: staged, and in commands on their way.
    staged_bytes: AtomicUsize,
    arriving_bytes: AtomicUsize,
    /// Bytes of the log that are kept for them.
    held_bytes: AtomicU64,
    /// Told when those are too many.
    heavy: Notify,
    /// Told when there is something for the packer to do.
    packable: Notify,
    /// What a snapshot in the pool covers.
    cover: Cover,
    /// Told of every fold that ended.
    folded: Notify,
    config: StateConfig,
    metrics: Metrics,
}

impl State {
    /// A fresh state in memory; of `config` only the bounds on what is staged count.
    pub(crate) fn in_memory(config: StateConfig, metrics: Metrics) -> Result<Arc<Self>, StateError> {
        let mut layers = Layers::default();
        initialise(&mut layers)?;
        let unbounded = StateConfig { overlay_bytes: usize::MAX, overlay_bytes_max: usize::MAX, cache_bytes: 0, ..config };
        Ok(Arc::new(Self::build(layers, None, None, Reached::default(), unbounded, metrics)))
    }

    /// The state in `store`. What is not there was not checkpointed: the log hands it over again.
    pub(crate) fn open(store: Store, config: StateConfig, metrics: Metrics) -> Result<Arc<Self>, StateError> {
        let mut layers = Layers::default();
        let mut reached = Reached::default();
        let blocking = store.blocking();
        if let Some(mark) = store.mark()? {
            reached.applied = mark.applied;
            layers.mark = mark;
            layers.durable = store.snapshot()?;
        }
        // Looks at the rows' version; in a fresh state it makes the same rows every time, until a first checkpoint keeps them.
        initialise(&mut layers)?;
        layers.staging = Staging::listed(read::staged(&layers)?.map_err(|e| StateError(e.to_string()))?);
        store.pace().count_in(metrics.clone());
        let (folder, jobs) = Folder::new();
        let state = Arc::new(Self::build(layers, Some(store), Some(folder), reached, config, metrics));
        fold::start(&state, jobs, blocking)?;
        Ok(state)
    }

    fn build(
        layers: Layers,
        store: Option<Store>,
        folder: Option<Folder>,
        reached: Reached,
        config: StateConfig,
        metrics: Metrics,
    ) -> Self {
        Self {
            layers: RwLock::new(layers),
            store,
            folder,
            reached: Told::new(reached),
            failure: OnceLock::new(),
            watches: Watches::default(),
            overlay_bytes: AtomicUsize::new(0),
            staged_bytes: AtomicUsize::new(0),
            arriving_bytes: AtomicUsize::new(0),
            held_bytes: AtomicU64::new(0),
            heavy: Notify::new(),
            packable: Notify::new(),
            cover: Cover::default(),
            folded: Notify::new(),
            config,
            metrics,
        }
    }

    /// Reads one moment of the state.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&Layers) -> Result<T, StateError>) -> Result<T, StateError> {
        let result = {
            let layers = self.layers.read();
            // Under the lock: a batch that failed half way has told by now.
            self.check()?;
            read(&layers)
        };
        result.inspect_err(|e| self.fail(e))
    }

    /// Changes the state as one batch; begins a checkpoint when it is time for one.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Layers) -> Result<T, StateError>) -> Result<T, StateError> {
        self.check()?;
        let (result, bytes) = {
            let mut layers = self.layers.write();
            let result = change(&mut layers).inspect_err(|e| self.fail(e));
            layers.generation += 1;
            self.count(&layers);
            (result, layers.active.bytes())
        };
        if result.is_ok() && bytes >= self.config.overlay_bytes {
            self.seal();
        }
        result
    }

    /// Notes what the overlays take; under the lock, so that the newest count stays.
    fn count(&self, layers: &Layers) {
        let bytes = layers.overlay_bytes();
        self.overlay_bytes.store(bytes, Ordering::Relaxed);
        self.metrics.overlay_bytes.set(bytes as i64);
        if let Some(store) = &self.store {
            store.pace().came(layers.active.bytes(), self.config.overlay_bytes);
        }
    }

    /// The failure that ended the service, if any.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        match self.failure.get() {
            Some(why) => Err(StateError(why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn fail(&self, e: &StateError) {
        if self.failure.set(e.0.clone()).is_ok() {
            failpoint::reached("meta.state_failed");
            tracing::error!(error = %e.0, "the metadata state failed; the service stops");
        }
        self.reached.tell(|r| r.failed = true);
    }

    /// Waits while the overlays are full.
    pub(crate) async fn room(&self) -> Result<(), StateError> {
        if self.overlay_bytes.load(Ordering::Relaxed) < self.config.overlay_bytes_max {
            return Ok(());
        }
        loop {
            let changed = self.reached.changed();
            self.check()?;
            self.seal();
            if self.overlay_bytes.load(Ordering::Relaxed) < self.config.overlay_bytes_max {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Begins a checkpoint unless one is under way or nothing changed.
    fn seal(&self) {
        let Some(folder) = &self.folder else { return };
        let job = {
            let mut layers = self.layers.write();
            // A batch that failed half way is in the overlay, and its mark is not.
            let failed = self.failure.get().is_some();
            if failed || layers.sealed.is_some() || layers.generation == self.reached.get().generation {
                return;
            }
            let overlay = Arc::new(std::mem::take(&mut layers.active));
            layers.sealed = Some(overlay.clone());
            Job { overlay, mark: layers.mark.clone(), generation: layers.generation }
        };
        if !folder.send(job) {
            self.fail(&StateError("the checkpoint worker has ended".into()));
        }
    }

    /// Folds one sealed overlay; for the worker.
    async fn fold(&self, job: Job, on: fold::On) -> Result<(), StateError> {
        let store = self.store.as_ref().expect("only a state with a file folds");
        let begun = Instant::now();
        tracing::debug!(bytes = job.overlay.bytes(), "a checkpoint begins");
        self.cover.folding(&job.overlay, job.mark.applied);
        on.begin();
        store.fold(&job.overlay, &job.mark, |took| on.between_pieces(store.pace(), took)).await?;
        let snapshot = store.snapshot()?;
        let old = {
            let mut layers = self.layers.write();
            let old = (std::mem::replace(&mut layers.durable, snapshot), layers.sealed.take());
            self.count(&layers);
            old
        };
        // Freed outside the lock: a large tree takes a while.
        drop(old);
        self.metrics.checkpoints.inc();
        self.metrics.checkpoint_bytes.inc_by(job.overlay.bytes() as u64);
        self.metrics.checkpoint_us.inc_by(begun.elapsed().as_micros() as u64);
        tracing::debug!(took_ms = begun.elapsed().as_millis() as u64, "a checkpoint is over");
        self.reached.tell(|r| {
            r.generation = job.generation;
            r.applied = job.mark.applied;
        });
        self.folded.notify_one();
        Ok(())
    }

    /// Makes all that is applied now durable; the index of the last command in it.
    pub(crate) async fn checkpoint(&self) -> Result<u64, StateError> {
        let (want, applied) = {
            let layers = self.layers.read();
            (layers.generation, layers.mark.applied)
        };
        if self.folder.is_none() {
            return Ok(applied);
        }
        loop {
            let changed = self.reached.changed();
            self.check()?;
            let now = self.reached.get();
            if now.generation >= want {
                return Ok(now.applied);
            }
            self.seal();
            // A failure is told through it too.
            changed.await;
        }
    }

    /// The newest durable commit that holds all applied now, for as long as it is wanted; what is written meanwhile goes on behind it.
    pub(crate) async fn image(&self) -> Result<(Mark, Snapshot), StateError> {
        self.checkpoint().await?;
        let store = self.store.as_ref().ok_or_else(|| StateError("a state in memory has no image".into()))?;
        store.image()?.ok_or_else(|| StateError("nothing was ever written".into()))
    }

    /// The newest durable commit as it is; `None` before the first. Blocks for a moment.
    pub(crate) fn newest_image(&self) -> Result<Option<(Mark, Snapshot)>, StateError> {
        self.store.as_ref().map_or(Ok(None), Store::image)
    }

    /// Index of the last command in the newest durable commit.
    pub(crate) fn durable(&self) -> u64 {
        self.reached.get().applied
    }

    /// Takes up what a snapshot covers: the newest root, if it is of this state.
    pub(crate) fn begin_cover(&self, snapshots: &mut Snapshots) -> Result<(), StateError> {
        let durable = self.durable();
        let now = self.view(|kv| incarnation(kv))?;
        snapshots.roots.retain(|r| r.incarnation == now && r.applied() <= durable);
        let covered = snapshots.roots.iter().max_by_key(|r| r.number).map_or(0, Root::applied);
        self.cover.begin(covered, durable);
        Ok(())
    }

    pub(crate) fn cover(&self) -> &Cover {
        &self.cover
    }

    /// Somebody wants a snapshot now.
    pub(crate) fn folded_or_asked(&self) {
        self.folded.notify_one();
    }

    /// Waits until a fold has ended, or a snapshot is asked for; may come for nothing.
    pub(crate) async fn folded(&self) {
        self.folded.notified().await;
    }

    /// Where work that blocks is to be done.
    pub(crate) fn blocking(&self) -> Blocking {
        self.store.as_ref().map_or(Blocking::Here, Store::blocking)
    }

    /// From now on folds give way to nobody: the service is stopping.
    pub(crate) fn hurry(&self) {
        if let Some(store) = &self.store {
            store.pace().hurry();
        }
    }

    /// Checkpoints and ends the fold worker. Later batches fail. The file is let go of with the last reference the caller has.
    pub(crate) async fn close(&self) -> Result<(), StateError> {
        self.hurry();
        self.checkpoint().await?;
        if let Some(folder) = &self.folder {
            folder.end().await;
        }
        Ok(())
    }

    pub(crate) fn overlay_bytes(&self) -> usize {
        self.overlay_bytes.load(Ordering::Relaxed)
    }

    /// Notes what is staged, and tells the packer when it is the first of it, or much.
    fn staged_changed(&self, layers: &Layers, was_empty: bool, sparse: bool) {
        let now = layers.staging.now();
        self.staged_bytes.store(now.memory_bytes(), Ordering::Relaxed);
        self.held_bytes.store(now.held_bytes, Ordering::Relaxed);
        if self.config.holds_much(&now) {
            self.heavy.notify_one();
        }
        self.metrics.staged_bytes.set(now.bytes as i64);
        let first = was_empty && now.stripes > 0;
        if first || sparse || self.config.is_much(&now) {
            self.packable.notify_one();
        }
    }

    /// What is staged now.
    pub(crate) fn staged_now(&self) -> Staged {
        self.layers.read().staging.now()
    }

    /// Inline bytes of one stripe.
    pub(crate) fn staged(&self, id: StripeId) -> Option<Bytes> {
        self.layers.read().staging.get(id)
    }

    /// All inline bytes, oldest first.
    pub(crate) fn staged_all(&self) -> Vec<Inline> {
        self.layers.read().staging.all().collect()
    }

    /// Staged stripes whose bytes the log did not show.
    pub(crate) fn staged_lacking(&self) -> usize {
        self.layers.read().staging.lacking()
    }

    /// Gives up staged stripes whose bytes the log did not show: reading them fails from now on. How many.
    pub(crate) fn give_up_lacking(&self) -> usize {
        let mut layers = self.layers.write();
        let lost = layers.staging.give_up();
        self.staged_changed(&layers, true, false);
        lost
    }

    /// Of these stripes those whose bytes were not given up.
    pub(crate) fn without_lost(&self, ids: Vec<(u64, StripeId)>) -> Vec<StripeId> {
        let layers = self.layers.read();
        ids.into_iter().map(|(_, id)| id).filter(|id| !layers.staging.is_lost(*id)).collect()
    }

    /// Whether so many inline bytes more are within the bounds of memory and of the log.
    pub(crate) fn staged_room(&self, bytes: usize) -> bool {
        let taken = self.staged_bytes.load(Ordering::Relaxed) + self.arriving_bytes.load(Ordering::Relaxed);
        let held = self.held_bytes.load(Ordering::Relaxed);
        taken.saturating_add(bytes + STRIPE_BYTES) <= self.config.staged_bytes_max && held < self.config.held_bytes_max
    }

    /// Counts inline stripes of a command on its way, until what it answers is dropped.
    pub(crate) fn arriving(&self, inline: &[Inline]) -> Arriving<'_> {
        let bytes = inline.iter().map(|i| i.data.len() + STRIPE_BYTES).sum();
        self.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
        Arriving { state: self, bytes }
    }

    /// Waits until there is something for the packer to do; may come for nothing.
    pub(crate) async fn packable(&self) {
        self.packable.notified().await;
    }

    /// Waits until too much of the log is kept for what is staged; may come for nothing.
    pub(crate) async fn heavy(&self) {
        self.heavy.notified().await;
    }
}

/// See [`State::arriving`].
pub(crate) struct Arriving<'a> {
    state: &'a State,
    bytes: usize,
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.state.arriving_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
