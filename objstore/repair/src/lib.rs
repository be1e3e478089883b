//! Keeps redundancy: finds shards that are missing, corrupt or in the wrong place, and has them made anew.
//!
//! What always holds: a stripe's record changes only by compare-and-swap, after what it will name is stable and was read back. One
//! stripe is in one hand at a time. What could not be repaired is not forgotten: it is looked at again when OSDs change and now and then.
//! Queues are bounded; what does not fit is found again by the next walk. Clients keep their share of the devices.
//!
//! The parts: [`queue`](Repair) (fewest survivors first), the worker that empties it, *walks* that hold what OSDs hold against what
//! records name (after a start, a loss, a replacement), *scrubs*, which are walks that also read what they meet, and
//! [`reconcile`], which fences what ended sessions may still send and drops what they left.
//! What it leaves out: which OSDs there are and what becomes of them (the operator, through `fs/cli`), and the arithmetic.

mod config;
mod mend;
mod metrics;
mod pace;
mod progress;
mod queue;
pub mod reconcile;
mod records;
mod repair;
mod scrub;
mod walk;

pub use config::Config;
pub use metrics::Metrics;
pub use progress::Progress;
pub use reconcile::Reconciler;
pub use records::{Ranges, Records};
pub use repair::Repair;
pub use scrub::{Depth, ScrubState, ScrubStatus, ScrubStore};
pub use walk::Begun;
