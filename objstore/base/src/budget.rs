//! One byte budget for dirty data, read-ahead, caches and tables. Waiting on it is the back-pressure.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that may be in memory at once, charged in pages of 4 KiB.
///
/// Charge it *before* taking any lock: a waiter on the budget must hold nothing that a flush needs.
#[derive(Clone)]
pub struct Budget {
    pages: Arc<Semaphore>,
    pages_max: u32,
}

/// Bytes taken from a [`Budget`]; given back on drop.
pub struct Charge {
    permit: OwnedSemaphorePermit,
}

const PAGE: u64 = 4096;

impl Budget {
    pub fn new(bytes_max: u64) -> Self {
        let pages_max = bytes_max.div_ceil(PAGE).clamp(1, u32::MAX as u64 / 2) as u32;
        Self { pages: Arc::new(Semaphore::new(pages_max as usize)), pages_max }
    }

    pub fn bytes_max(&self) -> u64 {
        self.pages_max as u64 * PAGE
    }

    pub fn bytes_used(&self) -> u64 {
        self.bytes_max() - self.pages.available_permits() as u64 * PAGE
    }

    fn pages(&self, bytes: u64) -> u32 {
        // A request beyond the whole budget takes all of it rather than waiting for ever.
        bytes.div_ceil(PAGE).clamp(1, self.pages_max as u64) as u32
    }

    /// Waits, in order of arrival, until `bytes` are free.
    pub async fn charge(&self, bytes: u64) -> Charge {
        let n = self.pages(bytes);
        let permit = self.pages.clone().acquire_many_owned(n).await.expect("a budget is never closed");
        Charge { permit }
    }

    /// Takes `bytes` if they are free now.
    pub fn try_charge(&self, bytes: u64) -> Option<Charge> {
        let n = self.pages(bytes);
        let permit = self.pages.clone().try_acquire_many_owned(n).ok()?;
        Some(Charge { permit })
    }
}

impl Charge {
    pub fn bytes(&self) -> u64 {
        self.permit.num_permits() as u64 * PAGE
    }

    /// Adds `other`, taken from the same budget, to this charge.
    pub fn merge(&mut self, other: Charge) {
        self.permit.merge(other.permit);
    }

    /// Splits `bytes` (rounded down to pages, at most all) off into a charge of its own.
    pub fn split(&mut self, bytes: u64) -> Option<Charge> {
        let n = (bytes / PAGE).min(self.permit.num_permits() as u64) as usize;
        Some(Charge { permit: self.permit.split(n)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_what_it_does_not_have_and_takes_back_what_is_dropped() {
        let b = Budget::new(8192);
        let a = b.try_charge(8192).expect("free");
        assert!(b.try_charge(1).is_none());
        assert_eq!(b.bytes_used(), 8192);
        drop(a);
        assert!(b.try_charge(1 << 40).is_some(), "an oversized request takes the whole budget");
    }
}
