//! Keys of the state: one byte of family, then big-endian ids, so that byte order is number order.
//!
//! Every family is drawn in `docs/formats/metadata.md`.

use crate::limits::BLOCK_IDS;
use holdfast_objstore_proto::{BucketId, InodeId, SessionId, StripeId, UploadId};

pub(crate) const HEADER: u8 = 0x01;
pub(crate) const COUNTERS: u8 = 0x02;
pub(crate) const STATS: u8 = 0x03;
pub(crate) const BUCKET: u8 = 0x10;
pub(crate) const BUCKET_NAME: u8 = 0x11;
pub(crate) const INODE: u8 = 0x20;
pub(crate) const INFO: u8 = 0x21;
pub(crate) const CHUNK: u8 = 0x22;
pub(crate) const ORPHAN: u8 = 0x23;
pub(crate) const DENTRY: u8 = 0x30;
pub(crate) const COOKIE: u8 = 0x31;
pub(crate) const STRIPE: u8 = 0x40;
pub(crate) const RETIRED: u8 = 0x41;
pub(crate) const MISSING: u8 = 0x42;
pub(crate) const STAGED: u8 = 0x48;
pub(crate) const PACKED: u8 = 0x49;
pub(crate) const SPARSE: u8 = 0x4a;
pub(crate) const SMALL: u8 = 0x4b;
pub(crate) const SESSION: u8 = 0x50;
pub(crate) const REPLY: u8 = 0x51;
pub(crate) const BLOCK: u8 = 0x52;
pub(crate) const OWNED: u8 = 0x53;
pub(crate) const UPLOAD: u8 = 0x60;
pub(crate) const UPLOAD_KEY: u8 = 0x61;
pub(crate) const PART: u8 = 0x62;
pub(crate) const COMPLETED: u8 = 0x63;
pub(crate) const COMPLETED_ORDER: u8 = 0x64;

/// Every family there is.
pub(crate) const FAMILIES: &[u8] = &[
    HEADER,
    COUNTERS,
    STATS,
    BUCKET,
    BUCKET_NAME,
    INODE,
    INFO,
    CHUNK,
    ORPHAN,
    DENTRY,
    COOKIE,
    STRIPE,
    RETIRED,
    MISSING,
    STAGED,
    PACKED,
    SPARSE,
    SMALL,
    SESSION,
    REPLY,
    BLOCK,
    OWNED,
    UPLOAD,
    UPLOAD_KEY,
    PART,
    COMPLETED,
    COMPLETED_ORDER,
];

fn key(family: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut k = Vec::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
    k.push(family);
    for p in parts {
        k.extend_from_slice(p);
    }
    k
}

/// The least key greater than every key that starts with `prefix`; `None` when there is none (all bytes 0xff).
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut k = prefix[..=kept].to_vec();
    k[kept] += 1;
    Some(k)
}

/// End of the range of keys that start with `prefix`, a key of this module (whose family is never 0xff).
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    after_prefix(prefix).expect("families are below 0xff")
}

pub(crate) fn family(f: u8) -> Vec<u8> {
    vec![f]
}
pub(crate) fn header() -> Vec<u8> {
    vec![HEADER]
}
pub(crate) fn counters() -> Vec<u8> {
    vec![COUNTERS]
}
pub(crate) fn stats() -> Vec<u8> {
    vec![STATS]
}
pub(crate) fn bucket(id: BucketId) -> Vec<u8> {
    key(BUCKET, &[&id.0.to_be_bytes()])
}
pub(crate) fn bucket_name(name: &[u8]) -> Vec<u8> {
    key(BUCKET_NAME, &[name])
}
pub(crate) fn inode(ino: InodeId) -> Vec<u8> {
    key(INODE, &[&ino.0.to_be_bytes()])
}
pub(crate) fn info(ino: InodeId) -> Vec<u8> {
    key(INFO, &[&ino.0.to_be_bytes()])
}
/// Head of a chunk's map; the records of its 64 KiB blocks follow it.
pub(crate) fn chunk(ino: InodeId, chunk: u32) -> Vec<u8> {
    key(CHUNK, &[&ino.0.to_be_bytes(), &chunk.to_be_bytes()])
}
pub(crate) fn chunk_block(ino: InodeId, chunk: u32, block: u8) -> Vec<u8> {
    key(CHUNK, &[&ino.0.to_be_bytes(), &chunk.to_be_bytes(), &[block]])
}
/// (chunk, block) of a key made by `chunk` (block `None`) or `chunk_block`.
pub(crate) fn parse_chunk(key: &[u8]) -> Option<(InodeId, u32, Option<u8>)> {
    let ino = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let chunk = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
    let block = match key.len() {
        13 => None,
        14 => Some(key[13]),
        _ => return None,
    };
    Some((InodeId(ino), chunk, block))
}
pub(crate) fn orphan(ino: InodeId) -> Vec<u8> {
    key(ORPHAN, &[&ino.0.to_be_bytes()])
}
/// A name that is not a directory's.
pub(crate) fn dentry(dir: InodeId, name: &[u8]) -> Vec<u8> {
    key(DENTRY, &[&dir.0.to_be_bytes(), name])
}
/// A directory's name: it sorts as `name/`.
pub(crate) fn dentry_dir(dir: InodeId, name: &[u8]) -> Vec<u8> {
    key(DENTRY, &[&dir.0.to_be_bytes(), name, b"/"])
}
/// What follows the directory in a dentry key.
pub(crate) fn dentry_name(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}
pub(crate) fn cookie(dir: InodeId, cookie: u64) -> Vec<u8> {
    key(COOKIE, &[&dir.0.to_be_bytes(), &cookie.to_be_bytes()])
}
pub(crate) fn cookies(dir: InodeId) -> Vec<u8> {
    key(COOKIE, &[&dir.0.to_be_bytes()])
}
pub(crate) fn stripe(id: StripeId) -> Vec<u8> {
    key(STRIPE, &[&id.to_bytes()])
}
pub(crate) fn retired(id: StripeId) -> Vec<u8> {
    key(RETIRED, &[&id.to_bytes()])
}
pub(crate) fn missing(id: StripeId) -> Vec<u8> {
    key(MISSING, &[&id.to_bytes()])
}
/// A stripe whose bytes are in the log entry of this index.
pub(crate) fn staged(index: u64, id: StripeId) -> Vec<u8> {
    key(STAGED, &[&index.to_be_bytes(), &id.to_bytes()])
}
pub(crate) fn parse_staged(key: &[u8]) -> Option<(u64, StripeId)> {
    let index = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    Some((index, StripeId::from_bytes(key.get(9..)?.try_into().ok()?)))
}
/// A member of a pack, by its place there.
pub(crate) fn packed(pack: StripeId, at: u32) -> Vec<u8> {
    key(PACKED, &[&pack.to_bytes(), &at.to_be_bytes()])
}
/// All members of a pack.
pub(crate) fn packed_all(pack: StripeId) -> Vec<u8> {
    key(PACKED, &[&pack.to_bytes()])
}
pub(crate) fn parse_packed(key: &[u8]) -> Option<(StripeId, u32)> {
    let pack = StripeId::from_bytes(key.get(1..17)?.try_into().ok()?);
    Some((pack, u32::from_be_bytes(key.get(17..)?.try_into().ok()?)))
}
/// A pack that is less than half live.
pub(crate) fn sparse(pack: StripeId) -> Vec<u8> {
    key(SPARSE, &[&pack.to_bytes()])
}
/// A small stripe, or pack, in whole copies of a bucket whose code would take less room.
pub(crate) fn small(bucket: BucketId, id: StripeId) -> Vec<u8> {
    key(SMALL, &[&bucket.0.to_be_bytes(), &id.to_bytes()])
}
/// All of a bucket.
pub(crate) fn small_all(bucket: BucketId) -> Vec<u8> {
    key(SMALL, &[&bucket.0.to_be_bytes()])
}
pub(crate) fn parse_small(key: &[u8]) -> Option<(BucketId, StripeId)> {
    let bucket = u32::from_be_bytes(key.get(1..5)?.try_into().ok()?);
    Some((BucketId(bucket), StripeId::from_bytes(key.get(5..)?.try_into().ok()?)))
}
pub(crate) fn parse_stripe(key: &[u8]) -> Option<StripeId> {
    Some(StripeId::from_bytes(key.get(1..)?.try_into().ok()?))
}
pub(crate) fn session(id: SessionId) -> Vec<u8> {
    key(SESSION, &[&id.0.to_be_bytes()])
}
pub(crate) fn reply(session: SessionId, seq: u64) -> Vec<u8> {
    key(REPLY, &[&session.0.to_be_bytes(), &seq.to_be_bytes()])
}
pub(crate) fn replies(session: SessionId) -> Vec<u8> {
    key(REPLY, &[&session.0.to_be_bytes()])
}

/// A block of ids that were granted together: which block of which counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockId {
    Stripes { incarnation: u32, group: u32, block: u64 },
    Inodes { block: u64 },
}

impl BlockId {
    pub fn of_stripe(id: StripeId) -> (BlockId, u64) {
        let block = id.counter / BLOCK_IDS;
        (BlockId::Stripes { incarnation: id.incarnation, group: id.group, block }, id.counter % BLOCK_IDS)
    }
    pub fn of_inode(id: InodeId) -> (BlockId, u64) {
        (BlockId::Inodes { block: id.0 / BLOCK_IDS }, id.0 % BLOCK_IDS)
    }
    pub fn to_bytes(self) -> [u8; 17] {
        let mut b = [0; 17];
        match self {
            BlockId::Stripes { incarnation, group, block } => {
                b[0] = b's';
                b[1..].copy_from_slice(&StripeId { incarnation, group, counter: block }.to_bytes());
            }
            BlockId::Inodes { block } => {
                b[0] = b'i';
                b[9..].copy_from_slice(&block.to_be_bytes());
            }
        }
        b
    }
    pub fn from_bytes(b: &[u8]) -> Option<BlockId> {
        let (kind, rest) = b.split_first()?;
        let id = StripeId::from_bytes(rest.try_into().ok()?);
        match kind {
            b's' => Some(BlockId::Stripes { incarnation: id.incarnation, group: id.group, block: id.counter }),
            b'i' => Some(BlockId::Inodes { block: id.counter }),
            _ => None,
        }
    }
}

pub(crate) fn block(id: BlockId) -> Vec<u8> {
    key(BLOCK, &[&id.to_bytes()])
}
pub(crate) fn owned(session: SessionId, id: BlockId) -> Vec<u8> {
    key(OWNED, &[&session.0.to_be_bytes(), &id.to_bytes()])
}
/// All blocks of a session.
pub(crate) fn owned_all(session: SessionId) -> Vec<u8> {
    key(OWNED, &[&session.0.to_be_bytes()])
}
/// The session's blocks of the kind of `id`.
pub(crate) fn owned_kind(session: SessionId, id: BlockId) -> Vec<u8> {
    key(OWNED, &[&session.0.to_be_bytes(), &id.to_bytes()[..1]])
}
pub(crate) fn upload(id: UploadId) -> Vec<u8> {
    key(UPLOAD, &[&id.0.to_be_bytes()])
}
/// Uploads in order of (key, id). Keys of uploads hold no NUL, so it ends them without breaking the order.
pub(crate) fn upload_key(bucket: BucketId, name: &[u8], id: UploadId) -> Vec<u8> {
    key(UPLOAD_KEY, &[&bucket.0.to_be_bytes(), name, b"\0", &id.0.to_be_bytes()])
}
pub(crate) fn upload_keys(bucket: BucketId, prefix: &[u8]) -> Vec<u8> {
    key(UPLOAD_KEY, &[&bucket.0.to_be_bytes(), prefix])
}
pub(crate) fn part(upload: UploadId, number: u16) -> Vec<u8> {
    key(PART, &[&upload.0.to_be_bytes(), &number.to_be_bytes()])
}
pub(crate) fn parts(upload: UploadId) -> Vec<u8> {
    key(PART, &[&upload.0.to_be_bytes()])
}
pub(crate) fn completed(upload: UploadId) -> Vec<u8> {
    key(COMPLETED, &[&upload.0.to_be_bytes()])
}
pub(crate) fn completed_order(n: u64) -> Vec<u8> {
    key(COMPLETED_ORDER, &[&n.to_be_bytes()])
}
/// The last eight bytes of a key as a number.
pub(crate) fn tail_u64(key: &[u8]) -> Option<u64> {
    let from = key.len().checked_sub(8)?;
    Some(u64::from_be_bytes(key[from..].try_into().ok()?))
}
pub(crate) fn bucket_names() -> Vec<u8> {
    vec![BUCKET_NAME]
}
