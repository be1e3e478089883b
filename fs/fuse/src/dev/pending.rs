//! Requests whose answer is not ready yet.
//!
//! What it is: a small executor for the loop's own task. A future is polled first with the waker of a free slot; only when it has
//! to wait does it move in. What always holds: slots and their wakers are reused, so a request that waits costs no task and
//! no allocation here; a slot's waker may be called from any thread, at any time, even after its future is done.

use futures::task::{ArcWake, AtomicWaker, waker};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::exec::InHand;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::reply::Reply;

/// What slots' wakers share with the loop.
struct Woken {
    slots: Mutex<Vec<usize>>,
    task: AtomicWaker,
}

struct SlotWaker {
    index: usize,
    /// Already in `woken`.
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl ArcWake for SlotWaker {
    fn wake_by_ref(this: &Arc<Self>) {
        if !this.queued.swap(true, Ordering::AcqRel) {
            this.woken.slots.lock().push(this.index);
            this.woken.task.wake();
        }
    }
}

struct Slot<'a> {
    state: Arc<SlotWaker>,
    waker: Waker,
    work: Option<Work<'a>>,
}

struct Work<'a> {
    unique: u64,
    future: BoxFuture<'a, Reply>,
    hand: InHand,
}

/// An answer, with the request's number and its place in hand, to be dropped once it is sent.
pub struct Done {
    pub unique: u64,
    pub reply: Reply,
    pub hand: InHand,
}

pub struct Pending<'a> {
    slots: Vec<Slot<'a>>,
    free: Vec<usize>,
    woken: Arc<Woken>,
    /// Reused between calls of `ready`.
    batch: Vec<usize>,
}

impl<'a> Pending<'a> {
    pub fn new() -> Self {
        let woken = Arc::new(Woken { slots: Mutex::new(Vec::new()), task: AtomicWaker::new() });
        Self { slots: Vec::new(), free: Vec::new(), woken, batch: Vec::new() }
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Polls `future` once; keeps it if it has to wait.
    pub fn start(&mut self, unique: u64, mut future: BoxFuture<'a, Reply>, hand: InHand) -> Option<Done> {
        let index = match self.free.pop() {
            Some(i) => i,
            None => self.grow(),
        };
        let slot = &mut self.slots[index];
        match future.as_mut().poll(&mut Context::from_waker(&slot.waker)) {
            Poll::Ready(reply) => {
                self.free.push(index);
                Some(Done { unique, reply, hand })
            }
            Poll::Pending => {
                slot.work = Some(Work { unique, future, hand });
                None
            }
        }
    }

    fn grow(&mut self) -> usize {
        let index = self.slots.len();
        let state = Arc::new(SlotWaker { index, queued: AtomicBool::new(false), woken: self.woken.clone() });
        self.slots.push(Slot { waker: waker(state.clone()), state, work: None });
        index
    }

    /// Polls what has been woken and hands every answer to `done`; `cx` is woken when there is more.
    pub fn ready(&mut self, cx: &Context<'_>, mut done: impl FnMut(Done)) {
        self.woken.task.register(cx.waker());
        let mut batch = std::mem::take(&mut self.batch);
        std::mem::swap(&mut *self.woken.slots.lock(), &mut batch);
        for index in batch.drain(..) {
            let slot = &mut self.slots[index];
            // Before the poll: a wake during it must queue the slot again.
            slot.state.queued.store(false, Ordering::Release);
            let Some(work) = &mut slot.work else { continue };
            let Poll::Ready(reply) = work.future.as_mut().poll(&mut Context::from_waker(&slot.waker)) else { continue };
            let work = slot.work.take().expect("just polled");
            self.free.push(index);
            done(Done { unique: work.unique, reply, hand: work.hand });
        }
        self.batch = batch;
    }

    /// Whether this request still waits.
    pub fn contains(&self, unique: u64) -> bool {
        self.slots.iter().any(|s| s.work.as_ref().is_some_and(|w| w.unique == unique))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::noop_waker;
    use tokio::sync::oneshot;

    fn answer(rx: oneshot::Receiver<i32>) -> BoxFuture<'static, Reply> {
        Box::pin(async move { Reply::Err(rx.await.unwrap_or(libc::EIO)) })
    }

    #[test]
    fn a_ready_future_takes_no_slot_and_a_woken_one_is_answered_once() {
        let mut p = Pending::new();
        let noop = noop_waker();
        let cx = Context::from_waker(&noop);
        assert!(p.start(1, Box::pin(std::future::ready(Reply::Empty)), InHand::new()).is_some());
        assert_eq!(p.len(), 0);

        let (tx, rx) = oneshot::channel();
        assert!(p.start(2, answer(rx), InHand::new()).is_none());
        assert!(p.contains(2) && p.len() == 1);
        p.ready(&cx, |_| panic!("nothing was woken"));
        std::thread::spawn(move || tx.send(5)).join().unwrap().unwrap();
        let mut seen = Vec::new();
        p.ready(&cx, |d| seen.push(d.unique));
        p.ready(&cx, |d| seen.push(d.unique));
        assert_eq!((seen, p.len()), (vec![2], 0));
    }

    #[test]
    fn a_late_wake_of_a_reused_slot_only_polls_it_again() {
        let mut p = Pending::new();
        let noop = noop_waker();
        let cx = Context::from_waker(&noop);
        let (tx, rx) = oneshot::channel();
        assert!(p.start(1, answer(rx), InHand::new()).is_none());
        let stale = p.slots[0].waker.clone();
        tx.send(1).unwrap();
        p.ready(&cx, |_| {});
        let (_tx2, rx2) = oneshot::channel();
        assert!(p.start(2, answer(rx2), InHand::new()).is_none());
        stale.wake();
        p.ready(&cx, |_| panic!("the new future is not done"));
        assert!(p.contains(2));
    }
}
