//! Current-thread runtimes with a ring: what data threads and connection threads are made of.
//!
//! What always holds: everything the future spawns runs on that one thread; the ring is drained before `block_on` returns.

use super::ring;
use std::io;
use std::thread::JoinHandle;

/// Runs `future` to its end on this thread, in a runtime of its own with a ring. Without io_uring it runs too, and says so.
pub fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async move {
        if let Err(e) = ring::install() {
            tracing::warn!(error = %e, "no io_uring here: disk calls block their thread");
        }
        future.await
    }))
}

/// Starts a named thread (at most 15 bytes of the name are shown by the system) that runs the future `make` returns, as [`block_on`] does.
pub fn spawn_thread<F, Fut>(name: &str, make: F) -> io::Result<JoinHandle<io::Result<Fut::Output>>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    std::thread::Builder::new().name(name.to_string()).spawn(move || block_on(make()))
}
