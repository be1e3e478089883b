//! The replicated log of opaque commands behind one trait.
//!
//! What always holds: a command that was answered is durable on a quorum and applied, in one order everywhere.
//! What it leaves out: what commands mean.

pub mod metrics;
pub mod raft;
pub mod seam;
pub mod solo;

pub use holdfast_objstore_osd::log::Blocking;
pub use seam::*;
