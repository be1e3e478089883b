//! The S3 door: HTTP in, `Objects` + `Meta` out.
//!
//! What always holds: a request is authenticated before its body is looked at; a body is streamed once, through
//! checksums into stripes, and never held whole; a PUT is acknowledged when its bytes and the name that reaches them are
//! durable; a name is swapped by one commit, in which conditions are checked.
//! What it leaves out: names, trees and extent maps (metadata's), shards (the object cluster's).
//! The request parser and SigV4 are s3s's; every operation behind them is ours.

mod auth;
mod conditions;
mod deliver;
mod door;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod info;
mod ingest;
mod messages;
mod metrics;
mod ops;
mod ranges;
mod serve;
mod service;
mod stripes;
mod sums;
#[cfg(test)]
mod tests;

pub use auth::Keys;
pub use door::{Config, Door};
pub use metrics::Metrics;
pub use serve::{Server, bind};
