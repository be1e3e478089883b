//! The bytes of an image.
//!
//! ```text
//! head     0  8  magic "HFSTIMAG"      36  4  length of the tail, T
//!          8  4  version (1 or 2)      40  8  wall nanoseconds of its making
//!         12 16  cluster id            48  8  version 2: index of the snapshot it changes, 0: it is of all rows
//!         28  8  index applied         56  4  zero
//!                                      60  4  CRC-32C of bytes 0 to 59
//!         64  T  the log's tail         …  4  CRC-32C of the tail
//! blocks   0  4  length of the rows, L
//!          4  4  number of rows, R
//!          8  8  number of the block, from 0
//!         16  4  CRC-32C of bytes 0 to 15 and of the rows
//!         20  L  rows: key length (4), value length (4), key, value
//! end      a block with L = 0 and R = 0
//! ```
//! Numbers are little-endian. Nothing follows the end. Version 1 is a whole image; version 2 is a part of a snapshot in the pool (`root`), which
//! has some rows, and where a value length of 2³² - 1 without a value says that the row was removed. A key of 0xff and a stripe id (16 bytes) is no row of the state: its value is the
//! bytes of a small write that no pack has.

use crate::superblock::ClusterId;
use bytes::Bytes;
use holdfast_objstore_base::checksum::{crc32c, crc32c_parts};
use holdfast_objstore_proto::StripeId;
use std::io::{self, Read};

pub(super) const MAGIC: &[u8; 8] = b"HFSTIMAG";
/// A whole image.
const WHOLE: u32 = 1;
/// A part of a snapshot.
const PART: u32 = 2;
/// In place of a value's length, in a part: the row was removed.
const REMOVED: u32 = u32::MAX;
const HEAD: usize = 64;
const BLOCK_HEAD: usize = 20;
const TAIL_BYTES_MAX: usize = 1 << 20;
/// A block of a longer length is damage.
const BLOCK_BYTES_MAX: usize = 64 << 20;

/// First byte of no row's key.
const STAGED: u8 = 0xff;

/// The key under which inline bytes travel.
pub(crate) fn staged_key(stripe: StripeId) -> Vec<u8> {
    [&[STAGED][..], &stripe.to_bytes()].concat()
}

/// The reverse of [`staged_key`]; `None`: a row of the state.
pub(crate) fn staged_stripe(key: &[u8]) -> Option<StripeId> {
    match key.split_first() {
        Some((&STAGED, id)) => Some(StripeId::from_bytes(id.try_into().ok()?)),
        _ => None,
    }
}

/// What an image is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub cluster: ClusterId,
    /// Index of the last command in it.
    pub applied: u64,
    pub wall_ns: u64,
    /// `Some`: it is a part of a snapshot, which changes the one that ends at this index (0: it is of all rows).
    pub behind: Option<u64>,
    /// The log's own bytes.
    pub tail: Bytes,
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; HEAD];
        b[..8].copy_from_slice(MAGIC);
        let version = if self.behind.is_some() { PART } else { WHOLE };
        b[8..12].copy_from_slice(&version.to_le_bytes());
        b[12..28].copy_from_slice(&self.cluster);
        b[28..36].copy_from_slice(&self.applied.to_le_bytes());
        b[36..40].copy_from_slice(&(self.tail.len() as u32).to_le_bytes());
        b[40..48].copy_from_slice(&self.wall_ns.to_le_bytes());
        b[48..56].copy_from_slice(&self.behind.unwrap_or(0).to_le_bytes());
        let crc = crc32c(&b[..60]);
        b[60..].copy_from_slice(&crc.to_le_bytes());
        b.extend_from_slice(&self.tail);
        b.extend_from_slice(&crc32c(&self.tail).to_le_bytes());
        b
    }
}

/// Rows on their way into one block.
#[derive(Default)]
pub(crate) struct Block {
    rows: Vec<u8>,
    count: u32,
}

impl Block {
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.row(key, value, value.len() as u32);
    }

    /// In a part: the row is no more.
    pub fn push_removed(&mut self, key: &[u8]) {
        self.row(key, &[], REMOVED);
    }

    fn row(&mut self, key: &[u8], value: &[u8], len: u32) {
        self.rows.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.rows.extend_from_slice(&len.to_le_bytes());
        self.rows.extend_from_slice(key);
        self.rows.extend_from_slice(value);
        self.count += 1;
    }

    pub fn bytes(&self) -> usize {
        self.rows.len()
    }

    /// The block's bytes; of an empty one, the end of the image.
    pub fn encode(self, number: u64) -> Vec<u8> {
        let mut b = Vec::with_capacity(BLOCK_HEAD + self.rows.len());
        b.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        b.extend_from_slice(&self.count.to_le_bytes());
        b.extend_from_slice(&number.to_le_bytes());
        let crc = crc32c_parts(&[&b, &self.rows]);
        b.extend_from_slice(&crc.to_le_bytes());
        b.extend_from_slice(&self.rows);
        b
    }
}

/// Reads an image, verifying as it goes.
pub struct Reader<R> {
    from: R,
    head: Head,
    number: u64,
    rows: u64,
    bytes: u64,
    ended: bool,
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn long(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    pub fn open(mut from: R) -> io::Result<Self> {
        let mut b = [0; HEAD];
        from.read_exact(&mut b[..12]).map_err(|_| bad("it is not an image of metadata"))?;
        if &b[..8] != MAGIC {
            return Err(bad("it is not an image of metadata"));
        }
        let version = word(&b, 8);
        if version > PART {
            return Err(bad(format!("it was written by a newer program (version {})", word(&b, 8))));
        }
        from.read_exact(&mut b[12..])?;
        if word(&b, 60) != crc32c(&b[..60]) || version < WHOLE {
            return Err(bad("its head is damaged"));
        }
        let len = word(&b, 36) as usize;
        if len > TAIL_BYTES_MAX {
            return Err(bad("its head is damaged"));
        }
        let mut tail = vec![0; len + 4];
        from.read_exact(&mut tail)?;
        if word(&tail, len) != crc32c(&tail[..len]) {
            return Err(bad("its head is damaged"));
        }
        tail.truncate(len);
        let head = Head {
            cluster: b[12..28].try_into().expect("16 bytes"),
            applied: long(&b, 28),
            wall_ns: long(&b, 40),
            behind: (version == PART).then(|| long(&b, 48)),
            tail: tail.into(),
        };
        let bytes = (HEAD + len + 4) as u64;
        Ok(Self { from, head, number: 0, rows: 0, bytes, ended: false })
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes read so far: where the next block begins.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands the rows of the next block to `row`, `None` those that were removed; whether there was one. False is the image's end, whole.
    pub fn block(&mut self, mut row: impl FnMut(&[u8], Option<Bytes>)) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let mut head = [0; BLOCK_HEAD];
        self.from.read_exact(&mut head).map_err(|_| bad("its end is missing"))?;
        let (len, count) = (word(&head, 0) as usize, word(&head, 4));
        if len > BLOCK_BYTES_MAX {
            return Err(bad(format!("block {} is damaged", self.number)));
        }
        // Read as it comes: a damaged length must not be allocated.
        let mut rows = Vec::new();
        if (&mut self.from).take(len as u64).read_to_end(&mut rows)? != len {
            return Err(bad("its end is missing"));
        }
        if word(&head, 16) != crc32c_parts(&[&head[..16], &rows]) || long(&head, 8) != self.number {
            return Err(bad(format!("block {} is damaged", self.number)));
        }
        self.number += 1;
        self.bytes += (BLOCK_HEAD + len) as u64;
        if len == 0 {
            self.ended = true;
            return match self.from.read(&mut [0])? {
                0 => Ok(false),
                _ => Err(bad("something follows its end")),
            };
        }
        let rows = Bytes::from(rows);
        let (mut at, mut found) = (0, 0);
        while at < rows.len() {
            let lens = rows.get(at..at + 8).ok_or_else(|| bad("a row is cut short"))?;
            let removed = self.head.behind.is_some() && word(lens, 4) == REMOVED;
            let (k, v) = (word(lens, 0) as usize, if removed { 0 } else { word(lens, 4) as usize });
            let key = (at + 8, (at + 8).saturating_add(k));
            let value = (key.1, key.1.saturating_add(v));
            if value.1 > rows.len() {
                return Err(bad("a row is cut short"));
            }
            row(&rows[key.0..key.1], (!removed).then(|| Bytes::copy_from_slice(&rows[value.0..value.1])));
            (at, found) = (value.1, found + 1);
        }
        self.rows += u64::from(count);
        if found != count { Err(bad("a block has another number of rows than it says")) } else { Ok(true) }
    }
}

/// A sample for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let sample = |behind| {
        let mut b = Head { cluster: [7; 16], applied: 5, wall_ns: 6, behind, tail: Bytes::from_static(b"tail") }.encode();
        let mut block = Block::default();
        block.push(b"key", b"value");
        match behind {
            None => block.push(&staged_key(StripeId::from_bytes([3; 16])), b"inline"),
            Some(_) => block.push_removed(b"gone"),
        }
        b.extend(block.encode(0));
        b.extend(Block::default().encode(1));
        b
    };
    vec![sample(None), sample(Some(0)), sample(Some(4))]
}

/// An image is read to its end or to an error.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(mut reader) = Reader::open(bytes) else { return };
    let _ = Head::encode(reader.head());
    while let Ok(true) = reader.block(|key, _| _ = staged_stripe(key)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        let head = Head { cluster: [3; 16], applied: 42, wall_ns: 5, behind: None, tail: Bytes::from_static(b"tail") };
        let mut bytes = head.encode();
        for number in 0..3u64 {
            let mut block = Block::default();
            (0..=number).for_each(|n| block.push(&[b'k', number as u8, n as u8], &vec![7; 10 * n as usize]));
            bytes.extend(block.encode(number));
        }
        bytes.extend(Block::default().encode(3));
        bytes
    }

    fn read(bytes: &[u8]) -> io::Result<(Head, usize)> {
        let mut reader = Reader::open(bytes)?;
        let mut rows = 0;
        while reader.block(|_, _| rows += 1)? {}
        Ok((reader.head().clone(), rows))
    }

    #[test]
    fn an_image_survives_both_ways_and_every_damage_to_it_is_seen() {
        let whole = image();
        let (head, rows) = read(&whole).expect("reads");
        assert_eq!((head.applied, head.cluster, &head.tail[..], rows), (42, [3; 16], &b"tail"[..], 6));
        for n in 0..whole.len() {
            assert!(read(&whole[..n]).is_err(), "cut at {n}");
            let mut bad = whole.clone();
            bad[n] ^= 1 << (n % 8);
            assert!(read(&bad).is_err(), "byte {n}");
        }
        assert!(read(&[whole.clone(), vec![0]].concat()).is_err(), "something follows");
        // A block that is taken out, or two exchanged.
        let head = image().len() - image_blocks().concat().len();
        let blocks = image_blocks();
        let with = |order: &[usize]| [whole[..head].to_vec(), order.iter().flat_map(|i| blocks[*i].clone()).collect()].concat();
        assert!(read(&with(&[0, 1, 2, 3])).is_ok());
        assert!(read(&with(&[0, 2, 3])).is_err() && read(&with(&[1, 0, 2, 3])).is_err());
        let mut newer = whole;
        newer[8] = 3;
        assert!(read(&newer[..12]).is_err_and(|e| e.to_string().contains("newer")));
    }

    #[test]
    fn only_a_part_of_a_snapshot_says_that_rows_were_removed() {
        let rows = |behind| {
            let head = Head { cluster: [3; 16], applied: 42, wall_ns: 5, behind, tail: Bytes::new() };
            let mut block = Block::default();
            block.push(b"a", b"value");
            block.push_removed(b"b");
            let bytes = [head.encode(), block.encode(0), Block::default().encode(1)].concat();
            let mut reader = Reader::open(&bytes[..])?;
            assert_eq!(reader.head().behind, behind);
            let mut rows = Vec::new();
            while reader.block(|key, value| rows.push((key.to_vec(), value)))? {}
            Ok::<_, io::Error>(rows)
        };
        let value = Some(Bytes::from_static(b"value"));
        assert_eq!(rows(Some(0)).expect("reads"), [(b"a".to_vec(), value.clone()), (b"b".to_vec(), None)]);
        assert_eq!(rows(Some(7)).expect("reads").len(), 2);
        assert!(rows(None).is_err());
    }

    fn image_blocks() -> Vec<Vec<u8>> {
        let mut blocks: Vec<Vec<u8>> = (0..3u64)
            .map(|number| {
                let mut block = Block::default();
                (0..=number).for_each(|n| block.push(&[b'k', number as u8, n as u8], &vec![7; 10 * n as usize]));
                block.encode(number)
            })
            .collect();
        blocks.push(Block::default().encode(3));
        blocks
    }
}
