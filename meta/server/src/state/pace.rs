//! How a fold gives way to those who wait for a flush.
//!
//! A fold works in pieces and pauses after each, for a multiple of the time that the piece took: so it takes a bounded share of the device and of a
//! processor however slow they are. The pauses get shorter as the next fold comes due, or as the log fills up, and end before either is in trouble.
//!
//! What always holds: no write of a fold is larger than [`PIECE_BYTES`], and no more than that is written between two pauses while nobody hurries it.
//! What it leaves out: what is written (`store`, redb).

use super::State;
use crate::metrics::Metrics;
use holdfast_meta_log::Fill;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of rows that are folded, and bytes that are written, between two pauses.
pub(super) const PIECE_BYTES: usize = 32 << 10;
/// A pause is so many times as long as what came before it …
const TIMES: u32 = 4;
/// … within these bounds: a thread that is always ready to run costs the ones that wait for a flush far more than its share.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// All of something, in thousandths.
const WHOLE: u32 = 1000;

thread_local! {
    /// Since when this thread works on a fold without a pause, and what it wrote.
    static PIECE: Cell<Option<(Instant, usize)>> = const { Cell::new(None) };
}

#[derive(Default)]
pub(super) struct Pace {
    /// What came in since the overlay was sealed, in thousandths of what the next one may hold.
    come: AtomicU32,
    /// How far the log is from having no room.
    log: OnceLock<Fill>,
    /// Somebody waits for the end.
    hurry: AtomicBool,
    metrics: OnceLock<Metrics>,
}

impl Pace {
    /// Counts in the service's metrics.
    pub fn count_in(&self, metrics: Metrics) {
        let _ = self.metrics.set(metrics);
    }

    /// From now on nothing gives way.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    /// Notes what came in since the overlay was sealed, of as much as would seal the next.
    pub fn came(&self, bytes: usize, of: usize) {
        let part = (bytes as u64).saturating_mul(WHOLE as u64) / (of.max(1) as u64);
        self.come.store(part.min(WHOLE as u64) as u32, Ordering::Relaxed);
    }

    /// Where it learns how full the log is.
    pub fn look_at(&self, log: Fill) {
        let _ = self.log.set(log);
    }

    /// How urgent the end of a fold is, in thousandths.
    fn urgency(&self) -> u32 {
        if self.hurry.load(Ordering::Relaxed) {
            return WHOLE;
        }
        // At a quarter of the log's room it is high time: the snapshot in the pool that follows a fold needs the log to be kept as well.
        let log = self.log.get().map_or(0, |fill| fill().saturating_mul(4));
        self.come.load(Ordering::Relaxed).max(log).min(WHOLE)
    }

    /// This thread begins a fold; on it writes are paced.
    pub fn begin() {
        PIECE.set(Some((Instant::now(), 0)));
    }

    /// Notes a write; on a thread that folds it sleeps when the piece is full.
    pub fn wrote(&self, bytes: usize) {
        let Some((since, before)) = PIECE.get() else { return };
        if let Some(m) = self.metrics.get() {
            m.checkpoint_writes.inc();
            m.checkpoint_written_bytes.inc_by(bytes as u64);
        }
        PIECE.set(Some((since, before + bytes)));
        if before + bytes >= PIECE_BYTES {
            self.sleep();
        }
    }

    /// The pause that is due now; none while it is urgent.
    fn due(&self, took: Duration) -> Option<Duration> {
        let pause = pause(took, self.urgency());
        if pause.is_zero() {
            return None;
        }
        if let Some(m) = self.metrics.get() {
            m.checkpoint_pauses.inc();
            m.checkpoint_pause_us.inc_by(pause.as_micros() as u64);
        }
        Some(pause)
    }

    /// Ends a piece of a thread of its own.
    pub fn sleep(&self) {
        let Some((since, _)) = PIECE.get() else { return };
        if let Some(pause) = self.due(since.elapsed()) {
            std::thread::sleep(pause);
        }
        PIECE.set(Some((Instant::now(), 0)));
    }

    /// Ends a piece of a task among others.
    pub async fn wait(&self, took: Duration) {
        match self.due(took) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => tokio::task::yield_now().await,
        }
    }
}

/// How long to pause after work that took so long.
fn pause(took: Duration, urgency: u32) -> Duration {
    (took * TIMES).clamp(PAUSE.0, PAUSE.1) * (WHOLE - urgency.min(WHOLE)) / WHOLE
}

impl State {
    /// Learns from the log how full it is.
    pub(super) fn pace_by(&self, fill: Fill) {
        if let Some(store) = &self.store {
            store.pace().look_at(fill);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_pause_is_a_multiple_of_the_work_and_none_when_it_is_urgent() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(0), 0), PAUSE.0);
        assert_eq!(pause(ms(5), 0), ms(20));
        assert_eq!(pause(ms(5), WHOLE / 2), ms(10));
        assert_eq!(pause(ms(5000), 0), PAUSE.1);
        assert_eq!(pause(ms(5), WHOLE), Duration::ZERO);
    }

    #[test]
    fn what_came_in_and_a_log_that_fills_up_make_a_fold_urgent() {
        let pace = Pace::default();
        assert_eq!(pace.urgency(), 0);
        pace.came(8 << 20, 32 << 20);
        assert_eq!(pace.urgency(), 250);
        let fill = Arc::new(AtomicU32::new(150));
        let told = fill.clone();
        pace.look_at(Arc::new(move || told.load(Ordering::Relaxed)));
        assert_eq!(pace.urgency(), 600);
        fill.store(250, Ordering::Relaxed);
        assert_eq!(pace.urgency(), WHOLE, "a quarter of the log's room is taken, and nothing gives way");
        fill.store(0, Ordering::Relaxed);
        pace.came(40 << 20, 32 << 20);
        assert_eq!(pace.urgency(), WHOLE, "the next fold is due");
        pace.came(0, 32 << 20);
        pace.hurry();
        assert_eq!(pace.urgency(), WHOLE);
    }
}
