//! The metadata protocol: commands that go through the replicated log, their replies, and the records readers see.
//!
//! One file per family: `attr` (inodes), `command` (what changes state), `reply`, `error`.

mod attr;
mod bucket;
mod command;
mod error;
mod extent;
mod listing;

pub use attr::*;
pub use bucket::*;
pub use command::*;
pub use error::*;
pub use extent::*;
pub use listing::*;

use bytes::Bytes;

/// One path component, or a whole key in a flat bucket; 1 to 255 (1,024) bytes, never `.` or `..` in a tree.
pub type Name = Bytes;

/// Nanoseconds since the epoch, signed as POSIX times are.
pub type TimeNs = i64;
