//! The metadata state machine: commands in, replies out, over an ordered key-value state.
//!
//! What always holds: `apply` is deterministic: no clock, no randomness, no I/O of its own, no iteration over hashed
//! containers; the same commands in the same order make the same bytes. A command that fails leaves nothing behind but
//! its reply (and, for a Publish or Truncate, its number).
//! What it leaves out: durability, ordering, sessions' connections. `meta/log` and `meta/server` add them.

mod apply;
mod bucket;
mod chunk;
mod dir;
mod fail;
mod ids;
mod incarnation;
mod initialise;
mod keys;
mod map;
mod namespace;
mod object;
mod orphan;
mod packs;
mod publish;
mod record;
mod relocate;
mod session;
mod stripes;
mod truncate;
mod tx;
mod upload;

pub mod check;
pub mod dump;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod kv;
pub mod lease;
pub mod limits;
pub mod read;
pub mod touch;

#[cfg(test)]
mod tests;

pub use apply::{apply, apply_with};
pub use check::check;
pub use incarnation::{incarnation, raise_incarnation};
pub use initialise::{FORMAT_VERSION, initialise};
pub use kv::{Kv, KvRead, MemKv, StateError};
pub use session::{SERVICE_EPOCH, SERVICE_SESSION};
pub use touch::{Touch, TouchKind, touches};
pub use tx::Effects;
