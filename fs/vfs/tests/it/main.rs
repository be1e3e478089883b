//! One binary of integration tests: a mount over `Local` metadata and the `Fake` object cluster.

mod coherence;
mod counts;
mod errors;
mod evict;
mod files;
mod inline;
mod model;
mod names;
mod rig;
mod slow;
mod stress;
