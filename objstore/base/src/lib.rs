//! Vocabulary of Holdfast and its doors to the world.
//!
//! What it is: units, checksums, aligned buffers, byte budgets, metrics, and the traits through which every other crate
//! reaches files and clocks. `real` is the only code in the product that opens a file or reads a clock;
//! `sim` is the same doors over memory, with crashes.
//! What always holds: every door future is `Send` and finds its thread's ring by itself; buffers handed to a door are
//! owned by it until it completes, so a dropped future never leaves the kernel with a dangling pointer.
//! What it leaves out: anything about stripes, files or metadata.

pub mod budget;
pub mod buf;
pub mod checksum;
pub mod clock;
pub mod disk;
pub mod dump;
pub mod exec;
pub mod failpoint;
mod flush;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod metrics;
pub mod real;
pub mod sim;
pub mod told;
pub mod units;

/// A boxed, sendable future: the return type of every object-safe async door.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
