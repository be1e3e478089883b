//! Time as a parameter. Nothing outside `base::real` asks the machine for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since 1970-01-01 UTC.
pub type WallNs = u64;

/// A clock: wall time for what users see, boot time for leases and pacing.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock nanoseconds since the epoch.
    fn wall_ns(&self) -> WallNs;
    /// Nanoseconds of CLOCK_BOOTTIME: it counts suspension, and never goes back.
    fn boot_ns(&self) -> u64;
}

/// A clock that moves only when told to.
#[derive(Default, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ns(&self) -> WallNs {
        1_700_000_000_000_000_000 + self.0.load(Ordering::SeqCst)
    }
    fn boot_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
