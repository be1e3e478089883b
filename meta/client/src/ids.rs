//! Id pools: a write or a create takes its id from a grant, without a round trip.
//!
//! What always holds: ids are handed out in the order they were granted, each once; one grant is asked for at a time, however many
//! wait for it, and no range with ids left is given up.
//! What it leaves out: giving back ids that were dropped; the service bounds what a session has.

use crate::{Meta, MetaError, MetaResult};
use holdfast_objstore_proto::meta::{Command, Reply};
use holdfast_objstore_proto::{InodeId, InodeRange, StripeId, StripeRange};
use parking_lot::Mutex;
use std::sync::Arc;

/// Ids granted at a time: large enough that a refill is rare, small enough that a retired range is cheap to reconcile.
const STRIPES_PER_GRANT: u32 = 16_384;
const INODES_PER_GRANT: u32 = 4_096;

/// A range of which ids are taken one by one.
trait Range: Default {
    type Id;
    fn take(&mut self) -> Option<Self::Id>;
}

impl Range for Option<StripeRange> {
    type Id = StripeId;
    fn take(&mut self) -> Option<StripeId> {
        let r = self.as_mut().filter(|r| r.count > 0)?;
        let id = r.first;
        r.first.counter += 1;
        r.count -= 1;
        Some(id)
    }
}

impl Range for Option<InodeRange> {
    type Id = InodeId;
    fn take(&mut self) -> Option<InodeId> {
        let r = self.as_mut().filter(|r| r.count > 0)?;
        let id = r.first;
        r.first.0 += 1;
        r.count -= 1;
        Some(id)
    }
}

/// The unused ids of one kind.
#[derive(Default)]
struct Pool<R> {
    range: Mutex<R>,
    /// Held by who asks for more; the others wait here and look again.
    refill: tokio::sync::Mutex<()>,
}

impl<R: Range> Pool<R> {
    async fn take(&self, grant: impl Future<Output = MetaResult<R>>) -> MetaResult<R::Id> {
        if let Some(id) = self.range.lock().take() {
            return Ok(id);
        }
        let _turn = self.refill.lock().await;
        if let Some(id) = self.range.lock().take() {
            return Ok(id);
        }
        let mut fresh = grant.await?;
        let id = fresh.take().ok_or_else(|| MetaError::Failed("a grant without ids".into()))?;
        // Empty since it was looked at: only who has the turn puts ids here.
        *self.range.lock() = fresh;
        Ok(id)
    }
}

/// The unused ids of one session. Cheap to share.
pub struct IdPool {
    meta: Arc<dyn Meta>,
    stripes: Pool<Option<StripeRange>>,
    inodes: Pool<Option<InodeRange>>,
}

impl IdPool {
    pub fn new(meta: Arc<dyn Meta>) -> Self {
        Self { meta, stripes: Pool::default(), inodes: Pool::default() }
    }

    /// A stripe id never used before.
    pub async fn stripe(&self) -> MetaResult<StripeId> {
        let grant = async {
            match self.meta.submit(Command::GrantStripes { count: STRIPES_PER_GRANT }).await? {
                Reply::Stripes(r) => Ok(Some(r)),
                other => Err(MetaError::Failed(format!("GrantStripes answered {other:?}"))),
            }
        };
        self.stripes.take(grant).await
    }

    /// An inode id never used before.
    pub async fn inode(&self) -> MetaResult<InodeId> {
        let grant = async {
            match self.meta.submit(Command::GrantInodes { count: INODES_PER_GRANT }).await? {
                Reply::Inodes(r) => Ok(Some(r)),
                other => Err(MetaError::Failed(format!("GrantInodes answered {other:?}"))),
            }
        };
        self.inodes.take(grant).await
    }
}

#[cfg(test)]
mod tests;
