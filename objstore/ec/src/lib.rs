//! Erasure coding as pure maths: shards in, shards out, and where the bytes of a stripe are.
//!
//! What always holds: no I/O, no clock, no runtime; the same input gives the same bytes on every machine and kernel.
//! All arithmetic works position by position, so any block-aligned range of the shards can be coded on its own.
//! What it leaves out: checksumming shards and moving them. A wrong input shard gives wrong output; callers verify
//! block checksums and compare digests before they decode.

mod codec;
mod digest;
mod gf16;
mod gf8;
pub mod layout;
pub mod placement;

pub use codec::{TooFew, encode, reconstruct};
pub use digest::digest;
pub use gf8::kernel_name;

#[doc(hidden)]
pub use gf8::kernels_for_tests;
