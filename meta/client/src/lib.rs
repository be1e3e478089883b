//! The seam between those who use metadata and the service that keeps it.
//!
//! What always holds: what a [`Meta`] answers is linearizable; a session that was evicted gets [`MetaError::Evicted`]
//! from every call, for ever.
//! What it leaves out: POSIX (fs/vfs) and S3 (objstore/s3) rules about when to call what.

pub mod ids;
pub mod local;
pub mod seam;

pub use holdfast_objstore_proto::meta::{MetaError, MetaResult};
pub use seam::*;
