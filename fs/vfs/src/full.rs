//! Room for a stripe that the devices refused: what is written and unpublished still keeps what it overwrites.
//!
//! What always holds: published at once, it lets the old stripes go, and the object cluster waits for those to be deleted; so overwriting
//! a file in place needs room for what is on its way and not for a second copy. A wait ends with its session or at its bound.

use crate::inode::Inode;
use crate::session::Session;
use crate::vfs::Vfs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a write waits for room at most, as long as something that was published gives it back.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between tries.
const RETRY: Duration = Duration::from_millis(50);

/// What a stripe that was refused remembers.
pub(crate) struct RoomWait {
    until: Option<u64>,
    /// Publishes when the refused try began.
    published: u64,
}

impl Vfs {
    pub(crate) fn room_wait(&self) -> RoomWait {
        RoomWait { until: None, published: self.metrics().vfs_publishes.get() }
    }

    /// After a refusal for want of room: has what has landed published, and answers whether another try is worth it.
    pub(crate) async fn room_may_come(&self, s: &Session, inode: &Inode, wait: &mut RoomWait) -> bool {
        let now = self.clock.boot_ns();
        let until = *wait.until.get_or_insert(now.saturating_add(WAIT_MAX.as_nanos() as u64));
        let published = std::mem::replace(&mut wait.published, self.metrics().vfs_publishes.get());
        if s.is_over() || now >= until {
            return false;
        }
        // What was published since the refused try began may have given room.
        if wait.published != published {
            return true;
        }
        let Some(me) = self.me.upgrade() else { return false };
        if !self.making_room.swap(true, Ordering::AcqRel) {
            let active: Vec<Arc<Inode>> = self.active.lock().values().cloned().collect();
            let landed: Vec<Arc<Inode>> = active.into_iter().filter(|i| !i.state.lock().unpublished.pending.is_empty()).collect();
            if landed.is_empty() {
                self.making_room.store(false, Ordering::Release);
                return false;
            }
            self.metrics().vfs_room_publishes.inc();
            // Not here: whoever waits for this stripe may hold what a Publish of its inode needs.
            self.runtime.spawn(async move {
                for inode in landed {
                    me.publish_pending(&inode).await;
                }
                me.making_room.store(false, Ordering::Release);
            });
        }
        s.meta.progress(inode.ino);
        tokio::time::sleep(RETRY).await;
        true
    }
}
