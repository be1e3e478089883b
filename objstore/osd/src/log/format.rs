//! The bytes of a log: one file per structure below. Drawn in docs/formats/log.md.
//!
//! What always holds: integers are little-endian; every structure has a magic, a version where it may grow, and a CRC32C;
//! decoders take any bytes, never panic, and allocate nothing from a length they have not bounded.

pub mod checkpoint;
pub mod head;
pub mod root;
pub mod segment;

use holdfast_objstore_base::units::BLOCK;
use std::fmt;

/// The version this program writes; it reads all up to it.
pub const VERSION: u32 = 1;
/// The first block of a segment that may hold a record; before it stand two header slots.
pub const DATA_START: u32 = 2;

/// Where a record begins. Order of positions is order of sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// One use of one segment; never given twice.
    pub life: u32,
    /// Block within the segment.
    pub block: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.life, self.block)
    }
}

/// Where a record is and how long: all that is needed to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    pub position: Position,
    /// Blocks before the payload.
    pub head_blocks: u32,
    pub payload_bytes: u32,
}

impl Location {
    /// Blocks of head and payload.
    pub fn blocks(&self) -> u32 {
        self.head_blocks + payload_blocks(self.payload_bytes)
    }
    /// Bytes the record takes in its segment.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks() as u64 * BLOCK as u64
    }
}

pub(crate) fn payload_blocks(payload_bytes: u32) -> u32 {
    payload_bytes.div_ceil(BLOCK as u32)
}

/// Reads fixed fields one after the other out of a slice whose length was checked.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.0.split_first_chunk::<N>().expect("the length was checked");
        self.0 = tail;
        *head
    }
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    pub fn u128(&mut self) -> u128 {
        u128::from_le_bytes(self.take())
    }
}

/// Why bytes are not the structure they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bad {
    /// All zero: never written.
    Blank,
    /// No magic.
    Foreign,
    /// Well formed, but of a newer version.
    Newer(u32),
    /// A record of an earlier life of the segment.
    Stale,
    /// A length, a position or an identity that cannot be.
    Bounds(&'static str),
    /// The checksum differs.
    Checksum,
    /// Fewer bytes than the structure takes.
    Short,
    /// The device does not give the bytes.
    Unreadable(String),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Blank => f.write_str("never written"),
            Bad::Foreign => f.write_str("not a structure of this log"),
            Bad::Newer(v) => write!(f, "written by a newer version ({v})"),
            Bad::Stale => f.write_str("left from an earlier life of the segment"),
            Bad::Bounds(what) => write!(f, "{what} is out of bounds"),
            Bad::Checksum => f.write_str("the checksum differs"),
            Bad::Short => f.write_str("cut short"),
            Bad::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}
