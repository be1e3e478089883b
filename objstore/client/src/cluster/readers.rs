//! Which reads are under way, so that a deletion can wait out those that may have looked at an older map.
//!
//! What always holds: [`Readers::quiesce`] returns when every read that had begun before it has ended, or at its bound; a read that
//! began with an older map and comes later finds the stripe gone and looks at the map once more.
//! What it leaves out: readers in other processes; they hold a grant that is recalled before the map changes, or a lease that
//! ends within 15 s.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::Notify;

/// A read that takes longer than a lease is one of a hung device; the stripe's other shards are read instead.
const WAIT_MAX: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(crate) struct Readers {
    state: Mutex<State>,
    left: Notify,
}

#[derive(Default)]
struct State {
    /// The generation reads join now.
    now: u64,
    /// Reads under way, by generation.
    active: BTreeMap<u64, u32>,
}

/// A read under way.
pub(crate) struct Reading<'a> {
    readers: &'a Readers,
    generation: u64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut st = self.readers.state.lock();
        if let Some(n) = st.active.get_mut(&self.generation) {
            *n -= 1;
            if *n == 0 {
                st.active.remove(&self.generation);
                let old = self.generation < st.now;
                drop(st);
                if old {
                    self.readers.left.notify_waiters();
                }
            }
        }
    }
}

impl Readers {
    pub fn enter(&self) -> Reading<'_> {
        let mut st = self.state.lock();
        let generation = st.now;
        *st.active.entry(generation).or_default() += 1;
        Reading { readers: self, generation }
    }

    /// Waits for the reads that have begun.
    pub async fn quiesce(&self) {
        let until = {
            let mut st = self.state.lock();
            st.now += 1;
            st.now
        };
        let gone = async {
            loop {
                let mut rung = std::pin::pin!(self.left.notified());
                rung.as_mut().enable();
                if self.state.lock().active.first_key_value().is_none_or(|(first, _)| *first >= until) {
                    return;
                }
                rung.await;
            }
        };
        // Past the bound the reader finds the stripe gone and looks again.
        let _ = tokio::time::timeout(WAIT_MAX, gone).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_deletion_waits_for_reads_that_began_before_it_and_for_no_later_ones() {
        let r = Readers::default();
        let (a, b) = (r.enter(), r.enter());
        let mut wait = Box::pin(r.quiesce());
        assert!(wait.as_mut().now_or_never().is_none());
        let _later = r.enter();
        drop(a);
        assert!(wait.as_mut().now_or_never().is_none());
        drop(b);
        assert!(wait.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_never_ends_holds_up_a_deletion_for_a_lease_at_most() {
        let r = Readers::default();
        let _hung = r.enter();
        let begun = tokio::time::Instant::now();
        r.quiesce().await;
        assert_eq!(begun.elapsed(), WAIT_MAX);
    }
}
