//! The file `superblock`: whose folder this is. Written before the log is made (state 1) and again when all is there (state 2).
//!
//! ```text
//!  off size
//!    0    8  "HfOsd\0\0\0"
//!    8    4  version
//!   12    4  CRC32C from byte 16 on
//!   16   16  cluster id
//!   32   16  log id
//!   48   16  device id, or zero
//!   64    8  created, wall nanoseconds
//!   72    4  OSD number
//!   76    4  state: 1 being formatted, 2 whole
//! ```

use crate::log::format::{Bad, Fields};
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_proto::OsdId;

pub const FILE: &str = "superblock";
pub const LOG_DIR: &str = "log";
pub const VERSION: u32 = 1;
pub const SUPERBLOCK_BYTES: usize = 80;
const MAGIC: [u8; 8] = *b"HfOsd\0\0\0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub cluster: u128,
    pub log_id: u128,
    pub device: u128,
    pub created_ns: u64,
    pub osd: OsdId,
    /// The format ended.
    pub whole: bool,
}

impl Superblock {
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut b = [0; SUPERBLOCK_BYTES];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.cluster.to_le_bytes());
        b[32..48].copy_from_slice(&self.log_id.to_le_bytes());
        b[48..64].copy_from_slice(&self.device.to_le_bytes());
        b[64..72].copy_from_slice(&self.created_ns.to_le_bytes());
        b[72..76].copy_from_slice(&(self.osd.0 as u32).to_le_bytes());
        b[76..80].copy_from_slice(&(1 + self.whole as u32).to_le_bytes());
        let c = crc32c(&b[16..]);
        b[12..16].copy_from_slice(&c.to_le_bytes());
        b
    }

    pub fn decode(bytes: &[u8]) -> Result<Superblock, Bad> {
        let raw = bytes.get(..SUPERBLOCK_BYTES).ok_or(Bad::Short)?;
        let mut f = Fields(raw);
        if f.take::<8>() != MAGIC {
            return Err(Bad::Foreign);
        }
        let (version, crc) = (f.u32(), f.u32());
        if version > VERSION {
            return Err(Bad::Newer(version));
        }
        if crc32c(&raw[16..]) != crc || version == 0 {
            return Err(Bad::Checksum);
        }
        let (cluster, log_id, device, created_ns) = (f.u128(), f.u128(), f.u128(), f.u64());
        let osd = u16::try_from(f.u32()).map_err(|_| Bad::Bounds("OSD number"))?;
        let whole = match f.u32() {
            1 => false,
            2 => true,
            _ => return Err(Bad::Bounds("state")),
        };
        Ok(Superblock { cluster, log_id, device, created_ns, osd: OsdId(osd), whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_survive_the_trip_and_no_flipped_bit_passes() {
        let s = Superblock { cluster: 1 << 100, log_id: 2, device: 3, created_ns: 4, osd: OsdId(5), whole: true };
        let good = s.encode();
        assert_eq!(Superblock::decode(&good), Ok(s));
        for bit in 0..SUPERBLOCK_BYTES * 8 {
            let mut b = good;
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&b).is_err(), "bit {bit}");
        }
    }
}
