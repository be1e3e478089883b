//! An image of the metadata state: one durable commit, as a run of bytes that leaves the device.
//!
//! What always holds: an image is of one moment, the newest checkpoint at its making; a reader notices every change, loss or
//! exchange of its pieces, and that its end is missing.
//! What it leaves out: where it is kept (a backup's file is its caller's).
//! The bytes are drawn in `docs/formats/image.md`.

mod check;
mod dump;
mod export;
mod format;
mod rebuild;
mod restore;
mod root;
mod snapshot;

pub use check::check_folder;
pub use dump::{dump, looks_like_one};
pub use export::Export;
pub(crate) use export::Rows;
pub use format::{Head, Reader};
#[cfg(feature = "fuzzing")]
pub(crate) use format::{fuzz, samples};
pub use rebuild::Rebuild;
pub(crate) use restore::incarnation_at;
pub use restore::{Newest, RestoreError, Restored, newest, restore};
pub(crate) use root::ROOT_BYTES_MAX;
pub use root::{Piece, Root};
#[cfg(feature = "fuzzing")]
pub(crate) use root::{fuzz as fuzz_root, samples as root_samples};
pub(crate) use snapshot::Parts;
