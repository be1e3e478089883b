//! One file per command.

pub mod admin;
pub mod bench;
pub mod dump;
pub mod fs;
pub mod meta;
mod osd;
mod scrub;
pub mod status;
pub mod up;
