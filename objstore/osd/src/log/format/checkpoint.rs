//! A checkpoint slot: the files `checkpoint.0` and `checkpoint.1`, written in turn.
//!
//! ```text
//!  off size
//!    0    8  "HfCkpt\0\0"
//!    8    4  version
//!   12    4  CRC32C of bytes 16 to 72
//!   16   16  log id
//!   32    8  generation: slot g % 2
//!   40    4  life   } where the first record
//!   44    4  block  } lies that is not
//!   48    8  seq    } covered
//!   56    8  content bytes
//!   64    4  CRC32C of the content
//!   68    4  0
//!   72       zeroes to the end of the block; the content (the owner's) begins at the next, padded with zeroes to a block
//! ```
//! The valid slot of the higher generation counts. A slot is rewritten only while the other one is valid.

use super::{Bad, Fields, Position, VERSION};
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::units::BLOCK;

const MAGIC: [u8; 8] = *b"HfCkpt\0\0";
const FIXED: usize = 72;
/// Content at most: 16 GiB.
pub const CONTENT_BYTES_MAX: u64 = 16 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointHeader {
    pub log_id: u128,
    pub generation: u64,
    pub position: Position,
    pub seq: u64,
    pub content_bytes: u64,
    pub content_crc: u32,
}

impl CheckpointHeader {
    pub fn encode(&self) -> AlignedBuf {
        let mut b = AlignedBuf::zeroed(BLOCK);
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.log_id.to_le_bytes());
        b[32..40].copy_from_slice(&self.generation.to_le_bytes());
        b[40..44].copy_from_slice(&self.position.life.to_le_bytes());
        b[44..48].copy_from_slice(&self.position.block.to_le_bytes());
        b[48..56].copy_from_slice(&self.seq.to_le_bytes());
        b[56..64].copy_from_slice(&self.content_bytes.to_le_bytes());
        b[64..68].copy_from_slice(&self.content_crc.to_le_bytes());
        let c = crc32c(&b[16..FIXED]);
        b[12..16].copy_from_slice(&c.to_le_bytes());
        b
    }

    pub fn decode(block: &[u8]) -> Result<CheckpointHeader, Bad> {
        let raw = block.get(..FIXED).ok_or(Bad::Short)?;
        if raw.iter().all(|b| *b == 0) {
            return Err(Bad::Blank);
        }
        let mut f = Fields(raw);
        if f.take::<8>() != MAGIC {
            return Err(Bad::Foreign);
        }
        let (version, crc) = (f.u32(), f.u32());
        if crc32c(&raw[16..]) != crc {
            return Err(Bad::Checksum);
        }
        if version > VERSION || version == 0 {
            return Err(Bad::Newer(version));
        }
        let (log_id, generation) = (f.u128(), f.u64());
        let position = Position { life: f.u32(), block: f.u32() };
        let (seq, content_bytes, content_crc) = (f.u64(), f.u64(), f.u32());
        if content_bytes > CONTENT_BYTES_MAX {
            return Err(Bad::Bounds("content length"));
        }
        if seq == 0 {
            return Err(Bad::Bounds("sequence number"));
        }
        Ok(CheckpointHeader { log_id, generation, position, seq, content_bytes, content_crc })
    }
}
