//! The file `log`: which log this is. Replaced atomically at every open and whenever a segment file is added.
//!
//! ```text
//!  off size
//!    0    8  "HfLog\0\0\0"
//!    8    4  version
//!   12    4  CRC32C from byte 16 on
//!   16   16  log id: random
//!   32    8  bytes of a segment
//!   40    8  open epoch
//!   48    4  segment files: numbers 0 up to this exist, whole or not yet in service
//!   52    4  least life not yet given at the last open
//!   56    4  flags: bit 0, a checkpoint has been stored
//!   60    4  0
//! ```

use super::{Bad, Fields, VERSION};
use holdfast_objstore_base::checksum::crc32c;

pub const ROOT_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"HfLog\0\0\0";
const FLAG_CHECKPOINTED: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    pub log_id: u128,
    pub segment_bytes: u64,
    pub epoch: u64,
    pub segments: u32,
    pub life_next: u32,
    pub checkpointed: bool,
}

impl Root {
    pub fn encode(&self) -> [u8; ROOT_BYTES] {
        let mut b = [0; ROOT_BYTES];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.log_id.to_le_bytes());
        b[32..40].copy_from_slice(&self.segment_bytes.to_le_bytes());
        b[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        b[48..52].copy_from_slice(&self.segments.to_le_bytes());
        b[52..56].copy_from_slice(&self.life_next.to_le_bytes());
        let flags = if self.checkpointed { FLAG_CHECKPOINTED } else { 0 };
        b[56..60].copy_from_slice(&flags.to_le_bytes());
        let c = crc32c(&b[16..]);
        b[12..16].copy_from_slice(&c.to_le_bytes());
        b
    }

    pub fn decode(bytes: &[u8]) -> Result<Root, Bad> {
        let bytes = bytes.get(..ROOT_BYTES).ok_or(Bad::Short)?;
        let mut f = Fields(bytes);
        if f.take::<8>() != MAGIC {
            return Err(Bad::Foreign);
        }
        let (version, crc) = (f.u32(), f.u32());
        if version > VERSION {
            // A newer root may be longer; its checksum is not ours to judge.
            return Err(Bad::Newer(version));
        }
        if crc32c(&bytes[16..]) != crc || version == 0 {
            return Err(Bad::Checksum);
        }
        let (log_id, segment_bytes, epoch) = (f.u128(), f.u64(), f.u64());
        let (segments, life_next, flags) = (f.u32(), f.u32(), f.u32());
        if flags & !FLAG_CHECKPOINTED != 0 {
            return Err(Bad::Newer(version));
        }
        Ok(Root { log_id, segment_bytes, epoch, segments, life_next, checkpointed: flags != 0 })
    }
}
