//! What an OSD does in the background: checkpoints of its index, giving dead segments back, cleaning others (`clean`).
//!
//! What always holds: nothing here runs on a timer; it is begun by appends and deletes. A checkpoint that could not be
//! written is tried again after as many bytes; only the log's own failure takes the OSD out of service.

use super::osd::{Inner, Osd};
use super::snapshot;
use crate::log::{self, Location};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Shards copied into a checkpoint under one lock.
const PIECE: usize = 2048;
/// Dead segments kept only by their deletes, beyond which a checkpoint is made to let them go.
const PINNED_MAX: usize = 4;

/// Between two pieces of a checkpoint others have the device so many times as long as the piece took, within these bounds.
const PAUSE_TIMES: u32 = 4;
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// What there is to do.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Bytes appended since the last checkpoint began.
    pub bytes: u64,
    /// Bytes appended since the start.
    pub appended: u64,
    /// A shard was deleted or replaced.
    pub something_died: bool,
    /// The segment appended to last: once it changes, the one before may be given back.
    pub life: u32,
    pub new_segment: bool,
    pub running: bool,
    /// Asked for again while running.
    pub again: bool,
}

impl Due {
    pub fn appended(&mut self, at: &Location) {
        self.bytes += at.stored_bytes();
        self.appended += at.stored_bytes();
        if at.position.life > self.life {
            self.life = at.position.life;
            self.new_segment = true;
        }
    }
}

impl Due {
    /// Ends a run unless another was asked for meanwhile. In one step: whoever asks sees it running and is heard, or begins a new run.
    fn ended(&mut self) -> bool {
        self.running = std::mem::take(&mut self.again);
        !self.running
    }
}

impl Inner {
    /// Begins the housekeeper when there is something for it.
    pub(super) fn housekeep(self: &Arc<Self>) {
        {
            let mut st = self.state.lock();
            let due = st.keeping.bytes >= self.config.checkpoint_bytes || st.keeping.something_died || st.keeping.new_segment;
            if !due {
                return;
            }
            if st.keeping.running {
                st.keeping.again = true;
                return;
            }
            st.keeping.running = true;
        }
        let this = self.clone();
        self.log.runtime().spawn(async move {
            let mut running = Running { inner: this.clone(), ended: false };
            loop {
                if let Err(e) = this.keep_house().await {
                    tracing::warn!(osd = %this.id(), error = %e, "housekeeping");
                }
                if this.state.lock().keeping.ended() {
                    running.ended = true;
                    return;
                }
            }
        });
    }

    /// After a refusal for want of room for `bytes`: gives back what can be, now, or waits for who is at it, and answers whether
    /// another try is worth it.
    pub(super) async fn make_room(self: &Arc<Self>, bytes: u64) -> bool {
        let before = self.state.lock().cleaning.given_back;
        let _pressing = Pressing::begin(&self.pressing);
        let came = || self.state.lock().cleaning.given_back != before || self.log.space().free > bytes + self.log.segment_room();
        loop {
            let mut rung = std::pin::pin!(self.eased.notified());
            rung.as_mut().enable();
            if came() {
                return true;
            }
            let held = tokio::select! {
                biased;
                one = self.housekeeper.acquire() => Some(one.expect("never closed")),
                () = rung => None,
            };
            if held.is_some() {
                let kept = self.keep_house_pressed(true).await;
                return kept.is_ok() && came();
            }
            if came() {
                return true;
            }
        }
    }

    pub(super) async fn keep_house(self: &Arc<Self>) -> log::Result<()> {
        let _one = self.housekeeper.acquire().await.expect("never closed");
        self.keep_house_pressed(false).await
    }

    /// The caller holds the housekeeper.
    async fn keep_house_pressed(self: &Arc<Self>, pressed: bool) -> log::Result<()> {
        let _rings = Rings(self);
        let due = {
            let mut st = self.state.lock();
            st.keeping.something_died = false;
            st.keeping.new_segment = false;
            st.keeping.bytes >= self.config.checkpoint_bytes
        };
        if due {
            self.checkpoint().await?;
        }
        self.let_go(false).await?;
        self.clean(pressed).await
    }

    /// Gives dead segments back. `pressed`: also those that only deletes or copies in them keep.
    pub(super) async fn let_go(self: &Arc<Self>, pressed: bool) -> log::Result<()> {
        self.retire_dead().await?;
        // Two checkpoints later no recovery needs the deletes they stand behind.
        for _ in 0..2 {
            let pinned = self.pinned_dead();
            let allowed = PINNED_MAX.min(self.log.space().segments_normal as usize / 16);
            let enough = pinned > allowed || pinned > 0 && (pressed || self.log.space().free == 0);
            if !enough || !self.checkpoint().await? {
                break;
            }
            self.retire_dead().await?;
        }
        Ok(())
    }

    /// Sealed segments without a live shard that only deletes (or fences) keep, which two checkpoints would free.
    fn pinned_dead(&self) -> usize {
        let (segments, covered) = (self.log.segments(), self.log.covered_twice());
        let st = self.state.lock();
        let kept = |life: u32| st.index.lives.get(&life).is_some_and(|l| l.live_bytes == 0 && l.pinned(covered));
        segments.iter().filter(|s| s.settled && kept(s.life)).count()
    }

    async fn retire_dead(self: &Arc<Self>) -> log::Result<()> {
        loop {
            let (segments, covered) = (self.log.segments(), self.log.covered_twice());
            let dead: Vec<u32> = {
                let st = self.state.lock();
                segments.iter().filter(|s| s.settled && st.index.dead(s.life, covered)).map(|s| s.life).collect()
            };
            if dead.is_empty() {
                return Ok(());
            }
            for life in dead {
                self.log.retire(life).await?;
                // Only now: what this segment's shards pinned elsewhere is free.
                let mut st = self.state.lock();
                st.index.retired(life);
                st.cleaning.given_back += 1;
                drop(st);
                self.ease();
            }
        }
    }

    /// Leaves the device to others for a multiple of the time that a piece of a checkpoint took, unless somebody waits for its end.
    async fn give_way(&self, took: Duration) {
        if self.pressing.load(Ordering::Relaxed) == 0 {
            self.metrics.checkpoint_pauses.inc();
            tokio::time::sleep((took * PAUSE_TIMES).clamp(PAUSE.0, PAUSE.1)).await;
        }
    }

    /// Stores the index. False when the slot could not be written: the one before stays, and a start reads more.
    async fn checkpoint(self: &Arc<Self>) -> log::Result<bool> {
        self.state.lock().keeping.bytes = 0;
        // What is indexed from here on may or may not get into the pieces; it is behind the mark and will be read again.
        let mark = self.log.mark();
        let mut writer = snapshot::Writer::new(&self.state.lock().index);
        while {
            let st = self.state.lock();
            writer.piece(&st.index, PIECE)
        } {
            tokio::task::yield_now().await;
        }
        let bytes = writer.finish(&self.state.lock().index);
        match self.log.checkpoint_in_pieces(mark, bytes.into(), |took| self.give_way(took)).await {
            Ok(()) => {
                self.metrics.checkpoints.inc();
                Ok(true)
            }
            Err(log::Error::Io(e)) => {
                failpoint::reached("osd.checkpoint_failed");
                tracing::warn!(osd = %self.id(), error = %e, "no checkpoint of the index");
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

/// Lets go whoever waits for the housekeeper's work, however it ends.
struct Rings<'a>(&'a Inner);

impl Drop for Rings<'_> {
    fn drop(&mut self) {
        self.0.ease();
    }
}

/// While it is there somebody waits for the housekeeper.
struct Pressing<'a>(&'a AtomicU32);

impl<'a> Pressing<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Pressing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A run of the housekeeper; one whose runtime goes away does not keep the next from beginning.
struct Running {
    inner: Arc<Inner>,
    /// It says so already, and another run may have begun.
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.inner.state.lock().keeping.running = false;
        }
    }
}

impl Osd {
    /// Flushes, stores a checkpoint so that the next start reads nothing, and waits for background work. Callers must have
    /// stopped.
    pub async fn close(&self) -> Result<()> {
        let inner = &self.0;
        let work = async {
            inner.log.flush().await?;
            let _pressing = Pressing::begin(&inner.pressing);
            let _one = inner.housekeeper.acquire().await.expect("never closed");
            if inner.state.lock().keeping.bytes > 0 {
                inner.checkpoint().await?;
            }
            inner.log.close().await
        };
        work.await.map_err(|e| inner.refused(e))
    }

    /// Takes it out of service at once and for good, whatever it has in hand; completes when nothing of it is being written any more, so
    /// that its place may be given to another.
    pub async fn stop(&self, why: &str) {
        let inner = &self.0;
        inner.state.lock().failure.get_or_insert(why.into());
        inner.log.stop(why).await;
        // What cleaning or a checkpoint still had in hand ends with an error.
        drop(inner.housekeeper.acquire().await);
        inner.log.stop(why).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Due;

    #[test]
    fn a_run_ends_in_the_step_that_finds_nothing_more_asked_for() {
        let mut due = Due { running: true, again: true, ..Due::default() };
        assert!(!due.ended() && due.running && !due.again, "asked for again: it goes on");
        assert!(due.ended() && !due.running, "the next to ask begins a run");
    }
}
