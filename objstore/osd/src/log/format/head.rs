//! The head of a record.
//!
//! ```text
//!  off size
//!    0    4  CRC32C of: log id (16), life (4), block (4), then the head from byte 4 to the end of its last block
//!    4    4  "HfRc"
//!    8    1  kind: 1..=239 the owner's, 255 seal
//!    9    1  flags, 0 (a reader refuses others as newer)
//!   10    2  head blocks
//!   12    4  meta bytes, at most 64 KiB
//!   16    4  payload bytes, at most 8 MiB
//!   20    4  life of the segment
//!   24    4  block at which the record begins
//!   28    4  0
//!   32    8  open epoch of the writer
//!   40    8  sequence number, from 1
//!   48    8  durable number: every record up to it was stable when this one was written
//!   56    8  0
//!   64       meta, then zeroes to a multiple of 4
//!            one CRC32C per block of payload (the last one of the bytes there are, without padding)
//!            zeroes to the end of the block; the payload begins at the next
//! ```
//! A head counts when all of it is as drawn and life and block are where it was read from.

use super::{Bad, Fields, Location, Position, payload_blocks};
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::crc32c_parts;
use holdfast_objstore_base::units::BLOCK;
use std::sync::Arc;

pub const HEAD_FIXED: usize = 64;
pub const META_BYTES_MAX: usize = 64 << 10;
/// Meta bytes of a record without payload that takes one block.
pub const META_BYTES_ONE_BLOCK: usize = BLOCK - HEAD_FIXED;
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;
/// The highest kind an owner may use.
pub const KIND_MAX: u8 = 239;
/// Ends a life of a segment; its meta is the least life the next segment may have (u32), then four zero bytes.
pub const KIND_SEAL: u8 = 255;

const MAGIC: [u8; 4] = *b"HfRc";
const _: () = assert!(HEAD_FIXED == 4 + 4 + 1 + 1 + 2 + 4 + 4 + 4 + 4 + 4 + 8 + 8 + 8 + 8);
const _: () = assert!(head_blocks(META_BYTES_MAX, PAYLOAD_BYTES_MAX as u32) <= u16::MAX as u32);

/// A record's head, decoded and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub kind: u8,
    pub epoch: u64,
    pub seq: u64,
    /// What the writer knew to be stable.
    pub durable: u64,
    pub location: Location,
    pub meta: Bytes,
    /// One CRC32C per payload block.
    pub crcs: Arc<[u32]>,
}

/// Blocks of a head.
pub const fn head_blocks(meta_bytes: usize, payload_bytes: u32) -> u32 {
    let table = 4 * (payload_bytes as usize).div_ceil(BLOCK);
    (HEAD_FIXED + meta_bytes.next_multiple_of(4) + table).div_ceil(BLOCK) as u32
}

fn crc(log_id: u128, at: Position, head: &[u8]) -> u32 {
    crc32c_parts(&[&log_id.to_le_bytes(), &at.life.to_le_bytes(), &at.block.to_le_bytes(), &head[4..]])
}

impl Head {
    /// The head as it stands in the segment. The lengths were checked by the writer.
    pub fn encode(&self, log_id: u128) -> AlignedBuf {
        let Location { position, head_blocks, payload_bytes } = self.location;
        debug_assert_eq!(self.crcs.len() as u32, payload_blocks(payload_bytes));
        let mut b = AlignedBuf::zeroed(head_blocks as usize * BLOCK);
        b[4..8].copy_from_slice(&MAGIC);
        b[8] = self.kind;
        b[10..12].copy_from_slice(&(head_blocks as u16).to_le_bytes());
        b[12..16].copy_from_slice(&(self.meta.len() as u32).to_le_bytes());
        b[16..20].copy_from_slice(&payload_bytes.to_le_bytes());
        b[20..24].copy_from_slice(&position.life.to_le_bytes());
        b[24..28].copy_from_slice(&position.block.to_le_bytes());
        b[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        b[40..48].copy_from_slice(&self.seq.to_le_bytes());
        b[48..56].copy_from_slice(&self.durable.to_le_bytes());
        b[HEAD_FIXED..HEAD_FIXED + self.meta.len()].copy_from_slice(&self.meta);
        let table = HEAD_FIXED + self.meta.len().next_multiple_of(4);
        for (slot, c) in b[table..].chunks_exact_mut(4).zip(self.crcs.iter()) {
            slot.copy_from_slice(&c.to_le_bytes());
        }
        let c = crc(log_id, position, &b);
        b[..4].copy_from_slice(&c.to_le_bytes());
        b
    }

    /// How many blocks the head that begins in `block` takes, when it may be one at `at`. Only the first 64 bytes are looked at.
    pub fn peek(block: &[u8], at: Position) -> Result<u32, Bad> {
        Ok(Fixed::read(block, Some(at))?.head_blocks)
    }

    /// Where the head that begins in `block` says it lies.
    pub fn claimed_position(block: &[u8]) -> Result<Position, Bad> {
        Ok(Fixed::read(block, None)?.position)
    }

    /// Decodes the head at `at` from all of its blocks (more may follow).
    pub fn decode(bytes: &[u8], log_id: u128, at: Position) -> Result<Head, Bad> {
        let f = Fixed::read(bytes, Some(at))?;
        let bytes = bytes.get(..f.head_blocks as usize * BLOCK).ok_or(Bad::Short)?;
        if crc(log_id, at, bytes) != f.crc {
            return Err(Bad::Checksum);
        }
        let meta_end = HEAD_FIXED + f.meta_bytes;
        let table = HEAD_FIXED + f.meta_bytes.next_multiple_of(4);
        let blocks = payload_blocks(f.payload_bytes) as usize;
        let crcs = bytes[table..table + 4 * blocks].chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().expect("four bytes")));
        Ok(Head {
            kind: f.kind,
            epoch: f.epoch,
            seq: f.seq,
            durable: f.durable,
            location: Location { position: at, head_blocks: f.head_blocks, payload_bytes: f.payload_bytes },
            meta: Bytes::copy_from_slice(&bytes[HEAD_FIXED..meta_end]),
            crcs: crcs.collect(),
        })
    }

    /// Bytes this head takes in memory, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (std::mem::size_of::<Head>() + 96 + self.meta.len() + 4 * self.crcs.len()) as u64
    }
}

/// The first 64 bytes, bounds checked, checksum not.
struct Fixed {
    crc: u32,
    kind: u8,
    head_blocks: u32,
    meta_bytes: usize,
    payload_bytes: u32,
    position: Position,
    epoch: u64,
    seq: u64,
    durable: u64,
}

impl Fixed {
    fn read(bytes: &[u8], at: Option<Position>) -> Result<Fixed, Bad> {
        let raw = bytes.get(..HEAD_FIXED).ok_or(Bad::Short)?;
        if raw.iter().all(|b| *b == 0) {
            return Err(Bad::Blank);
        }
        let mut f = Fields(raw);
        let crc = f.u32();
        if f.take::<4>() != MAGIC {
            return Err(Bad::Foreign);
        }
        let (kind, flags, head_blocks_said) = (f.u8(), f.u8(), f.u16() as u32);
        let (meta_bytes, payload_bytes) = (f.u32() as usize, f.u32());
        let position = Position { life: f.u32(), block: f.u32() };
        f.u32();
        let (epoch, seq, durable) = (f.u64(), f.u64(), f.u64());
        if at.is_some_and(|at| position.life < at.life) {
            return Err(Bad::Stale);
        }
        if at.is_some_and(|at| position != at) {
            return Err(Bad::Bounds("position"));
        }
        if flags != 0 {
            return Err(Bad::Newer(flags as u32));
        }
        if meta_bytes > META_BYTES_MAX || payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(Bad::Bounds("length"));
        }
        if head_blocks_said != head_blocks(meta_bytes, payload_bytes) {
            return Err(Bad::Bounds("head length"));
        }
        if seq == 0 || durable >= seq {
            return Err(Bad::Bounds("sequence number"));
        }
        if kind == 0 || (kind > KIND_MAX && kind != KIND_SEAL) {
            return Err(Bad::Bounds("kind"));
        }
        Ok(Fixed { crc, kind, head_blocks: head_blocks_said, meta_bytes, payload_bytes, position, epoch, seq, durable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample(meta: usize, payload: u32) -> Head {
        Head {
            kind: 7,
            epoch: 3,
            seq: 42,
            durable: 40,
            location: Location {
                position: Position { life: 5, block: 9 },
                head_blocks: head_blocks(meta, payload),
                payload_bytes: payload,
            },
            meta: Bytes::from((0..meta).map(|i| i as u8).collect::<Vec<_>>()),
            crcs: (0..payload_blocks(payload)).map(|i| i * 77).collect(),
        }
    }

    #[test]
    fn heads_survive_the_trip_and_take_one_block_when_they_fit() {
        assert_eq!(head_blocks(META_BYTES_ONE_BLOCK, 0), 1);
        assert_eq!(head_blocks(META_BYTES_ONE_BLOCK + 1, 0), 2);
        for (meta, payload) in [(0, 0), (72, 4096), (1, 1), (4032, 0), (72, 4 << 20), (META_BYTES_MAX, PAYLOAD_BYTES_MAX as u32)] {
            let h = sample(meta, payload);
            let b = h.encode(99);
            assert_eq!(Head::decode(&b, 99, h.location.position), Ok(h.clone()));
            assert_eq!(Head::peek(&b[..HEAD_FIXED], h.location.position), Ok(h.location.head_blocks));
        }
    }

    #[test]
    fn a_head_of_another_log_life_or_place_never_passes() {
        let h = sample(10, 8192);
        let b = h.encode(99);
        let at = h.location.position;
        assert_eq!(Head::decode(&b, 98, at), Err(Bad::Checksum));
        assert_eq!(Head::decode(&b, 99, Position { life: 6, ..at }), Err(Bad::Stale));
        assert_eq!(Head::decode(&b, 99, Position { block: 10, ..at }), Err(Bad::Bounds("position")));
    }

    #[test]
    fn no_flipped_bit_of_a_head_passes() {
        let h = sample(33, 12288);
        let good = h.encode(7);
        for bit in 0..BLOCK * 8 {
            let mut b = AlignedBuf::copy_of(&good);
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&b, 7, h.location.position).is_err(), "bit {bit}");
        }
    }
}
