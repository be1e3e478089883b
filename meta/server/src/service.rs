//! The metadata service of one group: sessions, grants, recalls and background work over the log and the state.
//!
//! What always holds: a reply to a change is given when it is durable and applied; a read is answered from committed state
//! that holds everything foreign holders had when it was asked; nobody holds a grant on what changes without them.
//! What it leaves out: what commands mean (`meta/core`), their order (`meta/log`), connections between processes.

mod connect;
mod core;
mod detached;
mod evict;
mod grants;
mod local;
mod open;
mod opens;
mod reads;
mod recall;
mod repair;
mod session;
mod status;
mod submit;
#[cfg(test)]
mod tests;
mod work;

pub use open::{Deps, OpenError};
pub use status::{SessionStatus, Status};
pub use work::{NoStripes, PackStore, PackWrite, Room, SnapshotStatus, SnapshotStore, Snapshots, StripeReaper};

use self::core::Core;
use std::sync::Arc;

/// A running metadata service. Dropping it without [`Service::shutdown`] is a crash: the next start recovers.
pub struct Service {
    core: Arc<Core>,
}
