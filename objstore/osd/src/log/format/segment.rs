//! The header of a segment, in two slots (blocks 0 and 1).
//!
//! ```text
//!  off size
//!    0    8  "HfSegmnt"
//!    8    4  version
//!   12    4  CRC32C of the block from byte 16 on
//!   16   16  log id
//!   32    4  segment number, as in the file name
//!   36    4  life
//!   40    4  state: 1 in service, 2 free
//!   44    4  blocks of the segment
//!   48    8  generation
//!   56    8  no record of this life has a lower sequence number
//!   64       zeroes to the end of the block
//! ```
//! Generation g goes to slot g % 2, so a torn header leaves the one before it. The valid slot of the higher generation
//! counts. Everything that changes lies within one 512-byte sector.

use super::{Bad, Fields, VERSION};
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::units::BLOCK;

const MAGIC: [u8; 8] = *b"HfSegmnt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    InService,
    Free,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub log_id: u128,
    pub number: u32,
    pub life: u32,
    pub state: State,
    pub blocks: u32,
    pub generation: u64,
    pub seq_floor: u64,
}

impl Header {
    pub fn encode(&self) -> AlignedBuf {
        let mut b = AlignedBuf::zeroed(BLOCK);
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.log_id.to_le_bytes());
        b[32..36].copy_from_slice(&self.number.to_le_bytes());
        b[36..40].copy_from_slice(&self.life.to_le_bytes());
        let state: u32 = match self.state {
            State::InService => 1,
            State::Free => 2,
        };
        b[40..44].copy_from_slice(&state.to_le_bytes());
        b[44..48].copy_from_slice(&self.blocks.to_le_bytes());
        b[48..56].copy_from_slice(&self.generation.to_le_bytes());
        b[56..64].copy_from_slice(&self.seq_floor.to_le_bytes());
        let c = crc32c(&b[16..]);
        b[12..16].copy_from_slice(&c.to_le_bytes());
        b
    }

    pub fn decode(block: &[u8]) -> Result<Header, Bad> {
        let block = block.get(..BLOCK).ok_or(Bad::Short)?;
        if block.iter().all(|b| *b == 0) {
            return Err(Bad::Blank);
        }
        let mut f = Fields(block);
        if f.take::<8>() != MAGIC {
            return Err(Bad::Foreign);
        }
        let (version, crc) = (f.u32(), f.u32());
        if crc32c(&block[16..]) != crc {
            return Err(Bad::Checksum);
        }
        if version > VERSION || version == 0 {
            return Err(Bad::Newer(version));
        }
        let (log_id, number, life) = (f.u128(), f.u32(), f.u32());
        let state = match f.u32() {
            1 => State::InService,
            2 => State::Free,
            _ => return Err(Bad::Bounds("state")),
        };
        let (blocks, generation, seq_floor) = (f.u32(), f.u64(), f.u64());
        Ok(Header { log_id, number, life, state, blocks, generation, seq_floor })
    }
}

/// What the two slots of a segment say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slots {
    /// Never in service: both slots are blank.
    Blank,
    /// The header that counts; `other_torn`: the other slot holds bytes that are no header.
    Valid { header: Header, other_torn: bool },
    /// Neither is a header.
    Unreadable(Bad),
}

/// Decides which slot counts. `accept` says whether a well-formed header belongs to this segment of this log.
pub fn choose(slots: [Result<Header, Bad>; 2], accept: impl Fn(&Header) -> bool) -> Slots {
    let mut best: Option<Header> = None;
    let mut bad: Option<Bad> = None;
    for slot in slots {
        match slot {
            Ok(h) if accept(&h) => {
                if best.is_none_or(|b| h.generation > b.generation) {
                    best = Some(h);
                }
            }
            Ok(_) => bad = Some(Bad::Bounds("identity")),
            Err(Bad::Blank) => {}
            Err(b) => bad = Some(b),
        }
    }
    match (best, bad) {
        (Some(header), bad) => Slots::Valid { header, other_torn: bad.is_some() },
        (None, Some(b)) => Slots::Unreadable(b),
        (None, None) => Slots::Blank,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(generation: u64) -> Header {
        Header { log_id: 1 << 90, number: 3, life: 8, state: State::InService, blocks: 64, generation, seq_floor: 1 }
    }

    #[test]
    fn the_newer_valid_slot_counts_and_a_torn_one_leaves_the_older() {
        let (a, b) = (header(4), Header { state: State::Free, ..header(5) });
        assert_eq!(Header::decode(&a.encode()), Ok(a));
        let got = choose([Ok(a), Ok(b)], |_| true);
        assert_eq!(got, Slots::Valid { header: b, other_torn: false });
        let got = choose([Ok(a), Err(Bad::Checksum)], |_| true);
        assert_eq!(got, Slots::Valid { header: a, other_torn: true });
        assert_eq!(choose([Err(Bad::Blank), Err(Bad::Blank)], |_| true), Slots::Blank);
        assert_eq!(choose([Err(Bad::Blank), Err(Bad::Foreign)], |_| true), Slots::Unreadable(Bad::Foreign));
        assert_eq!(choose([Err(Bad::Blank), Ok(a)], |_| false), Slots::Unreadable(Bad::Bounds("identity")));
    }

    #[test]
    fn a_header_torn_at_any_sector_is_the_old_one_the_new_one_or_none() {
        let old = header(4).encode();
        let new = Header { life: 9, ..header(6) }.encode();
        for cut in (0..=BLOCK).step_by(512) {
            let mut b = AlignedBuf::copy_of(&old);
            b[..cut].copy_from_slice(&new[..cut]);
            match Header::decode(&b) {
                Ok(h) => assert!(h == header(4) || h.life == 9),
                Err(e) => panic!("the header spans sectors: {e}"),
            }
        }
    }
}
