//! The whole cluster in one process and in virtual time: how right it is, by seed.
//!
//! What it is: real OSDs, the real metadata service over openraft and redb, real mounts and an S3-like client, over simulated
//! devices, a simulated clock and seeded draws. A seed chooses a configuration, a workload and faults; checkers, one file per
//! promise, judge what the clients saw.
//! What always holds: the same seed gives the same trace and the same bytes on every device; a failure names the command that
//! replays it.
//! What it leaves out: the kernel (its caches and its wire format), HTTP, and threads: all runs on one.

pub mod checkers;
mod clients;
mod clock;
mod cluster;
mod content;
pub mod coverage;
mod devices;
pub mod history;
mod network;
mod operator;
mod places;
pub mod plan;
pub mod planted;
mod recorder;
pub mod run;
mod trace;
mod upkeep;

pub use plan::Plan;
pub use planted::Bug;
pub use run::{Failure, Report, run};
