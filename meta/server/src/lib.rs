//! The metadata service: `meta/core`'s state machine on `meta/log`'s log, with sessions, grants and recalls.
//!
//! What always holds: what it answers is linearizable; a change is answered when it is durable; a session that ended changes
//! nothing any more.
//! What it leaves out: POSIX and S3 rules (their doors), data (the object cluster), RPC (callers are in this process).

mod ballast;
mod config;
mod dump;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod image;
mod metrics;
mod service;
mod state;
pub mod superblock;
#[cfg(test)]
mod testing;

pub use config::Config;
pub use dump::{Rows, dump_log, dump_root, dump_state, dump_superblock};
pub use format::{FormatError, format};
pub use metrics::Metrics;
pub use service::{
    Deps, NoStripes, OpenError, PackStore, PackWrite, Room, Service, SessionStatus, SnapshotStatus, SnapshotStore, Snapshots, Status,
    StripeReaper,
};
pub use state::StateConfig;
