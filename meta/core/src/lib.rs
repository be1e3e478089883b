//! The metadata state machine: commands in, replies out, over an ordered key-value state.
//!
//! What always holds: `apply` is deterministic: no clock, no randomness, no I/O of its own, no iteration over hashed
//! containers; the same commands in the same order make the same bytes.
//! What it leaves out: durability, ordering, sessions' connections. `meta/log` and `meta/server` add them.

pub mod kv;

pub use kv::{Kv, KvRead, StateError};
