//! How fast: the same fio job on the raw device, through a FUSE passthrough and through the mount, side by side.
//!
//! What always holds: a ratio is published only between runs of the same job, file size, depth, engine and durability,
//! made in turns on one device; everything a report shows is in `results.json`, and the report is drawn from it alone.
//! What it leaves out: mounting the passthrough (the caller brings it, see [`PassMount`]) and knowing the product's insides.

mod ceiling;
mod date;
mod draw;
mod drive;
mod fio;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod job;
mod ladder;
mod machine;
mod options;
mod place;
mod pressure;
mod results;

pub use ceiling::ceiling;
pub use draw::{Rendered, render, render_beside};
pub use options::{CeilingOptions, PassMount, Product};
pub use results::{Durability, Environment, Results, Row, Stats};

#[doc(hidden)]
pub mod for_tests {
    //! Doors for the integration tests: the run without a mounted filesystem, with a stand-in for fio.
    pub use crate::ceiling::{Setup, measure};
    pub use crate::fio::{Fio, Run, parse};
    pub use crate::job::{Job, embedded};
    pub use crate::ladder::Rung;
    pub use crate::place::Scratch;
}
