//! Writers meet the debt: slowed while OSDs clean, and made to wait rather than refused while space is about to come back.
//!
//! What always holds: a wait ends with whatever it is for, and [`super::Config::full_wait`] after the last deletion or copy that got on, at
//! the latest; deletes and repair do not come here.

use super::Cluster;
use crate::{Returning, StripeWrite};
use futures::future::join_all;
use holdfast_objstore_proto::stripe::shard_bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks whether space came back, when nothing rings.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// So many stripes that wait for deletion are worth a round of their own while OSDs clean.
const HURRY_AT: u64 = 16;

/// What a write that met full devices remembers.
pub(crate) struct FullWait {
    since: Option<Instant>,
    /// Deletions answered when the refused attempt began.
    deletes: u64,
}

impl FullWait {
    pub fn new(deletes: u64) -> Self {
        Self { since: None, deletes }
    }
}

/// When something got on last that gives room back.
#[derive(Default)]
pub(crate) struct Progress(Mutex<Option<((u64, u64), Instant)>>);

impl Progress {
    fn last(&self, done: (u64, u64), now: Instant) -> Instant {
        let mut seen = self.0.lock();
        match *seen {
            Some((was, at)) if was == done => at,
            _ => {
                *seen = Some((done, now));
                now
            }
        }
    }
}

impl Cluster {
    /// Who is asked before a write is refused for want of room. Only the first counts.
    pub fn set_returning(&self, returning: Arc<dyn Returning>) {
        let _ = self.returning.set(returning);
    }

    /// Waits for the OSDs' cleaning, before any time is taken that counts against an OSD.
    pub(crate) async fn pace(&self, write: &StripeWrite) {
        if write.background {
            return;
        }
        let slots = self.slots();
        let spaces = slots.list.iter().filter(|s| s.failure().is_none()).filter(|s| s.service.space().debt > 0);
        let len: usize = write.data.iter().map(|d| d.len()).sum();
        let bytes = shard_bytes(write.code, u32::try_from(len).unwrap_or(u32::MAX)) as u64;
        let behind: Vec<_> = spaces.map(|s| s.service.pace(bytes)).collect();
        if !behind.is_empty() {
            self.metrics.paced_writes.inc();
            // What is retired and not deleted yet is alive to an OSD that cleans: it would copy it.
            if let Some(returning) = self.returning.get().filter(|r| r.pending() >= HURRY_AT) {
                returning.hurry();
            }
            join_all(behind).await;
        }
    }

    /// Until when a write that has waited since then waits on: as long as room is on its way back.
    pub(crate) fn patience(&self, returning: &dyn Returning, since: Instant, now: Instant) -> Instant {
        let last = self.progress.last((self.metrics.deletes.get(), returning.rewritten()), now);
        last.max(since) + self.config.full_wait
    }

    /// After a refusal for want of room: whether it is worth another attempt, once something was deleted. What only rewriting gives back
    /// is not waited for by the cluster's own writes: they may be that rewriting.
    pub(crate) async fn room_may_come(&self, write: &StripeWrite, wait: &mut FullWait) -> bool {
        let Some(returning) = self.returning.get() else { return false };
        let now = Instant::now();
        let until = self.patience(&**returning, *wait.since.get_or_insert(now), now);
        let deletes = std::mem::replace(&mut wait.deletes, self.metrics.deletes.get());
        if now < until && wait.deletes != deletes {
            return true;
        }
        if now >= until || returning.pending() == 0 && (write.background || returning.worn() == 0) {
            return false;
        }
        let mut deleted = std::pin::pin!(self.deleted.notified());
        deleted.as_mut().enable();
        self.metrics.full_waits.inc();
        returning.hurry();
        tokio::select! {
            biased;
            () = deleted => {}
            () = tokio::time::sleep(LOOK_AGAIN.min(until - now)) => {}
        }
        true
    }
}
