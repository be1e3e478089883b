//! Room that rewriting needs to begin with: users' writes leave some while stripes are worn.
//!
//! What always holds: users' writes stop short of the last part of the room only while rewriting worn stripes will give some back, and for
//! [`super::Config::full_wait`] at the most; without anything worn they may use all of it. The cluster's own writes do not come here.

use super::Cluster;
use crate::StripeWrite;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What is left to rewriting: of the room one part in this many, within these bounds.
const PARTS: u64 = 32;
const BYTES: (u64, u64) = (8 << 20, 1 << 30);
/// Between two looks, when nothing rings.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A write that was let through, until it is answered.
pub(crate) struct Taken {
    writing: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.writing.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Cluster {
    /// Lets a write through when it leaves room enough to rewrite with.
    pub(crate) async fn headroom(&self, write: &StripeWrite) -> Taken {
        let bytes = write.data.iter().map(|d| d.len() as u64).sum();
        let mut until = None;
        while !self.leaves_headroom(write, bytes) {
            let Some(returning) = self.returning.get().filter(|r| r.worn() > 0) else { break };
            let now = Instant::now();
            let until = *until.get_or_insert(now + self.config.full_wait);
            if now >= until {
                break;
            }
            let mut deleted = std::pin::pin!(self.deleted.notified());
            deleted.as_mut().enable();
            self.metrics.worn_waits.inc();
            returning.hurry();
            tokio::select! {
                () = deleted => {}
                () = tokio::time::sleep(LOOK_AGAIN.min(until - now)) => {}
            }
        }
        self.writing.fetch_add(bytes, Ordering::Relaxed);
        Taken { writing: self.writing.clone(), bytes }
    }

    fn leaves_headroom(&self, write: &StripeWrite, bytes: u64) -> bool {
        if write.background || self.returning.get().is_none() {
            return true;
        }
        let space = self.usable_space(write.code);
        let kept = (space.total / PARTS).clamp(BYTES.0, BYTES.1);
        space.free >= kept + bytes + self.writing.load(Ordering::Relaxed)
    }
}
