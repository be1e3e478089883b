//! How far repair is, for `status`.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// The rate is that of the last so many seconds.
const WINDOW: Duration = Duration::from_secs(10);
const SAMPLES_MAX: usize = 4096;

/// One moment of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Progress {
    /// `idle`, `walking` (looking for what lacks), `repairing` or `waiting` (nothing can be done until OSDs change).
    pub state: &'static str,
    /// Stripes that wait, with their data bytes.
    pub queued: usize,
    pub queued_bytes: u64,
    /// Stripes that nothing can be done for now: no OSD could take a shard.
    pub waiting: usize,
    /// Stripes of which more is gone than their code can replace.
    pub lost: usize,
    /// Since the start: stripes put right, their data bytes, and those of them that were written again in a wider code.
    pub repaired_stripes: u64,
    pub repaired_bytes: u64,
    pub reencoded_stripes: u64,
    /// Of the walk under way: stripes looked at, and about how many there are.
    pub walked: u64,
    pub walk_total: u64,
    /// Data bytes a second, lately.
    pub rate_bytes_s: u64,
    /// Until the queue is empty at that rate. `None`: not known.
    pub eta_s: Option<u64>,
}

impl Progress {
    /// Nothing is known to lack anything, and everything has been looked at.
    pub fn settled(&self) -> bool {
        self.state == "idle"
    }
}

/// Bytes done lately.
#[derive(Default)]
pub(crate) struct Rate(Mutex<VecDeque<(Instant, u64)>>);

impl Rate {
    pub fn done(&self, bytes: u64) {
        let mut samples = self.0.lock();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((Instant::now(), bytes));
    }

    /// Bytes a second over the window, or over what there is of it.
    pub fn bytes_s(&self) -> u64 {
        let mut samples = self.0.lock();
        let now = Instant::now();
        while samples.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            samples.pop_front();
        }
        let Some((first, _)) = samples.front() else { return 0 };
        let bytes: u64 = samples.iter().map(|(_, b)| b).sum();
        let over = now.duration_since(*first).max(Duration::from_secs(1));
        (bytes as f64 / over.as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_that_of_the_last_seconds() {
        let rate = Rate::default();
        assert_eq!(rate.bytes_s(), 0);
        for _ in 0..8 {
            rate.done(1000);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(rate.bytes_s(), 1000);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(rate.bytes_s(), 0);
    }
}
