//! All that crosses, or will one day cross, a process border: ids, the shard protocol, the metadata protocol.
//!
//! What always holds: ids, counts and sizes are different types; every encoded form starts with a version.
//! What it leaves out: behaviour. Whoever serves a protocol implements its trait; whoever calls it sees only this crate.

pub mod code;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod ids;
pub mod meta;
pub mod shard;
pub mod stripe;

pub use code::{Code, Codec};
pub use ids::*;
pub use stripe::StripeMeta;
