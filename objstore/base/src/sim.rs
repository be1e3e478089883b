//! The disk door over memory, deterministic by seed, with crashes and faults.
//!
//! What always holds: it promises exactly what the door promises and, at a power cut, not a byte more: a block that no flush
//! covered is kept or lost on its own; a length, a hole filled for the first time, a name are kept only if their own flush
//! covered them. The same seed and the same calls give the same bytes.
//! What it leaves out: time (nothing here waits for a clock), and tearing within a 4 KiB block.

mod crash;
mod disk;
mod fault;
mod file;
mod image;
pub mod rng;
mod state;

pub use disk::{Options, SimDisk};
pub use rng::Rng;
