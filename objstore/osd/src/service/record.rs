//! The records an OSD writes to its log: their `meta` bytes. Drawn in docs/formats/osd.md.
//!
//! ```text
//! shard (kind 1), or the copy of one that cleaning made (kind 5), 72 bytes; the payload is the shard
//!  off size
//!    0    1  version, 1
//!    1    1  shard number
//!    2    1  codec
//!    3    1  k
//!    4    1  m
//!    5    3  0
//!    8   16  stripe id, big-endian (incarnation, group, counter)
//!   24    4  data bytes of the stripe
//!   28    4  hint: bucket
//!   32    8  digest
//!   40    8  session
//!   48    8  session epoch
//!   56    8  hint: inode
//!   64    4  hint: chunk
//!   68    4  0
//!
//! delete (kind 2)                          fence (kind 3), 32 bytes
//!  off size                                 off size
//!    0    4  version, 1                       0    4  version, 1
//!    4    4  stripes, 1 to 4095               4    4  0
//!    8   16  each stripe id, big-endian       8   16  first stripe id, big-endian
//!                                            24    8  how many
//!
//! drop (kind 6)
//!  off size
//!    0    4  version, 1
//!    4    4  shards, 1 to 3854
//!    8   17  each shard: stripe id, big-endian (16), shard number (1)
//! ```
//! Integers are little-endian but for stripe ids.

use crate::log::format::{Bad, Fields};
use bytes::Bytes;
use holdfast_objstore_proto::shard::{Hint, ShardHead, ShardKey};
use holdfast_objstore_proto::{Code, Codec, InodeId, SessionEpoch, SessionId, StripeId, StripeRange};

pub const KIND_SHARD: u8 = 1;
pub const KIND_DELETE: u8 = 2;
pub const KIND_FENCE: u8 = 3;
/// A shard that cleaning moved: as [`KIND_SHARD`], but no fence takes it away, for it was there before.
pub const KIND_COPY: u8 = 5;
pub const KIND_DROP: u8 = 6;
pub const SHARD_META_BYTES: usize = 72;
pub const FENCE_META_BYTES: usize = 32;
/// Stripes one delete record names at most.
pub const DELETE_STRIPES_MAX: usize = 4095;
/// Shards one drop record names at most.
pub const DROP_SHARDS_MAX: usize = 3854;
const VERSION: u8 = 1;

const _: () = assert!(8 + 16 * DELETE_STRIPES_MAX <= crate::log::META_BYTES_MAX);
const _: () = assert!(8 + 17 * DROP_SHARDS_MAX <= crate::log::META_BYTES_MAX);

pub fn encode_shard(head: &ShardHead) -> Bytes {
    let mut b = [0u8; SHARD_META_BYTES];
    b[0] = VERSION;
    b[1] = head.key.shard;
    b[2] = head.codec as u8;
    b[3] = head.code.k;
    b[4] = head.code.m;
    b[8..24].copy_from_slice(&head.key.stripe.to_bytes());
    b[24..28].copy_from_slice(&head.stripe_len.to_le_bytes());
    b[28..32].copy_from_slice(&head.hint.bucket.to_le_bytes());
    b[32..40].copy_from_slice(&head.digest.to_le_bytes());
    b[40..48].copy_from_slice(&head.session.0.to_le_bytes());
    b[48..56].copy_from_slice(&head.epoch.0.to_le_bytes());
    b[56..64].copy_from_slice(&head.hint.inode.0.to_le_bytes());
    b[64..68].copy_from_slice(&head.hint.chunk.to_le_bytes());
    Bytes::copy_from_slice(&b)
}

pub fn decode_shard(meta: &[u8]) -> Result<ShardHead, Bad> {
    let raw = meta.get(..SHARD_META_BYTES).ok_or(Bad::Short)?;
    let mut f = Fields(raw);
    let version = f.u8();
    if version != VERSION {
        return Err(Bad::Newer(version as u32));
    }
    let shard = f.u8();
    let codec = Codec::from_u8(f.u8()).ok_or(Bad::Bounds("codec"))?;
    let code = Code::new(f.u8(), f.u8());
    f.take::<3>();
    let stripe = StripeId::from_bytes(f.take());
    let (stripe_len, bucket, digest) = (f.u32(), f.u32(), f.u64());
    let (session, epoch, inode, chunk) = (f.u64(), f.u64(), f.u64(), f.u32());
    if shard as usize >= code.n() {
        return Err(Bad::Bounds("shard number"));
    }
    Ok(ShardHead {
        key: ShardKey { stripe, shard },
        codec,
        code,
        stripe_len,
        digest,
        session: SessionId(session),
        epoch: SessionEpoch(epoch),
        hint: Hint { bucket, inode: InodeId(inode), chunk },
    })
}

/// `stripes`: 1 to [`DELETE_STRIPES_MAX`].
pub fn encode_delete(stripes: &[StripeId]) -> Bytes {
    let mut b = Vec::with_capacity(8 + 16 * stripes.len());
    b.extend_from_slice(&(VERSION as u32).to_le_bytes());
    b.extend_from_slice(&(stripes.len() as u32).to_le_bytes());
    for s in stripes {
        b.extend_from_slice(&s.to_bytes());
    }
    b.into()
}

pub fn decode_delete(meta: &[u8]) -> Result<Vec<StripeId>, Bad> {
    let mut f = Fields(meta.get(..8).ok_or(Bad::Short)?);
    let (version, count) = (f.u32(), f.u32() as usize);
    if version != VERSION as u32 {
        return Err(Bad::Newer(version));
    }
    if count > DELETE_STRIPES_MAX {
        return Err(Bad::Bounds("count"));
    }
    let ids = meta.get(8..8 + 16 * count).ok_or(Bad::Short)?;
    Ok(ids.chunks_exact(16).map(|c| StripeId::from_bytes(c.try_into().expect("sixteen bytes"))).collect())
}

/// `shards`: 1 to [`DROP_SHARDS_MAX`].
pub fn encode_drop(shards: &[ShardKey]) -> Bytes {
    let mut b = Vec::with_capacity(8 + 17 * shards.len());
    b.extend_from_slice(&(VERSION as u32).to_le_bytes());
    b.extend_from_slice(&(shards.len() as u32).to_le_bytes());
    for s in shards {
        b.extend_from_slice(&s.stripe.to_bytes());
        b.push(s.shard);
    }
    b.into()
}

pub fn decode_drop(meta: &[u8]) -> Result<Vec<ShardKey>, Bad> {
    let mut f = Fields(meta.get(..8).ok_or(Bad::Short)?);
    let (version, count) = (f.u32(), f.u32() as usize);
    if version != VERSION as u32 {
        return Err(Bad::Newer(version));
    }
    if count > DROP_SHARDS_MAX {
        return Err(Bad::Bounds("count"));
    }
    let keys = meta.get(8..8 + 17 * count).ok_or(Bad::Short)?;
    let key = |c: &[u8]| ShardKey { stripe: StripeId::from_bytes(*c.first_chunk().expect("seventeen bytes")), shard: c[16] };
    Ok(keys.chunks_exact(17).map(key).collect())
}

pub fn encode_fence(range: StripeRange) -> Bytes {
    let mut b = [0u8; FENCE_META_BYTES];
    b[0] = VERSION;
    b[8..24].copy_from_slice(&range.first.to_bytes());
    b[24..32].copy_from_slice(&range.count.to_le_bytes());
    Bytes::copy_from_slice(&b)
}

pub fn decode_fence(meta: &[u8]) -> Result<StripeRange, Bad> {
    let mut f = Fields(meta.get(..FENCE_META_BYTES).ok_or(Bad::Short)?);
    let version = f.u32();
    if version != VERSION as u32 {
        return Err(Bad::Newer(version));
    }
    f.u32();
    Ok(StripeRange { first: StripeId::from_bytes(f.take()), count: f.u64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_trip() {
        let stripe = StripeId { incarnation: 7, group: 8, counter: 9 };
        let head = ShardHead {
            key: ShardKey { stripe, shard: 5 },
            codec: Codec::Gf8Cauchy,
            code: Code::new(4, 2),
            stripe_len: 123_456,
            digest: u64::MAX - 3,
            session: SessionId(11),
            epoch: SessionEpoch(12),
            hint: Hint { bucket: 13, inode: InodeId(14), chunk: 15 },
        };
        assert_eq!(decode_shard(&encode_shard(&head)), Ok(head));
        let ids: Vec<_> = (0..DELETE_STRIPES_MAX as u64).map(|counter| StripeId { counter, ..stripe }).collect();
        assert_eq!(decode_delete(&encode_delete(&ids)), Ok(ids));
        let keys: Vec<_> =
            (0..DROP_SHARDS_MAX as u64).map(|n| ShardKey { stripe: StripeId { counter: n, ..stripe }, shard: n as u8 }).collect();
        assert_eq!(decode_drop(&encode_drop(&keys)), Ok(keys));
        let range = StripeRange { first: stripe, count: 77 };
        assert_eq!(decode_fence(&encode_fence(range)), Ok(range));
    }
}
