//! The first block of a volume. Drawn in docs/formats/volume.md.

use crate::checksum::crc32c;
use crate::units::{BLOCK, MIB};

const MAGIC: [u8; 8] = *b"HfVolume";
pub const VERSION: u32 = 1;
/// Space is given to files in units of this size.
pub const UNIT: u64 = MIB;
/// A smaller device holds no useful log.
pub const BYTES_MIN: u64 = 64 * MIB;
/// In each slot, room for the names of what is always there, and for each unit's part of a directory in pieces.
const SLOT_BYTES_MIN: u64 = 256 << 10;
const SLOT_BYTES_PER_UNIT: u64 = 8;

/// Where everything lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub id: u128,
    /// Of the device when it was formatted.
    pub bytes: u64,
    /// Bytes of each of the two directory slots; the first begins at one unit.
    pub slot_bytes: u64,
    pub units: u32,
}

/// Why a first block is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    Foreign,
    Newer(u32),
    Damaged,
}

impl Header {
    /// The layout of a device of `bytes`, or `None` when it is too small.
    pub fn plan(id: u128, bytes: u64) -> Option<Header> {
        if bytes < BYTES_MIN {
            return None;
        }
        let all = bytes / UNIT;
        let slot_bytes = (SLOT_BYTES_MIN + all * SLOT_BYTES_PER_UNIT).next_multiple_of(UNIT);
        let units = all - 1 - 2 * slot_bytes / UNIT;
        Some(Header { id, bytes, slot_bytes, units: u32::try_from(units).unwrap_or(u32::MAX) })
    }
    pub fn slot_at(&self, generation: u64) -> u64 {
        UNIT + generation % 2 * self.slot_bytes
    }
    pub fn unit_at(&self, unit: u32) -> u64 {
        UNIT + 2 * self.slot_bytes + unit as u64 * UNIT
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; BLOCK];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.id.to_le_bytes());
        b[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        b[40..48].copy_from_slice(&self.slot_bytes.to_le_bytes());
        b[48..52].copy_from_slice(&self.units.to_le_bytes());
        let crc = crc32c(&b[16..]);
        b[12..16].copy_from_slice(&crc.to_le_bytes());
        b
    }

    pub fn decode(block: &[u8]) -> Result<Header, Bad> {
        let block = block.get(..BLOCK).ok_or(Bad::Foreign)?;
        if block[..8] != MAGIC {
            return Err(Bad::Foreign);
        }
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(8) > VERSION {
            return Err(Bad::Newer(u32_at(8)));
        }
        let id = u128::from_le_bytes(block[16..32].try_into().expect("sixteen bytes"));
        let header = Header { id, bytes: u64_at(32), slot_bytes: u64_at(40), units: u32_at(48) };
        // What a plan would not give was not written by one.
        if u32_at(8) != VERSION || u32_at(12) != crc32c(&block[16..]) || Header::plan(id, header.bytes) != Some(header) {
            return Err(Bad::Damaged);
        }
        Ok(header)
    }
}

/// The id in a block that begins like a header, whole or not.
pub fn claimed_id(block: &[u8]) -> Option<u128> {
    let raw = block.get(..32).filter(|b| b[..8] == MAGIC)?;
    Some(u128::from_le_bytes(raw[16..].try_into().expect("sixteen bytes")))
}

/// A sample for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn header_samples() -> Vec<Vec<u8>> {
    let mut b = Header::plan(7, 10 << 30).map(|h| h.encode()).unwrap_or_default();
    b.truncate(64);
    vec![b]
}

/// The bytes as they are, and with a right checksum.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_header(bytes: &[u8]) {
    let _ = claimed_id(bytes);
    let mut sealed = bytes.to_vec();
    sealed.resize(BLOCK, 0);
    let crc = crc32c(&sealed[16..]);
    sealed[12..16].copy_from_slice(&crc.to_le_bytes());
    for b in [bytes, &sealed] {
        if let Ok(header) = Header::decode(b) {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_nothing_else_passes() {
        let h = Header::plan(7, 10 << 30).unwrap();
        assert_eq!(Header::decode(&h.encode()), Ok(h));
        assert!(h.unit_at(h.units) <= h.bytes && h.unit_at(0) == h.slot_at(1) + h.slot_bytes);
        assert_eq!(Header::plan(7, BYTES_MIN - 1), None);
        assert_eq!(Header::decode(&[0; BLOCK]), Err(Bad::Foreign));
        assert_eq!(Header::decode(&h.encode()[..100]), Err(Bad::Foreign));
        for at in [8, 12, 16, 40, 48, 4000] {
            let mut b = h.encode();
            b[at] ^= 0x40;
            assert!(Header::decode(&b).is_err(), "byte {at}");
        }
        assert_eq!(claimed_id(&h.encode()), Some(7));
    }
}
