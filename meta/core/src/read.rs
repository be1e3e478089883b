//! Reads of committed state.
//!
//! All answer `Err(StateError)` only when the state cannot be trusted; what a client may be told is in the inner result.

mod admin;
mod list;
mod names;
mod objects;
mod packs;
mod ranges;
mod worn;

pub use crate::record::Stats;
pub use admin::{Orphans, SessionInfo, missing, orphans, retired, sessions, stats, stripe, stripes, stripes_live};
pub use list::list;
pub use names::{Staged, StagedBytes, extents, getattr, lookup, parent, readdir, readlink};
pub use objects::{bucket, buckets, resolve, upload_parts, uploads};
pub use packs::{Gathered, PackBounds, Place, gather_small, gather_sparse, gather_staged, gather_staged_from, small_buckets, staged};
pub use ranges::{closed_ranges, held_in};
pub use worn::{Cursor, Victims, Worn, WornBounds, WornRun, choose_worn, gather_worn};
