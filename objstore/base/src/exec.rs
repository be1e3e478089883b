//! How much work this thread has in hand, which decides between a blocking call and the ring.
//!
//! At depth one a blocking disk call beats a ring round trip by 5–30 %; with more in hand the ring wins. The binding
//! (or the HTTP server) holds an [`InHand`] per request it has accepted and not yet answered; `real` disks look at
//! [`in_hand`] to choose. A count per thread, because a disk future completes on the thread that submitted it.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

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

/// Work that no client waits for: while it is polled this thread counts as busy, so its disk calls go through the ring and the
/// next request finds the thread free, however small the call or sick the device.
pub fn background<F: Future>(work: F) -> Background<F> {
    Background(Box::pin(work))
}

/// See [`background`].
pub struct Background<F>(Pin<Box<F>>);

impl<F: Future> Future for Background<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _busy = (InHand::new(), InHand::new());
        self.0.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn background_work_counts_as_busy_only_while_it_is_polled() {
        let seen = background(async { (in_hand(), tokio::task::yield_now().await, in_hand()) }).await;
        assert_eq!((seen.0, seen.2, in_hand()), (2, 2, 0));
    }
}
