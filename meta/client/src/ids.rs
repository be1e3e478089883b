//! Id pools: a write or a create takes its id from a grant, without a round trip, and the pool refills before it runs dry.

use crate::{Meta, MetaError, MetaResult};
use holdfast_objstore_proto::meta::{Command, Reply};
use holdfast_objstore_proto::{InodeId, InodeRange, StripeId, StripeRange};
use parking_lot::Mutex;
use std::sync::Arc;

/// Ids granted at a time: large enough that a refill is rare, small enough that a retired range is cheap to reconcile.
const STRIPES_PER_GRANT: u32 = 16_384;
const INODES_PER_GRANT: u32 = 4_096;

/// The unused ids of one session. Cheap to share.
pub struct IdPool {
    meta: Arc<dyn Meta>,
    stripes: Mutex<Option<StripeRange>>,
    inodes: Mutex<Option<InodeRange>>,
}

impl IdPool {
    pub fn new(meta: Arc<dyn Meta>) -> Self {
        Self { meta, stripes: Mutex::new(None), inodes: Mutex::new(None) }
    }

    /// A stripe id never used before.
    pub async fn stripe(&self) -> MetaResult<StripeId> {
        loop {
            if let Some(r) = self.stripes.lock().as_mut().filter(|r| r.count > 0) {
                let id = r.first;
                r.first.counter += 1;
                r.count -= 1;
                return Ok(id);
            }
            // Two who find it empty both ask; the later answer replaces a nearly full range, which costs ids, not safety.
            match self.meta.submit(Command::GrantStripes { count: STRIPES_PER_GRANT }).await? {
                Reply::Stripes(r) => *self.stripes.lock() = Some(r),
                other => return Err(MetaError::Failed(format!("GrantStripes answered {other:?}"))),
            }
        }
    }

    /// An inode id never used before.
    pub async fn inode(&self) -> MetaResult<InodeId> {
        loop {
            if let Some(r) = self.inodes.lock().as_mut().filter(|r| r.count > 0) {
                let id = r.first;
                r.first.0 += 1;
                r.count -= 1;
                return Ok(id);
            }
            match self.meta.submit(Command::GrantInodes { count: INODES_PER_GRANT }).await? {
                Reply::Inodes(r) => *self.inodes.lock() = Some(r),
                other => return Err(MetaError::Failed(format!("GrantInodes answered {other:?}"))),
            }
        }
    }
}
