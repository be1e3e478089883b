//! How much work this thread has in hand, which decides between a blocking call and the ring.
//!
//! At depth one a blocking disk call beats a ring round trip by 5–30 %; with more in hand the ring wins. The binding
//! (or the HTTP server) holds an [`InHand`] per request it has accepted and not yet answered; `real` disks look at
//! [`in_hand`] to choose. A count per thread, because a disk future completes on the thread that submitted it.

use std::cell::Cell;

thread_local! {
    static IN_HAND: Cell<u32> = const { Cell::new(0) };
}

/// One request this thread has accepted and not yet answered. It must be dropped on the thread that made it.
pub struct InHand(std::marker::PhantomData<*const ()>);

impl InHand {
    #[expect(clippy::new_without_default, reason = "taking a request in hand is an act, not a default")]
    pub fn new() -> Self {
        IN_HAND.with(|c| c.set(c.get() + 1));
        Self(std::marker::PhantomData)
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        IN_HAND.with(|c| c.set(c.get().saturating_sub(1)));
    }
}

// SAFETY: a current-thread runtime polls and drops its tasks on one thread; the marker only guards against sharing.
unsafe impl Send for InHand {}

/// Requests in hand on this thread.
pub fn in_hand() -> u32 {
    IN_HAND.with(Cell::get)
}
