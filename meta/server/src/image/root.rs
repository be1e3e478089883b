//! The root of a snapshot in the pool: which stripes hold it. One is kept beside every OSD's superblock.
//!
//! ```text
//!  0  8  magic "HFSTROOT"             44  4  flags: 1 the state was restored from a backup and not confirmed
//!  8  4  version (1)                  48  2  pieces, P, from 1
//! 12  4  length of all                50  6  zero
//! 16 16  cluster id                   56     P pieces
//! 32  8  number of the root, rising    …  4  CRC-32C of all before
//! 40  4  incarnation of the state
//! piece  0  8  index of the last command in it
//!        8  8  its bytes
//!       16  4  stripes, S
//!       20 20S the stripes in order: id (16), length (4)
//! ```
//! Numbers are little-endian. The first piece has all rows, each further one those that changed since the one before; a stripe is a part of
//! an image (`format`). Where a stripe's shards lie is not told: a reader asks the OSDs.
//!
//! What always holds: of two roots the one with the higher number is the newer.
//! What it leaves out: where it is kept (the caller's).

use crate::superblock::ClusterId;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_proto::StripeId;

const MAGIC: &[u8; 8] = b"HFSTROOT";
const VERSION: u32 = 1;
const HEAD: usize = 56;
const PIECE: usize = 20;
const STRIPE: usize = 20;
const UNCONFIRMED: u32 = 1;
/// What a root may take: a small file on a volume.
pub(crate) const ROOT_BYTES_MAX: usize = 64 << 10;

/// One image, of all rows or of changed ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Index of the last command in it.
    pub applied: u64,
    pub bytes: u64,
    pub stripes: Vec<(StripeId, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub cluster: ClusterId,
    pub number: u64,
    pub incarnation: u32,
    /// The state was restored from a backup, and no operator had confirmed it.
    pub unconfirmed: bool,
    /// At least one.
    pub pieces: Vec<Piece>,
}

impl Root {
    /// Index of the last command in the snapshot.
    pub fn applied(&self) -> u64 {
        self.pieces.last().map_or(0, |p| p.applied)
    }

    /// Bytes of the image of all rows, and of those of changed ones.
    pub fn bytes(&self) -> (u64, u64) {
        let mut bytes = self.pieces.iter().map(|p| p.bytes);
        (bytes.next().unwrap_or(0), bytes.sum())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; HEAD];
        b[..8].copy_from_slice(MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.cluster);
        b[32..40].copy_from_slice(&self.number.to_le_bytes());
        b[40..44].copy_from_slice(&self.incarnation.to_le_bytes());
        b[44..48].copy_from_slice(&if self.unconfirmed { UNCONFIRMED } else { 0 }.to_le_bytes());
        b[48..50].copy_from_slice(&(self.pieces.len() as u16).to_le_bytes());
        for piece in &self.pieces {
            b.extend_from_slice(&piece.applied.to_le_bytes());
            b.extend_from_slice(&piece.bytes.to_le_bytes());
            b.extend_from_slice(&(piece.stripes.len() as u32).to_le_bytes());
            for (id, len) in &piece.stripes {
                b.extend_from_slice(&id.to_bytes());
                b.extend_from_slice(&len.to_le_bytes());
            }
        }
        let len = (b.len() + 4) as u32;
        b[12..16].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c(&b);
        b.extend_from_slice(&crc.to_le_bytes());
        b
    }

    /// An error is the sentence that says why it is none.
    pub fn decode(b: &[u8]) -> Result<Root, String> {
        let word = |at: usize| b.get(at..at + 4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes")));
        let long = |at: usize| b.get(at..at + 8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        let damaged = || "the root of a snapshot is damaged".to_string();
        if b.get(..8) != Some(MAGIC) {
            return Err("it is not the root of a snapshot".into());
        }
        match word(8) {
            Some(version) if version > VERSION => return Err(format!("it was written by a newer program (version {version})")),
            Some(VERSION) if word(12) == Some(b.len() as u32) && b.len() >= HEAD + PIECE + 4 => {}
            _ => return Err(damaged()),
        }
        let end = b.len() - 4;
        if word(end) != Some(crc32c(&b[..end])) {
            return Err(damaged());
        }
        let body = &b[..end];
        let (mut at, mut pieces) = (HEAD, Vec::new());
        let count = u16::from_le_bytes([b[48], b[49]]);
        for _ in 0..count {
            let head = body.get(at..at + PIECE).ok_or_else(damaged)?;
            let (applied, bytes) = (long(at), long(at + 8));
            let stripes = u32::from_le_bytes(head[16..20].try_into().map_err(|_| damaged())?) as usize;
            at += PIECE;
            let list = stripes.checked_mul(STRIPE).and_then(|n| body.get(at..at.checked_add(n)?)).ok_or_else(damaged)?;
            let stripe = |s: &[u8]| {
                let id = StripeId::from_bytes(s[..16].try_into().expect("16 bytes"));
                (id, u32::from_le_bytes(s[16..].try_into().expect("four bytes")))
            };
            let stripes: Vec<_> = list.chunks_exact(STRIPE).map(stripe).collect();
            at += list.len();
            pieces.push(Piece { applied: applied.ok_or_else(damaged)?, bytes: bytes.ok_or_else(damaged)?, stripes });
        }
        let rising = pieces.windows(2).all(|w| w[0].applied < w[1].applied);
        if pieces.is_empty() || at != end || !rising {
            return Err(damaged());
        }
        Ok(Root {
            cluster: b[16..32].try_into().expect("16 bytes"),
            number: long(32).ok_or_else(damaged)?,
            incarnation: word(40).ok_or_else(damaged)?,
            unconfirmed: word(44).ok_or_else(damaged)? & UNCONFIRMED != 0,
            pieces,
        })
    }
}

/// Samples for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let id = |counter| StripeId { incarnation: 1, group: 0, counter };
    let piece = |applied, n: u64| Piece { applied, bytes: n * 1000, stripes: (0..n).map(|i| (id(applied * 10 + i), 1000)).collect() };
    let root = |pieces| Root { cluster: [7; 16], number: 5, incarnation: 1, unconfirmed: false, pieces };
    let all = [root(vec![piece(9, 3)]), Root { unconfirmed: true, ..root(vec![piece(9, 2), piece(12, 1), piece(13, 0)]) }];
    all.iter().map(Root::encode).collect()
}

/// The bytes as they are, and with a right checksum and length.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    sealed.resize(sealed.len().max(HEAD + PIECE + 4), 0);
    let (len, end) = (sealed.len() as u32, sealed.len() - 4);
    sealed[12..16].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(&sealed[..end]);
    sealed[end..].copy_from_slice(&crc.to_le_bytes());
    for b in [bytes, &sealed] {
        if let Ok(root) = Root::decode(b) {
            assert_eq!(Root::decode(&root.encode()), Ok(root));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_survives_both_ways_and_every_damage_to_it_is_seen() {
        for bytes in samples() {
            let root = Root::decode(&bytes).expect("decodes");
            assert_eq!(root.encode(), bytes);
            for n in 0..bytes.len() {
                assert!(Root::decode(&bytes[..n]).is_err(), "cut at {n}");
                let mut bad = bytes.clone();
                bad[n] ^= 1 << (n % 8);
                assert!(Root::decode(&bad).is_err(), "byte {n}");
            }
        }
        let last = Root::decode(&samples()[1]).expect("decodes");
        assert_eq!((last.applied(), last.bytes(), last.unconfirmed), (13, (2000, 1000), true));
        let mut newer = samples()[0].clone();
        newer[8] = 2;
        assert!(Root::decode(&newer).is_err_and(|e| e.contains("newer")));
    }
}
