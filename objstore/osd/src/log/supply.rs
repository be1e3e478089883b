//! Where the next segment comes from: recycled where one is free, made where it may be, ahead of need.
//!
//! What always holds: a segment enters service after its zeroes, its length, its directory entry and its header are
//! stable. A failure for want of room is not a failure of the log; any other is.

use super::config::{Blocking, Config};
use super::format::root::Root;
use super::format::segment::{Header, State as HeaderState};
use super::segment::{self, ROOT_FILE, Segment};
use super::state::{Shared, State, Supply};
use super::writer::Need;
use super::{Error, Result};
use holdfast_objstore_base::disk::{self, DiskError, Open};
use std::sync::Arc;

/// Refused appends between two attempts to make a segment on a full device, at most.
const BACKOFF_MAX: u32 = 256;

/// What is prepared in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The next segment.
    Next,
    /// A segment file beyond that.
    FileAhead,
}

enum Source {
    Free(Arc<Segment>),
    Raw(u32),
    New(u32),
}

impl State {
    /// Whether there is a segment to prepare.
    pub fn can_prepare(&self, config: &Config) -> bool {
        let in_use = self.segments.len() + self.spare.is_some() as usize;
        in_use < config.segments_max as usize && (!self.free.is_empty() || !self.raw.is_empty() || self.files < config.segments_max)
    }

    /// Whether an attempt is due: always, but after one that found no room only now and then, unless a retired segment is at hand.
    pub fn may_try(&self) -> bool {
        !self.supply.starved || !self.free.is_empty() || self.supply.retry_after == 0
    }

    /// Segments that may be in service for a record of this need to get a new one. On a device without room for more files than there
    /// are, the reserve is kept of those, as far as it was made ready.
    pub fn limit(&self, config: &Config, need: Need) -> usize {
        let kept = config.kept(need) as usize;
        if self.supply.starved {
            (self.files.min(config.segments_max) as usize).saturating_sub(kept.min(self.ahead(config)))
        } else {
            config.segments_max as usize - kept
        }
    }

    /// Segment files to have ready now.
    pub fn ahead(&self, config: &Config) -> usize {
        let half = self.segments.len() * 2 >= config.segments_max as usize;
        config.segments_ahead.max(if half { config.kept(Need::Ordinary) } else { 0 }) as usize
    }

    /// Whether one more is to be made ready.
    fn short_of_files(&self, config: &Config) -> bool {
        let tried = self.supply.starved && self.supply.retry_after > 0;
        let room = self.segments.len() + self.spare.is_some() as usize + self.free.len() < config.segments_max as usize;
        let source = !self.raw.is_empty() || self.files < config.segments_max;
        !tried && room && source && self.free.len() < self.ahead(config)
    }

    /// What an attempt would be made at now; the next segment comes first.
    pub fn to_prepare(&self, config: &Config) -> Option<What> {
        if self.preparing || self.failed.is_some() {
            None
        } else if self.spare.is_none() {
            (self.can_prepare(config) && self.may_try()).then_some(What::Next)
        } else {
            self.short_of_files(config).then_some(What::FileAhead)
        }
    }

    fn source(&mut self) -> Source {
        if let Some(segment) = self.free.pop_front() {
            return Source::Free(segment);
        }
        match self.raw.pop_front() {
            Some(number) => Source::Raw(number),
            None => Source::New(self.files),
        }
    }
}

impl Shared {
    /// Prepares the next segment when the active one is a quarter full and none is at hand.
    pub fn kick_supply(self: &Arc<Self>) {
        let due = {
            let st = self.state.lock();
            st.spare.is_none() && !st.preparing && st.active.as_ref().is_none_or(|a| a.next_block > self.config.segment_blocks() / 4)
        };
        if due {
            self.prepare_now();
        }
    }

    /// Begins to prepare what is due, unless it is under way or not to be had.
    pub fn prepare_now(self: &Arc<Self>) {
        let what = {
            let mut st = self.state.lock();
            let Some(what) = st.to_prepare(&self.config) else { return };
            st.preparing = true;
            what
        };
        let next = PreparationEnds { shared: self.clone(), outcome: None };
        self.spawn(move |shared| async move {
            shared.prepare_all(what, next).await;
            // Bounds how far the durable number can fall behind when nobody flushes.
            super::Log(shared).flush().await.map(|_| ())
        });
    }

    /// One thing after the other while there is something due.
    async fn prepare_all(self: &Arc<Self>, mut what: What, mut ends: PreparationEnds) {
        loop {
            ends.outcome = Some(match what {
                What::Next => self.prepare().await.map(|(segment, recycled)| Prepared::Next { segment, recycled }),
                What::FileAhead => self.fill_ahead().await.map(Prepared::File),
            });
            drop(ends);
            {
                let mut st = self.state.lock();
                // The next segment is prepared when the one in hand is used, not at once.
                match st.to_prepare(&self.config) {
                    Some(What::FileAhead) => st.preparing = true,
                    _ => return,
                }
            }
            what = What::FileAhead;
            ends = PreparationEnds { shared: self.clone(), outcome: None };
        }
    }

    /// Makes the file of a segment, for later.
    async fn fill_ahead(self: &Arc<Self>) -> Result<Segment> {
        let (raw, files) = {
            let mut st = self.state.lock();
            (st.raw.pop_front(), st.files)
        };
        match raw {
            Some(number) => self.fill(number, false).await.inspect_err(|_| self.state.lock().raw.push_front(number)),
            None => self.fill(files, true).await,
        }
    }

    /// Makes or recycles one segment and puts its header, in service under a new life, on stable media.
    /// Answers with it whether it was recycled.
    pub(super) async fn prepare(self: &Arc<Self>) -> Result<(Segment, bool)> {
        let (source, life, seq_floor) = {
            let mut st = self.state.lock();
            let life = st.life_next;
            st.life_next += 1;
            (st.source(), life, st.seq_next)
        };
        let recycled = matches!(source, Source::Free(_));
        let blank = match source {
            Source::Free(segment) => segment,
            Source::Raw(number) => match self.fill(number, false).await {
                Ok(s) => Arc::new(s),
                Err(e) => {
                    self.state.lock().raw.push_front(number);
                    return Err(e);
                }
            },
            Source::New(number) => Arc::new(self.fill(number, true).await?),
        };
        match blank.enter(life, HeaderState::InService, seq_floor).await {
            Ok(segment) => {
                let counter = if recycled { &self.counters.segments_recycled } else { &self.counters.segments_created };
                counter.inc();
                Ok((segment, recycled))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Makes the file of a segment: zeroes, length and name stable, no header yet. Where there is no room a `new` file is removed again.
    async fn fill(self: &Arc<Self>, number: u32, new: bool) -> Result<Segment> {
        let bytes = self.config.segment_bytes;
        let file = self
            .blocking(move |s| {
                let path = segment::path_of(&s.dir, number);
                let had = if s.disk.exists(&path) { s.disk.open(&path, Open::Existing)?.len()? } else { 0 };
                // Asked first, so that a nearly full device is not filled up and emptied again at every attempt.
                if s.disk.space(&s.dir)?.free < bytes.saturating_sub(had) {
                    return Err(Error::Full);
                }
                let file = s.disk.open(&path, Open::Create)?;
                file.set_len(bytes)?;
                Ok(file)
            })
            .await?;
        let filled = async {
            disk::write_zeroes(&*file, 0, bytes).await?;
            file.flush_all().await
        };
        if let Err(e) = filled.await {
            if e.is_no_space() && new {
                self.blocking(move |s| Ok(s.disk.remove(&segment::path_of(&s.dir, number))?)).await?;
            }
            return Err(e.into());
        }
        self.blocking(move |s| {
            s.disk.sync_dir(&s.dir)?;
            s.write_root(|st| st.files = st.files.max(number + 1))
        })
        .await?;
        let blocks = self.config.segment_blocks();
        let header = Header { log_id: self.id, number, life: 0, state: HeaderState::Free, blocks, generation: 0, seq_floor: 0 };
        Ok(Segment { header, file })
    }

    /// Changes what the root says and writes it. Blocks.
    pub fn write_root(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let _one = self.root_writes.lock();
        let root = {
            let mut st = self.state.lock();
            change(&mut st);
            Root {
                log_id: self.id,
                segment_bytes: self.config.segment_bytes,
                epoch: self.epoch,
                segments: st.files,
                life_next: st.life_next,
                checkpointed: st.checkpointed,
            }
        };
        Ok(self.disk.write_small(&self.dir.join(ROOT_FILE), &root.encode(), 0o644)?)
    }

    /// Runs calls that may block, where the configuration says.
    pub async fn blocking<T: Send + 'static>(self: &Arc<Self>, work: impl FnOnce(Arc<Shared>) -> Result<T> + Send + 'static) -> Result<T> {
        let shared = self.clone();
        match self.config.blocking {
            Blocking::Here => work(shared),
            Blocking::Pool => match tokio::task::spawn_blocking(move || work(shared)).await {
                Ok(answer) => answer,
                Err(e) => Err(Error::Failed(format!("a background call ended: {e}"))),
            },
        }
    }

    /// Runs background work; [`super::Log::close`] waits for it.
    pub fn spawn<F>(self: &Arc<Self>, work: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.state.lock().tasks += 1;
        let done = TaskDone(self.clone());
        let work = work(self.clone());
        self.runtime.spawn(async move {
            let _done = done;
            // Failures that matter have taken the log out of service already.
            if let Err(e) = work.await {
                tracing::debug!(error = %e, "background work of a log ended");
            }
        });
    }
}

/// What a preparation came to.
enum Prepared {
    Next { segment: Segment, recycled: bool },
    File(Segment),
}

/// Reports the outcome of a preparation, also of one whose runtime went away.
struct PreparationEnds {
    shared: Arc<Shared>,
    outcome: Option<Result<Prepared>>,
}

impl State {
    fn prepared(&mut self, what: Prepared) {
        let new = match what {
            Prepared::Next { segment, recycled } => {
                self.spare = Some(Arc::new(segment));
                !recycled
            }
            Prepared::File(segment) => {
                self.free.push_back(Arc::new(segment));
                true
            }
        };
        // A segment that was there before says nothing about the device's room, but the next attempt is worth it again.
        self.supply = Supply { starved: self.supply.starved && !new, ..Supply::default() };
    }
}

impl Drop for PreparationEnds {
    fn drop(&mut self) {
        let mut failure = None;
        {
            let mut st = self.shared.state.lock();
            st.preparing = false;
            match self.outcome.take() {
                Some(Ok(what)) => st.prepared(what),
                Some(Err(e)) if segment::no_room(&e) => {
                    st.supply.starved = true;
                    st.supply.backoff = (st.supply.backoff * 2).clamp(1, BACKOFF_MAX);
                    st.supply.retry_after = st.supply.backoff;
                }
                Some(Err(e)) => failure = Some(e),
                None => {}
            }
        }
        match failure {
            Some(Error::Io(DiskError::Poisoned { why, .. })) => drop(self.shared.fail(format!("a flush failed: {why}"))),
            Some(e) => drop(self.shared.fail(format!("a segment could not be prepared: {e}"))),
            None => self.shared.changed.notify_waiters(),
        }
    }
}

struct TaskDone(Arc<Shared>);

impl Drop for TaskDone {
    fn drop(&mut self) {
        self.0.state.lock().tasks -= 1;
        self.0.changed.notify_waiters();
    }
}
