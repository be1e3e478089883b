//! One io_uring per thread, its descriptor polled by the thread's own tokio runtime.
//!
//! What always holds: what the kernel may touch is owned by the slot table until its completion is seen, so futures may
//! be dropped at any time. The tasks that asked in one turn of the scheduler are submitted together by the driver task.
//! When the driver ends (its runtime stops, or the kernel refuses the ring) everything in the kernel is waited for and
//! everything else is handed back to be done in place: a dead ring never hangs a waiter.
//! What it leaves out: which calls to make ([`super::file`] decides).

use super::file::Cargo;
use io_uring::{IoUring, cqueue, squeue};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Entries of the submission queue: what one system call can carry.
const SUBMIT_MAX: u32 = 256;
/// Operations in the kernel at once: the size of the completion queue, so that it never overflows.
const KERNEL_MAX: u32 = 1024;

thread_local! {
    static RING: RefCell<Option<Arc<Ring>>> = const { RefCell::new(None) };
}

/// The ring of one thread.
pub(super) struct Ring {
    inner: Mutex<Inner>,
    /// Asked for and not completed yet.
    outstanding: AtomicUsize,
    dead: AtomicBool,
}

struct Inner {
    uring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Entries not yet handed to the kernel.
    backlog: VecDeque<squeue::Entry>,
    in_kernel: usize,
    driver: Option<Waker>,
}

enum Slot {
    Free,
    Waiting(Option<Waker>, Cargo),
    /// Its future is gone; the cargo hears of the end itself.
    Detached(Cargo),
    /// The result, and the cargo unless the kernel may still touch it.
    Done(i32, Option<Cargo>),
}

/// What is to be done outside the lock after completions were seen.
#[derive(Default)]
struct After {
    wake: Vec<Waker>,
    ended: Vec<(i32, Cargo)>,
}

/// A call in the ring. Its output is the kernel's answer (`-ECANCELED`: never made) and the cargo.
pub(super) struct Call {
    ring: Arc<Ring>,
    slot: Option<u32>,
}

/// Gives this thread a ring, driven by a task of the current-thread runtime it is called in; does nothing when it has one.
///
/// Fails when called outside a runtime, or where the kernel has no io_uring: disk calls are then made in place.
pub fn install() -> io::Result<()> {
    if current().is_some() {
        return Ok(());
    }
    tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let mut builder = IoUring::builder();
    builder.setup_cqsize(KERNEL_MAX).setup_coop_taskrun();
    let uring = match builder.build(SUBMIT_MAX) {
        Ok(uring) => uring,
        // A kernel before 5.19 does not know the flag.
        Err(_) => IoUring::builder().setup_cqsize(KERNEL_MAX).build(SUBMIT_MAX)?,
    };
    let inner = Inner { uring, slots: Vec::new(), free: Vec::new(), backlog: VecDeque::new(), in_kernel: 0, driver: None };
    let ring = Arc::new(Ring { inner: Mutex::new(inner), outstanding: AtomicUsize::new(0), dead: AtomicBool::new(false) });
    // SAFETY: `RingFd` holds the ring, so its descriptor stays open, and answers with the same one for its whole life.
    let fd = unsafe { AsyncFd::register_with_interest(RingFd::new(ring.clone()), Interest::READABLE) }
        .map_err(|e| io::Error::other(e.to_string()))?;
    tokio::spawn(Driver { fd, ring: ring.clone() });
    RING.with(|r| *r.borrow_mut() = Some(ring));
    Ok(())
}

/// This thread's living ring.
pub(super) fn current() -> Option<Arc<Ring>> {
    RING.with(|r| r.borrow().clone()).filter(|r| !r.dead.load(Ordering::Acquire))
}

/// Calls in the ring of this thread, asked for and not completed; for tests and for pacing.
pub fn outstanding() -> usize {
    current().map_or(0, |r| r.outstanding.load(Ordering::Acquire))
}

impl Ring {
    pub(super) fn idle(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) == 0
    }

    /// Asks for a call; a dead ring hands the cargo back.
    pub(super) fn call(self: &Arc<Self>, entry: squeue::Entry, cargo: Cargo) -> Result<Call, Cargo> {
        let slot = self.push(entry, Slot::Waiting(None, cargo))?;
        Ok(Call { ring: self.clone(), slot: Some(slot) })
    }

    /// Asks for a call nobody waits for: [`Cargo::ended`] hears of its end. A dead ring hands the cargo back.
    pub(super) fn call_detached(&self, entry: squeue::Entry, cargo: Cargo) -> Result<(), Cargo> {
        self.push(entry, Slot::Detached(cargo)).map(drop)
    }

    fn push(&self, entry: squeue::Entry, slot: Slot) -> Result<u32, Cargo> {
        let mut inner = self.inner.lock();
        if self.dead.load(Ordering::Acquire) {
            drop(inner);
            return match slot {
                Slot::Waiting(_, cargo) | Slot::Detached(cargo) => Err(cargo),
                Slot::Free | Slot::Done(..) => unreachable!("only calls with cargo are pushed"),
            };
        }
        let at = match inner.free.pop() {
            Some(at) => {
                inner.slots[at as usize] = slot;
                at
            }
            None => {
                inner.slots.push(slot);
                (inner.slots.len() - 1) as u32
            }
        };
        inner.backlog.push_back(entry.user_data(u64::from(at)));
        self.outstanding.fetch_add(1, Ordering::AcqRel);
        let driver = inner.driver.take();
        drop(inner);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(at)
    }

    /// Submits what waits and takes in what is complete. `Ok(true)`: come again soon, the kernel was short of something.
    fn turn(&self, after: &mut After) -> io::Result<bool> {
        let mut inner = self.inner.lock();
        loop {
            let moved = inner.fill();
            let again = inner.submit(0)?;
            let seen = inner.reap(&self.outstanding, after);
            if again || inner.backlog.is_empty() || (moved == 0 && seen == 0) {
                return Ok(again);
            }
        }
    }

    /// Takes the ring out of use: see the module's promises. It blocks until the kernel has given everything back.
    fn shut_down(&self) {
        let mut after = After::default();
        {
            let mut inner = self.inner.lock();
            if self.dead.swap(true, Ordering::AcqRel) {
                return;
            }
            for entry in std::mem::take(&mut inner.backlog) {
                inner.complete(entry.get_user_data(), -libc::ECANCELED, &self.outstanding, &mut after);
            }
            while inner.in_kernel > 0 {
                match inner.submit(1) {
                    Ok(_) => inner.reap(&self.outstanding, &mut after),
                    Err(e) => {
                        tracing::error!(error = %e, calls = inner.in_kernel, "io_uring died with calls in it; their buffers are given up");
                        inner.give_up(&self.outstanding, &mut after);
                        break;
                    }
                };
            }
        }
        after.run(None);
    }
}

impl Inner {
    /// Moves entries from the backlog to the submission queue while both have room.
    fn fill(&mut self) -> usize {
        let mut moved = 0;
        let mut queue = self.uring.submission();
        while self.in_kernel < KERNEL_MAX as usize && !queue.is_full() {
            let Some(entry) = self.backlog.pop_front() else { break };
            // SAFETY: the slot of this entry owns the memory and the file it names until its completion is seen.
            unsafe { queue.push(&entry) }.expect("the queue has room");
            self.in_kernel += 1;
            moved += 1;
        }
        moved
    }

    /// Hands the submission queue to the kernel. `Ok(true)`: it was short of memory or room; try again later.
    fn submit(&mut self, wait: usize) -> io::Result<bool> {
        if wait == 0 && self.uring.submission().is_empty() {
            return Ok(false);
        }
        loop {
            match self.uring.submit_and_wait(wait) {
                Ok(_) => return Ok(false),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => return Ok(true),
                Err(e) => return Err(e),
            }
        }
    }

    fn reap(&mut self, outstanding: &AtomicUsize, after: &mut After) -> usize {
        let mut seen = 0;
        loop {
            let next: Option<cqueue::Entry> = self.uring.completion().next();
            let Some(c) = next else { return seen };
            seen += 1;
            self.in_kernel -= 1;
            self.complete(c.user_data(), c.result(), outstanding, after);
        }
    }

    fn complete(&mut self, at: u64, result: i32, outstanding: &AtomicUsize, after: &mut After) {
        outstanding.fetch_sub(1, Ordering::AcqRel);
        let slot = &mut self.slots[at as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::Waiting(waker, cargo) => {
                *slot = Slot::Done(result, Some(cargo));
                after.wake.extend(waker);
            }
            Slot::Detached(cargo) => {
                self.free.push(at as u32);
                after.ended.push((result, cargo));
            }
            Slot::Free | Slot::Done(..) => unreachable!("a completion for a slot that is not in use"),
        }
    }

    /// The kernel will not say when it is done with what it holds: leak that memory, and fail its waiters.
    fn give_up(&mut self, outstanding: &AtomicUsize, after: &mut After) {
        for slot in &mut self.slots {
            match std::mem::replace(slot, Slot::Free) {
                Slot::Waiting(waker, cargo) => {
                    cargo.leak();
                    *slot = Slot::Done(-libc::EIO, None);
                    after.wake.extend(waker);
                }
                Slot::Detached(cargo) => cargo.leak(),
                other => {
                    *slot = other;
                    continue;
                }
            }
            outstanding.fetch_sub(1, Ordering::AcqRel);
        }
        self.in_kernel = 0;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Reached with calls in the kernel only when the driver was leaked with its runtime.
        self.give_up(&AtomicUsize::new(usize::MAX / 2), &mut After::default());
    }
}

impl After {
    fn run(&mut self, ring: Option<&Ring>) {
        self.wake.drain(..).for_each(Waker::wake);
        for (result, cargo) in self.ended.drain(..) {
            if let Some((entry, cargo)) = cargo.ended(result)
                && let Some(ring) = ring
            {
                // A dead ring drops the cargo, which lets another waiter lead.
                drop(ring.call_detached(entry, cargo));
            }
        }
    }
}

impl Future for Call {
    type Output = (i32, Option<Cargo>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let at = self.slot.expect("polled after its end");
        let mut inner = self.ring.inner.lock();
        match &mut inner.slots[at as usize] {
            Slot::Waiting(waker, _) => {
                match waker {
                    Some(w) => w.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
            Slot::Done(..) => {}
            Slot::Free | Slot::Detached(_) => unreachable!("the slot of a call belongs to its future"),
        }
        let Slot::Done(result, cargo) = std::mem::replace(&mut inner.slots[at as usize], Slot::Free) else { unreachable!("just seen") };
        inner.free.push(at);
        drop(inner);
        self.slot = None;
        Poll::Ready((result, cargo))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(at) = self.slot.take() else { return };
        let mut inner = self.ring.inner.lock();
        let ended = match std::mem::replace(&mut inner.slots[at as usize], Slot::Free) {
            Slot::Waiting(_, cargo) => {
                inner.slots[at as usize] = Slot::Detached(cargo);
                None
            }
            Slot::Done(result, cargo) => {
                inner.free.push(at);
                cargo.map(|cargo| (result, cargo))
            }
            Slot::Free | Slot::Detached(_) => unreachable!("the slot of a call belongs to its future"),
        };
        drop(inner);
        if let Some((result, cargo)) = ended {
            drop(cargo.ended(result));
        }
    }
}

/// The task that submits, waits for and hands out completions.
struct Driver {
    fd: AsyncFd<RingFd>,
    ring: Arc<Ring>,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut after = After::default();
        loop {
            let turn = self.ring.turn(&mut after);
            after.run(Some(&self.ring));
            match turn {
                Ok(false) => {}
                Ok(true) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(e) => {
                    tracing::error!(error = %e, "io_uring failed; this thread goes on with blocking calls");
                    self.ring.shut_down();
                    return Poll::Ready(());
                }
            }
            match self.fd.poll_read_ready(cx) {
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                Poll::Ready(Err(_)) => {
                    // The runtime is going away.
                    self.ring.shut_down();
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    let mut inner = self.ring.inner.lock();
                    if inner.backlog.is_empty() {
                        inner.driver = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.ring.shut_down();
    }
}

/// The ring's descriptor, alive as long as it is polled.
struct RingFd {
    fd: RawFd,
    _ring: Arc<Ring>,
}

impl RingFd {
    fn new(ring: Arc<Ring>) -> Self {
        let fd = ring.inner.lock().uring.as_raw_fd();
        Self { fd, _ring: ring }
    }
}

impl AsRawFd for RingFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}
