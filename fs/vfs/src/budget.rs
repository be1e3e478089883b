//! The share of the byte budget that dirty data may use.
//!
//! What always holds: a waiter holds no lock, and no charge either, so that writeback, which frees charges, never waits for one.
//! What it leaves out: read caches, which the object cluster's client charges itself.

use holdfast_objstore_base::budget::{Budget, Charge};
use std::time::Duration;

/// Half of the whole, so that whoever reads or encodes always finds room beside dirty data.
const SHARE: u64 = 2;

pub struct DirtyBudget {
    whole: Budget,
    dirty: Budget,
}

/// Bytes charged to both the dirty share and the whole.
pub struct DirtyCharge {
    dirty: Charge,
    whole: Charge,
}

impl DirtyBudget {
    pub fn new(whole: Budget) -> Self {
        let dirty = Budget::new(whole.bytes_max() / SHARE);
        Self { whole, dirty }
    }

    pub fn bytes_max(&self) -> u64 {
        self.dirty.bytes_max()
    }

    pub fn bytes_used(&self) -> u64 {
        self.dirty.bytes_used()
    }

    pub fn try_charge(&self, bytes: u64) -> Option<DirtyCharge> {
        let bytes = bytes.min(self.bytes_max());
        Some(DirtyCharge { dirty: self.dirty.try_charge(bytes)?, whole: self.whole.try_charge(bytes)? })
    }

    /// Waits for room. `pressed` is called when only others than dirty data stand in the way, and again every second.
    pub async fn charge(&self, bytes: u64, pressed: impl Fn()) -> DirtyCharge {
        let bytes = bytes.min(self.bytes_max());
        let dirty = self.dirty.charge(bytes).await;
        if let Some(whole) = self.whole.try_charge(bytes) {
            return DirtyCharge { dirty, whole };
        }
        let mut wait = std::pin::pin!(self.whole.charge(bytes));
        loop {
            match tokio::time::timeout(Duration::from_millis(100), &mut wait).await {
                Ok(whole) => return DirtyCharge { dirty, whole },
                Err(_) => {
                    pressed();
                    if let Ok(whole) = tokio::time::timeout(Duration::from_millis(900), &mut wait).await {
                        return DirtyCharge { dirty, whole };
                    }
                }
            }
        }
    }
}

impl DirtyCharge {
    /// Takes `bytes`, or what there is, off this charge; `None` when nothing is left.
    pub fn split(&mut self, bytes: u64) -> Option<DirtyCharge> {
        if self.dirty.bytes() == 0 {
            return None;
        }
        Some(DirtyCharge { dirty: self.dirty.split(bytes)?, whole: self.whole.split(bytes)? })
    }

    pub fn merge(&mut self, other: DirtyCharge) {
        self.dirty.merge(other.dirty);
        self.whole.merge(other.whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_data_gets_half_of_the_budget_and_gives_it_back() {
        let whole = Budget::new(64 << 10);
        let b = DirtyBudget::new(whole.clone());
        let mut c = b.try_charge(1 << 20).expect("an oversized request takes the share");
        assert_eq!((whole.bytes_used(), b.bytes_used()), (32 << 10, 32 << 10));
        assert!(b.try_charge(1).is_none());
        let half = c.split(16 << 10).expect("there is room");
        drop(c);
        assert_eq!(whole.bytes_used(), 16 << 10);
        drop(half);
        assert_eq!((whole.bytes_used(), b.bytes_used()), (0, 0));
    }
}
