//! The seam to background work: what repair, scrub and draining ask of a cluster of devices, beside what its users do.
//!
//! What always holds: nothing here changes a stripe's record; it answers the record that is true now, and the caller commits it by
//! compare-and-swap or gives back what was written ([`Upkeep::discard`]). A provider whose store keeps its own redundancy has no such seam.

use crate::{Objects, Result};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use std::sync::Arc;

/// What an examination of a stripe found. Bit `i` is shard `i`; each is set in one of the four.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Examined {
    /// Its home holds it, of the writing that the record names.
    pub good: u32,
    /// Its home is in service and does not hold it, or holds another writing of it.
    pub absent: u32,
    /// Held, but its bytes are not what was written.
    pub corrupt: u32,
    /// Its home is out of service, or not known here.
    pub down: u32,
    /// The bucket that a shard's head names: whose code the stripe should have. 0: none does.
    pub bucket: u32,
}

/// One OSD, as placement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub osd: OsdId,
    /// It is in service.
    pub up: bool,
    /// It gets no new shards, and what it has should be moved elsewhere.
    pub leaving: bool,
}

/// Shards to make anew.
#[derive(Debug, Clone)]
pub struct Rebuild {
    pub stripe: Arc<StripeMeta>,
    /// Those to make anew, as bits; at least one.
    pub shards: u32,
    /// Of those, the ones whose present copy is good and only stands in the wrong place.
    pub readable: u32,
    /// The number of this task: it stands in the heads of what is written.
    pub task: u64,
}

/// All calls may be made concurrently and retried; dropping a future leaves at worst shards that no record names.
pub trait Upkeep: Objects {
    /// Looks at every shard of a stripe, from the device: at its head, and for those in `whole` (bits) at every byte.
    fn examine<'a>(&'a self, stripe: &'a Arc<StripeMeta>, whole: u32) -> BoxFuture<'a, Examined>;

    /// Makes shards anew from the others: on their home where it takes new shards, else on an OSD that has none of the stripe. They are
    /// stable and were read again when this returns. Answers the record that is true now: those made are no longer missing; one that
    /// found no home stays as it was. `Unavailable` when none found one, `Lost` when too few others can be read.
    fn rebuild(&self, rebuild: Rebuild) -> BoxFuture<'_, Result<Arc<StripeMeta>>>;

    /// Writes all of a stripe again in another code, stable and read again when this returns, beside what is there: both records
    /// can be read until one of them is discarded. `Unavailable` when not all shards found a home.
    fn reencode(&self, stripe: Arc<StripeMeta>, code: Code, task: u64) -> BoxFuture<'_, Result<Arc<StripeMeta>>>;

    /// The code that a new stripe of `len` bytes in a bucket of `code` would get now. `None`: none fits.
    fn fitting(&self, code: Code, len: u32) -> Option<Code>;

    /// Keys that an OSD holds, greater than `after`, in order, at most `max`. Empty when it is out of service.
    fn holdings(&self, osd: OsdId, after: Option<ShardKey>, max: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>>;

    /// Forgets single shards that no record names, durably, where their OSD is in service.
    fn discard(&self, shards: Vec<(OsdId, ShardKey)>) -> BoxFuture<'_, Result<()>>;

    /// Every OSD of the cluster, in order.
    fn standing(&self) -> Vec<Standing>;

    /// Grows with every call that a user makes: while it stands still, nobody needs the devices.
    fn activity(&self) -> u64;
}
