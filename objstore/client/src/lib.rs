//! Stripes over many OSDs: fan-out, quorum, hedging, decoding, deletion, behind one trait.
//!
//! What always holds: a stripe is immutable once written; a read returns verified bytes or an error, never wrong bytes.
//! What it leaves out: names, inodes, when to publish. Metadata decides what is reachable.

pub mod fake;
pub mod objects;

pub use fake::Fake;
pub use objects::*;
