//! Bugs put in on purpose, each at a seam: the checkers must find them, or they are not to be believed.
//!
//! What always holds: nothing of this is in the product; a bug is a wrapper round one of its doors.

mod disk;

use holdfast_objstore_base::disk::Disk;
use std::sync::Arc;

/// A bug to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The metadata log answers before its flush: the door's flush of the log's files does nothing.
    AckBeforeFlush,
}

impl Bug {
    pub const ALL: [(&'static str, Bug); 1] = [("ack-before-flush", Bug::AckBeforeFlush)];
}

/// The door to devices, with a bug in it.
pub fn disk(disk: Arc<dyn Disk>, bug: Option<Bug>) -> Arc<dyn Disk> {
    match bug {
        Some(Bug::AckBeforeFlush) => Arc::new(disk::Unflushed(disk)),
        None => disk,
    }
}
