//! openraft's runtime: tokio's, with randomness that follows a seed.
//!
//! What always holds: openraft draws (election time-outs, the phase of its ticks) only through here, so in a simulation the same
//! seed gives the same run.
//! What it leaves out: secrets; nothing drawn here is one.

use holdfast_objstore_base::sim::Rng;
use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::{TokioInstant, TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime, TokioWatch};
use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

thread_local! {
    // openraft asks the thread, so the seed lives with the thread that runs its tasks.
    static DRAWS: RefCell<Rng> = RefCell::new(Rng::new(0));
}

/// From now on openraft's draws on this thread follow `seed`.
pub fn seed(seed: u64) {
    DRAWS.with(|d| *d.borrow_mut() = Rng::new(seed));
}

/// The thread's draws.
pub struct Draws;

impl rand_core::TryRng for Draws {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|n| n as u32)
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(DRAWS.with(|d| d.borrow_mut().next_u64()))
    }
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        DRAWS.with(|d| d.borrow_mut().fill(out));
        Ok(())
    }
}

/// tokio with seeded draws.
#[derive(Debug)]
pub struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = tokio::time::Timeout<T>;
    type ThreadLocalRng = Draws;
    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }
    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }
    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }
    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }
    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }
    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }
    fn thread_rng() -> Draws {
        Draws
    }
    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }
    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
