//! The decoders of what lies on a device, for fuzzing: each body tries the bytes as they are, and again with a right checksum, so
//! that what lies behind it is reached.

use crate::log::format::checkpoint::CheckpointHeader;
use crate::log::format::head::{HEAD_FIXED, Head, head_blocks};
use crate::log::format::root::{ROOT_BYTES, Root};
use crate::log::format::segment::{Header, State};
use crate::log::format::{Location, Position};
use crate::service::record::{self, KIND_DELETE, KIND_DROP, KIND_FENCE, KIND_SHARD};
use crate::service::snapshot;
use crate::service::superblock::{SUPERBLOCK_BYTES, Superblock};
use bytes::Bytes;
use holdfast_objstore_base::checksum::{crc32c, crc32c_parts};
use holdfast_objstore_base::fuzzing::Target;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::shard::{Hint, ShardHead, ShardKey};
use holdfast_objstore_proto::{Code, Codec, InodeId, OsdId, SessionEpoch, SessionId, StripeId, StripeRange};

pub const TARGETS: &[Target] = &[
    Target { name: "log_root", samples: roots, body: root },
    Target { name: "log_segment_header", samples: headers, body: header },
    Target { name: "log_record_head", samples: heads, body: head },
    Target { name: "log_checkpoint_header", samples: checkpoints, body: checkpoint },
    Target { name: "osd_superblock", samples: superblocks, body: superblock },
    Target { name: "osd_record", samples: records, body: one_record },
    Target { name: "osd_snapshot", samples: snapshot::samples, body: snapshot::fuzz },
];

const ID: u128 = 99;

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut b = bytes.to_vec();
    b.resize(len.max(b.len()), 0);
    b
}

fn trimmed(mut b: Vec<u8>) -> Vec<u8> {
    b.truncate(b.iter().rposition(|x| *x != 0).map_or(0, |at| at + 1));
    b
}

/// `bytes` with the checksum of `range` at 12, where root, segment header, checkpoint and superblock have it.
fn sealed(bytes: &[u8], len: usize, range: std::ops::Range<usize>) -> Vec<u8> {
    let mut b = padded(bytes, len);
    let c = crc32c(&b[range]);
    b[12..16].copy_from_slice(&c.to_le_bytes());
    b
}

fn roots() -> Vec<Vec<u8>> {
    let root = Root { log_id: ID, segment_bytes: 1 << 24, epoch: 1, segments: 2, life_next: 3, checkpointed: true };
    vec![root.encode().to_vec(), Root { checkpointed: false, ..root }.encode().to_vec()]
}

fn root(bytes: &[u8]) {
    for b in [bytes.to_vec(), sealed(bytes, ROOT_BYTES, 16..ROOT_BYTES)] {
        if let Ok(root) = Root::decode(&b) {
            assert_eq!(Root::decode(&root.encode()), Ok(root));
        }
    }
}

fn headers() -> Vec<Vec<u8>> {
    let h = Header { log_id: ID, number: 3, life: 8, state: State::InService, blocks: 64, generation: 4, seq_floor: 1 };
    [h, Header { state: State::Free, ..h }].map(|h| trimmed(h.encode().to_vec())).to_vec()
}

fn header(bytes: &[u8]) {
    for b in [padded(bytes, BLOCK), sealed(bytes, BLOCK, 16..BLOCK)] {
        if let Ok(header) = Header::decode(&b[..BLOCK]) {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }
}

fn heads() -> Vec<Vec<u8>> {
    let head = |kind, meta: Vec<u8>, payload: u32| {
        let location =
            Location { position: Position { life: 5, block: 9 }, head_blocks: head_blocks(meta.len(), payload), payload_bytes: payload };
        let crcs = (0..payload.div_ceil(BLOCK as u32)).collect();
        trimmed(Head { kind, epoch: 3, seq: 42, durable: 40, location, meta: Bytes::from(meta), crcs }.encode(ID).to_vec())
    };
    vec![head(1, record::encode_shard(&shard()).to_vec(), 8192), head(2, vec![7; 200], 0), head(255, vec![6, 0, 0, 0, 0, 0, 0, 0], 0)]
}

fn head(bytes: &[u8]) {
    let first = padded(bytes, HEAD_FIXED);
    let Ok(at) = Head::claimed_position(&first) else { return };
    let Ok(blocks) = Head::peek(&first, at) else { return };
    let mut b = padded(bytes, blocks as usize * BLOCK);
    let _ = Head::decode(&b, ID, at);
    let c = crc32c_parts(&[&ID.to_le_bytes(), &at.life.to_le_bytes(), &at.block.to_le_bytes(), &b[4..blocks as usize * BLOCK]]);
    b[..4].copy_from_slice(&c.to_le_bytes());
    if let Ok(head) = Head::decode(&b, ID, at) {
        assert_eq!(Head::decode(&head.encode(ID), ID, at), Ok(head));
    }
}

fn checkpoints() -> Vec<Vec<u8>> {
    let position = Position { life: 1, block: 2 };
    vec![trimmed(CheckpointHeader { log_id: ID, generation: 1, position, seq: 3, content_bytes: 9, content_crc: 8 }.encode().to_vec())]
}

fn checkpoint(bytes: &[u8]) {
    for b in [bytes.to_vec(), sealed(bytes, 72, 16..72)] {
        if let Ok(header) = CheckpointHeader::decode(&b) {
            assert_eq!(CheckpointHeader::decode(&header.encode()), Ok(header));
        }
    }
}

fn superblocks() -> Vec<Vec<u8>> {
    let s = Superblock { cluster: 1 << 100, log_id: 2, device: 3, created_ns: 4, osd: OsdId(5), whole: true };
    vec![s.encode().to_vec(), Superblock { whole: false, ..s }.encode().to_vec()]
}

fn superblock(bytes: &[u8]) {
    for b in [bytes.to_vec(), sealed(bytes, SUPERBLOCK_BYTES, 16..SUPERBLOCK_BYTES)] {
        // Bytes behind the structure are not looked at, but the checksum is of the structure alone.
        if let Ok(s) = Superblock::decode(&b) {
            assert_eq!(Superblock::decode(&s.encode()), Ok(s));
        }
    }
}

fn shard() -> ShardHead {
    ShardHead {
        key: ShardKey { stripe: StripeId { incarnation: 7, group: 8, counter: 9 }, shard: 5 },
        codec: Codec::Gf8Cauchy,
        code: Code::new(4, 2),
        stripe_len: 123_456,
        digest: u64::MAX - 3,
        session: SessionId(11),
        epoch: SessionEpoch(12),
        hint: Hint { bucket: 13, inode: InodeId(14), chunk: 15 },
    }
}

/// The first byte is the kind.
fn records() -> Vec<Vec<u8>> {
    let stripe = shard().key.stripe;
    let of = |kind: u8, meta: Bytes| [&[kind][..], &meta].concat();
    vec![
        of(KIND_SHARD, record::encode_shard(&shard())),
        of(KIND_DELETE, record::encode_delete(&[stripe, StripeId { counter: 10, ..stripe }])),
        of(KIND_DROP, record::encode_drop(&[shard().key, ShardKey { shard: 2, ..shard().key }])),
        of(KIND_FENCE, record::encode_fence(StripeRange { first: stripe, count: 77 })),
    ]
}

fn one_record(bytes: &[u8]) {
    let Some((kind, meta)) = bytes.split_first() else { return };
    match *kind {
        KIND_SHARD => {
            if let Ok(head) = record::decode_shard(meta) {
                assert_eq!(record::decode_shard(&record::encode_shard(&head)), Ok(head));
            }
        }
        KIND_DELETE => {
            if let Ok(ids) = record::decode_delete(meta) {
                assert_eq!(record::decode_delete(&record::encode_delete(&ids)), Ok(ids));
            }
        }
        KIND_DROP => {
            if let Ok(keys) = record::decode_drop(meta) {
                assert_eq!(record::decode_drop(&record::encode_drop(&keys)), Ok(keys));
            }
        }
        KIND_FENCE => {
            if let Ok(range) = record::decode_fence(meta) {
                assert_eq!(record::decode_fence(&record::encode_fence(range)), Ok(range));
            }
        }
        _ => {}
    }
}
