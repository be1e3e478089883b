//! The control channel: gRPC over a Unix socket in the first data folder (mode 0600: who may read the folder may ask).
//!
//! `generated.rs` is made from `fs/cli/proto/admin.proto` and checked in, so that a build needs no protocol compiler.

#[allow(clippy::all, clippy::undocumented_unsafe_blocks, missing_docs)]
#[rustfmt::skip]
#[path = "generated.rs"]
pub mod proto;
pub mod client;
pub mod server;
pub mod socket;
