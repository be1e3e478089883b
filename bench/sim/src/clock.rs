//! Virtual time over all lives of one run.
//!
//! What always holds: it moves only with tokio's paused clock, and never goes back from one life to the next.

use holdfast_objstore_base::clock::{Clock, WallNs};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// 2026-01-01 00:00 UTC, when every run begins.
const BEGIN_NS: u64 = 1_767_225_600_000_000_000;

#[derive(Default)]
struct Time {
    /// Nanoseconds of the lives that are over.
    over: u64,
    /// When the present life began, by its runtime's clock.
    begun: Option<Instant>,
}

#[derive(Clone, Default)]
pub struct SimClock(Arc<Mutex<Time>>);

impl SimClock {
    /// A life begins; call it within its runtime.
    pub fn begin(&self) {
        self.0.lock().begun = Some(Instant::now());
    }

    /// The life is over; call it within its runtime. `dark`: how long nothing runs until the next one.
    pub fn end(&self, dark: Duration) {
        let mut t = self.0.lock();
        let lived = t.begun.take().map_or(0, |b| b.elapsed().as_nanos() as u64);
        t.over += lived + dark.as_nanos() as u64;
    }

    /// Nanoseconds since the run began.
    pub fn now_ns(&self) -> u64 {
        let t = self.0.lock();
        t.over + t.begun.map_or(0, |b| b.elapsed().as_nanos() as u64)
    }
}

impl Clock for SimClock {
    fn wall_ns(&self) -> WallNs {
        BEGIN_NS + self.now_ns()
    }
    fn boot_ns(&self) -> u64 {
        // Not zero: nothing may take the first moment for "never".
        1_000_000_000 + self.now_ns()
    }
}
