//! Room that rewriting needs to begin with: users' writes leave some while stripes are worn.
//!
//! What always holds: users' writes stop short of the last part of the room only while rewriting worn stripes gives some back, in the order
//! in which they came; without anything worn they may use all of it but what each OSD keeps. The cluster's own writes do not come here.

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
        let at_once = write.background || self.turn.try_lock().is_ok() && self.leaves_headroom(write, bytes);
        if !at_once {
            self.wait_for_headroom(write, bytes).await;
        }
        self.writing.fetch_add(bytes, Ordering::Relaxed);
        Taken { writing: self.writing.clone(), bytes }
    }

    async fn wait_for_headroom(&self, write: &StripeWrite, bytes: u64) {
        let since = Instant::now();
        let _turn = self.turn.lock().await;
        while !self.leaves_headroom(write, bytes) {
            let Some(returning) = self.returning.get().filter(|r| r.worn() > 0) else { break };
            let now = Instant::now();
            let until = self.patience(&**returning, since, now);
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
    }

    fn leaves_headroom(&self, write: &StripeWrite, bytes: u64) -> bool {
        if self.returning.get().is_none() {
            return true;
        }
        let space = self.usable_space(write.code);
        let kept = (space.total / PARTS).clamp(BYTES.0, BYTES.1);
        space.free >= kept + bytes + self.writing.load(Ordering::Relaxed)
    }
}
