//! The shard protocol: what a client asks of one OSD. An OSD knows no files and no erasure code, and talks to no other.

use crate::stripe::shard_bytes;
use crate::{Code, Codec, InodeId, OsdId, SessionEpoch, SessionId, StripeId, StripeRange};
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One shard of one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShardKey {
    pub stripe: StripeId,
    pub shard: u8,
}

impl ShardKey {
    /// The greatest key below every key of a stripe: to list from it on. `None` for the first stripe there can be.
    pub fn before(stripe: StripeId) -> Option<ShardKey> {
        let id = u128::from_be_bytes(stripe.to_bytes()).checked_sub(1)?;
        Some(ShardKey { stripe: StripeId::from_bytes(id.to_be_bytes()), shard: u8::MAX })
    }
}

impl std::fmt::Display for ShardKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.stripe, self.shard)
    }
}

/// The session under which the cluster's own background work (repair, packing) writes shards. The epoch beside it is then the number
/// of a task, which grows from task to task.
pub const TASK_SESSION: SessionId = SessionId(1);

/// Stored beside every shard, so that a log alone tells what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardHead {
    pub key: ShardKey,
    pub codec: Codec,
    pub code: Code,
    /// Data bytes of the whole stripe.
    pub stripe_len: u32,
    /// Over the block checksums of *all* shards of the stripe; shards whose digests differ are never decoded together.
    pub digest: u64,
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub hint: Hint,
}

/// For disaster recovery only: whom the stripe's first byte belonged to when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hint {
    pub bucket: u32,
    pub inode: InodeId,
    /// 4 MiB chunk of the inode's address space.
    pub chunk: u32,
}

/// A shard on its way to an OSD.
#[derive(Debug, Clone)]
pub struct ShardPut {
    pub head: ShardHead,
    /// The shard's bytes: whole blocks, block-aligned in memory where the caller can.
    pub data: Bytes,
    /// CRC32C of each block of `data`.
    pub crcs: Arc<[u32]>,
    /// A copy that lets other shards die: it may take the room that is kept for such.
    pub background: bool,
}

/// What an OSD answers to a read: bytes whose checksums were verified on the OSD.
#[derive(Debug, Clone)]
pub struct ShardRead {
    pub head: ShardHead,
    /// Exactly the bytes asked for.
    pub data: Bytes,
}

/// Space of one OSD, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdSpace {
    /// What the OSD may use in all.
    pub total: u64,
    /// Live shards with their headers.
    pub live: u64,
    /// Segments in use, live and dead bytes alike.
    pub used: u64,
    /// What may still be appended before ENOSPC: the reserve is taken off, and what cleaning can win back is counted.
    pub free: u64,
    /// The same for background puts: with what is kept for them.
    pub free_own: u64,
    /// Bytes that cleaning has to move before there is as much free room as it keeps: its debt. 0 while there is.
    pub debt: u64,
}

/// Orders what metadata says of one range: an OSD that has seen a higher one refuses a lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Raised by each restore of the metadata.
    pub incarnation: u32,
    /// A command that was applied when the list was made.
    pub index: u64,
}

/// Named by what the caller can do.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The OSD does not hold this shard: re-read the map, then decode.
    #[error("{osd} has no shard {key}")]
    NotFound { osd: OsdId, key: ShardKey },
    /// The shard is there but its bytes are not what was written: decode and repair.
    #[error("{osd}: shard {key} is corrupt: {why}")]
    Corrupt { osd: OsdId, key: ShardKey, why: String },
    /// No room before the reserve.
    #[error("{osd} is full")]
    Full { osd: OsdId },
    /// The device failed or left service: count it as lost.
    #[error("{osd} is out of service: {why}")]
    Down { osd: OsdId, why: String },
    /// The writer's epoch or stripe range is retired.
    #[error("{osd}: shard {key} belongs to a retired range")]
    Fenced { osd: OsdId, key: ShardKey },
    /// The list is older than one this OSD has seen: make a new one.
    #[error("{osd} has seen a newer list of live stripes")]
    Stale { osd: OsdId },
}

pub type Result<T> = std::result::Result<T, Error>;

/// One OSD, by function call or by RPC. All calls may be made concurrently, from any thread.
pub trait ShardService: Send + Sync + 'static {
    fn osd(&self) -> OsdId;
    /// Appends a shard; returns when the device has it (it is readable at once, but not yet stable). Putting a key that
    /// is already held is answered Ok without a second append when the digests agree, and `Corrupt` otherwise.
    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>>;
    /// Returns when every put and delete that was answered before this call is on stable media.
    fn flush(&self) -> BoxFuture<'_, Result<()>>;
    /// Bytes `[offset, offset + len)` of a shard, verified. Reads only the blocks that hold them.
    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>>;
    /// The head of a shard, without its bytes.
    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>>;
    /// Forgets every shard of these stripes. Ids that are not held are ignored. Durable with the next flush.
    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>>;
    /// Forgets exactly these shards; others of their stripes stay. Keys that are not held are ignored. Durable with the next flush.
    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>>;
    /// As `head`, but read from the device, whatever is cached.
    fn look(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.head(key)
    }
    /// Reads all of a shard from the device, its head too, and verifies every block.
    fn verify(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        Box::pin(async move {
            let head = self.head(key).await?;
            self.get(key, 0, shard_bytes(head.code, head.stripe_len)).await?;
            Ok(head)
        })
    }
    /// Refuses from now on every put of a stripe in `ranges`, which no session may publish any more; puts of [`TASK_SESSION`] are let
    /// through. Stable when it returns; may be repeated. By default nothing is refused.
    fn fence(&self, ranges: Vec<StripeRange>) -> BoxFuture<'_, Result<()>> {
        let _ = ranges;
        Box::pin(std::future::ready(Ok(())))
    }
    /// Fences `range`, then drops every stripe of it that is held and not in `live`; answers how many, once it is durable. `Stale` when
    /// a list with a higher stamp has come before.
    fn retire(&self, range: StripeRange, live: Vec<StripeId>, stamp: Stamp) -> BoxFuture<'_, Result<u64>> {
        let _ = stamp;
        Box::pin(async move {
            self.fence(vec![range]).await?;
            let (mut garbage, mut after) = (Vec::new(), ShardKey::before(range.first));
            loop {
                let page = self.list(after, 512).await?;
                after = page.last().copied();
                let held = page.iter().map(|k| k.stripe).take_while(|s| range.contains(*s));
                garbage.extend(held.filter(|s| !live.contains(s)));
                if page.last().is_none_or(|k| !range.contains(k.stripe)) {
                    break;
                }
            }
            garbage.dedup();
            let dropped = garbage.len() as u64;
            self.delete(garbage).await?;
            self.flush().await?;
            Ok(dropped)
        })
    }
    /// Held keys greater than `after`, in order, at most `limit`.
    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>>;
    fn space(&self) -> OsdSpace;
    /// Waits while cleaning is behind, the longer the less room is left, and returns at once when nothing could come of
    /// waiting. To be called before a client's put of `bytes`, outside of any time that counts against the OSD; deletes, repair and
    /// cleaning itself never call it. Cancel-safe.
    fn pace(&self, bytes: u64) -> BoxFuture<'_, ()> {
        let _ = bytes;
        Box::pin(std::future::ready(()))
    }
    /// Steps of cleaning: while somebody waits in [`ShardService::pace`] it grows, or the OSD hangs.
    fn steps(&self) -> u64 {
        0
    }
    /// Why the OSD is out of service, if it is.
    fn failure(&self) -> Option<String>;
    /// OSDs with the same number share one device flush (see `base::disk`).
    fn domain(&self) -> u64;
}
