//! Open files and directories.
//!
//! What always holds: an inode with a handle outlives its last name; a write error reaches each handle once.

use crate::inode::Inode;
use crate::readahead::Readahead;
use crate::types::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Handle {
    pub inode: Arc<Inode>,
    pub flags: i32,
    seen: Mutex<u64>,
    pub readahead: Mutex<Readahead>,
    /// Generation of the session in which metadata counts it.
    counted: AtomicU64,
    /// The inode did not survive an eviction.
    lost: AtomicBool,
    /// The kernel keeps pages of it.
    cached: AtomicBool,
    habit: Mutex<Habit>,
}

/// How writes and syncs follow each other on a handle.
#[derive(Debug, Default)]
struct Habit {
    /// Writes since the last sync.
    writes: u32,
    /// Syncs in a row that came after just one write.
    streak: u32,
}

/// Syncs in a row after which one is expected to follow the next write.
const HABIT: u32 = 2;

impl Handle {
    pub fn new(inode: Arc<Inode>, flags: i32, generation: u64) -> Self {
        let seen = inode.state.lock().errors.at_open();
        Self {
            inode,
            flags,
            seen: Mutex::new(seen),
            readahead: Mutex::default(),
            counted: AtomicU64::new(generation),
            lost: AtomicBool::new(false),
            cached: AtomicBool::new(false),
            habit: Mutex::default(),
        }
    }

    pub fn writable(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    pub fn readable(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub fn appends(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }

    /// O_SYNC includes O_DSYNC's bit.
    pub fn syncs(&self) -> bool {
        self.flags & libc::O_DSYNC != 0
    }

    /// A write begins; whether its handle syncs after each write, so that a sync may be expected to follow.
    pub fn writes(&self) -> bool {
        let mut habit = self.habit.lock();
        if habit.writes > 0 {
            habit.streak = 0;
        }
        habit.writes += 1;
        habit.streak >= HABIT
    }

    /// A sync begins.
    pub fn synced(&self) {
        let mut habit = self.habit.lock();
        habit.streak = if habit.writes == 1 { (habit.streak + 1).min(HABIT) } else { 0 };
        habit.writes = 0;
    }

    /// The write error this handle has not reported yet.
    pub fn check(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            return Err(Error::Stale);
        }
        let mut seen = self.seen.lock();
        self.inode.state.lock().errors.check(&mut seen)
    }

    pub fn set_cached(&self) {
        self.cached.store(true, Ordering::Release);
    }

    pub fn is_cached(&self) -> bool {
        self.cached.load(Ordering::Acquire)
    }

    /// Set and read under the lock of the session in force.
    pub fn count_in(&self, generation: u64) {
        self.counted.store(generation, Ordering::Release);
    }

    pub fn is_counted_in(&self, generation: u64) -> bool {
        self.counted.load(Ordering::Acquire) == generation
    }

    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_proto::InodeId;
    use holdfast_objstore_proto::meta::Kind;

    #[test]
    fn a_handle_that_syncs_after_each_write_is_known_by_its_third() {
        let h = Handle::new(Arc::new(Inode::new(InodeId(1), Kind::File)), libc::O_RDWR, 0);
        let mut seen = Vec::new();
        for sync in [true, true, true, false, true, true, true] {
            seen.push(h.writes());
            if sync {
                h.synced();
            }
        }
        assert_eq!(seen, [false, false, true, true, false, false, false]);
        assert!(h.writes(), "two in a row after the lapse");
    }
}
