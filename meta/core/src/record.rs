//! Stored values: a version byte, then the postcard encoding of one of these structs. Drawn in `docs/formats/metadata.md`.
//!
//! What always holds: decoding any bytes gives a value or an error, and allocates no more than the bytes there are.
//! Fields are never reordered; a change of any struct raises its version and keeps the old decoder.

use crate::fail::broken;
use crate::{KvRead, StateError};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Home, Kind, Name, ObjectInfo, Reply, Shape, TimeNs};
use holdfast_objstore_proto::{BucketId, Code, InodeId, SessionEpoch, SessionId, StripeId, StripeMeta, UploadId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

mod inode;

pub(crate) use inode::{Body, Cut, Inode};

/// Version of every record so far.
pub(crate) const RECORD_VERSION: u8 = 1;

pub(crate) trait Record: Serialize + DeserializeOwned {
    const NAME: &'static str;
}

macro_rules! records {
    ($($t:ty => $name:literal),* $(,)?) => {
        $(impl Record for $t { const NAME: &'static str = $name; })*
        /// For fuzzing: each record, decoded, encoded and decoded again.
        #[cfg(feature = "fuzzing")]
        pub(crate) const ROUND_TRIPS: &[fn(&[u8])] = &[$(round_trip::<$t>),*];
    };
}

#[cfg(feature = "fuzzing")]
fn round_trip<T: Record + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        assert_eq!(decode::<T>(&encode(&value)).expect("what was encoded decodes"), value);
    }
}

records! {
    Inode => "inode",
    ObjectInfo => "object info",
    Counters => "counters",
    Stats => "stats",
    BucketRecord => "bucket",
    BucketId => "bucket name",
    Dentry => "dentry",
    CookieRecord => "cookie",
    Chunk => "chunk",
    Pieces => "chunk block",
    Orphan => "orphan",
    StripeRecord => "stripe",
    Retired => "retired stripe",
    Packed => "packed stripe",
    Small => "small stripe",
    Session => "session",
    Reply => "reply",
    Block => "id block",
    Owned => "owned block",
    UploadRecord => "upload",
    Part => "part",
    Completed => "completed upload",
    UploadId => "upload id",
}

pub(crate) fn encode<T: Record>(value: &T) -> Bytes {
    let out = vec![RECORD_VERSION];
    Bytes::from(postcard::to_extend(value, out).expect("records have no type postcard refuses"))
}

pub(crate) fn decode<T: Record>(bytes: &[u8]) -> Result<T, StateError> {
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => match postcard::take_from_bytes::<T>(rest) {
            Ok((value, [])) => Ok(value),
            Ok(_) => Err(broken(format!("{} record has bytes behind its end", T::NAME))),
            Err(e) => Err(broken(format!("{} record does not decode: {e}", T::NAME))),
        },
        Some((v, _)) => Err(broken(format!("{} record has version {v}; this code reads {RECORD_VERSION}", T::NAME))),
        None => Err(broken(format!("{} record is empty", T::NAME))),
    }
}

/// Reads one record.
pub(crate) fn load<T: Record>(kv: &(impl KvRead + ?Sized), key: &[u8]) -> Result<Option<T>, StateError> {
    kv.get(key)?.map(|v| decode(&v)).transpose()
}

/// What is next, of everything that is numbered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub incarnation: u32,
    /// Blocks of 512 ids; the next to grant.
    pub stripe_block: u64,
    pub inode_block: u64,
    /// Inode ids the state takes for itself (roots, parents of keys, hidden orphans): next and end.
    pub own_inode: u64,
    pub own_inode_end: u64,
    pub session: u64,
    pub bucket: u32,
    pub upload: u64,
    pub completed: u64,
    /// How many there are.
    pub sessions: u32,
    pub buckets: u32,
}

/// Totals, kept as they change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Inodes, orphans included.
    pub inodes: u64,
    /// Stripes with shards of their own that something refers to, packs included.
    pub stripes: u64,
    /// Data bytes of those stripes.
    pub bytes: u64,
    /// Bytes of extents and parts (a copied object counts twice).
    pub live: u64,
    /// Stripes that wait for deletion at the OSDs.
    pub retired: u64,
    /// Stripes whose bytes are in the log and in memory only.
    pub staged: u64,
    pub staged_bytes: u64,
    /// Packs, and their data bytes.
    pub packs: u64,
    pub pack_bytes: u64,
    /// Stripes that are found in packs, and their data bytes.
    pub packed: u64,
    pub packed_bytes: u64,
    /// Packs that are less than half live and wait to be rewritten.
    pub sparse: u64,
    /// Small stripes in whole copies that the packer will gather.
    pub small: u64,
    /// Data bytes of stripes with shards of their own, packs apart, that nothing refers to any more.
    pub dead: u64,
}

impl Stats {
    /// Data bytes at the OSDs that nothing refers to, in stripes and packs that are partly alive.
    pub fn dead_bytes(&self) -> u64 {
        self.dead + self.pack_bytes.saturating_sub(self.packed_bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketRecord {
    pub name: Name,
    pub shape: Shape,
    pub code: Code,
    pub root: InodeId,
    pub created: TimeNs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dentry {
    pub ino: InodeId,
    pub cookie: u64,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CookieRecord {
    pub ino: InodeId,
    pub kind: Kind,
    pub name: Name,
}

/// A run of a chunk on a run of a stripe. `start` counts from the chunk's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub start: u32,
    pub len: u32,
    pub stripe: StripeId,
    pub at: u32,
}

impl Piece {
    pub fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// Map of one chunk: sorted pieces that do not overlap. `born` is the inode's number when the map was begun; a cut with a
/// number at or above it that covers the chunk has killed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Chunk {
    Whole {
        born: u64,
        pieces: Vec<Piece>,
    },
    /// The pieces are in one record per 64 KiB block.
    Split {
        born: u64,
        /// Pieces in all of them; one that goes on over a block's border counts once.
        fragments: u32,
    },
}

/// Pieces of one block of a split chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pieces(pub Vec<Piece>);

/// What an id in the orphan list stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Orphan {
    /// An inode without names.
    Inode,
    /// Chunks beyond a truncation of this inode.
    Tail { of: InodeId },
    /// Parts of an upload that was aborted, or did not use them.
    Parts { of: UploadId },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StripeRecord {
    /// Bare unless the stripe has shards of its own.
    pub meta: Arc<StripeMeta>,
    /// Bytes of extents and parts that refer to it; more than `meta.len` when shared. Of a pack: data bytes of its members.
    pub live: u64,
    /// Whose it was when it was published; what its code should be is written there.
    pub bucket: BucketId,
    pub home: Home,
}

impl StripeRecord {
    /// Data bytes that nothing refers to, as far as the sum tells: what is shared may hide some.
    pub(crate) fn dead(&self) -> i64 {
        (self.meta.len as i64).saturating_sub_unsigned(self.live).max(0)
    }
}

/// A member of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packed {
    pub stripe: StripeId,
    pub len: u32,
}

/// A stripe that waits for the packer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Small {
    /// When it was published.
    pub since: TimeNs,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retired {
    pub meta: Arc<StripeMeta>,
    /// Log index of the command that retired it.
    pub index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub epoch: SessionEpoch,
    pub client: String,
    pub opened: TimeNs,
    /// Replies up to this seq are forgotten.
    pub trimmed: u64,
    /// Blocks it holds.
    pub stripe_blocks: u32,
    pub inode_blocks: u32,
}

/// 512 ids, of which the first `count` were granted. Bit `i` of `used` (missing bytes are zero): id `i` is spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    pub session: SessionId,
    pub count: u16,
    pub used: Bytes,
}

/// A block in its session's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owned {
    pub granted: TimeNs,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadRecord {
    pub bucket: BucketId,
    pub key: Name,
    pub created: TimeNs,
    pub info: ObjectInfo,
}

/// Extents count from the part's first byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub size: u64,
    pub etag: String,
    pub modified: TimeNs,
    pub checksums: Vec<(String, String)>,
    pub extents: Vec<holdfast_objstore_proto::meta::Extent>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Completed {
    pub bucket: BucketId,
    pub reply: Reply,
}
