//! The directory of a volume as its slots hold it: all names, small contents, and where large files lie. Drawn in docs/formats/volume.md.
//!
//! What always holds: decoding allocates no more than there are bytes, and gives an error for anything that no volume wrote.

use super::header::{Header, UNIT, VERSION};
use super::units::{Free, Run};
use crate::checksum::crc32c;
use crate::units::block_up;
use std::collections::BTreeMap;

const MAGIC: [u8; 8] = *b"HfDirect";
const SLOT_HEADER: usize = 56;
const ENTRY_HEADER: usize = 24;
/// Bytes of a small file, at most.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// Bytes of a name (a path below the root), at most.
pub const NAME_BYTES_MAX: usize = 1024;

/// What stands under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    Folder,
    Small(Vec<u8>),
    Large { len: u64, runs: Vec<Run> },
}

pub type Names = BTreeMap<String, Stored>;

/// Writes a slot's content; its length is a whole number of blocks.
pub fn encode<'a>(header: &Header, generation: u64, names: impl Iterator<Item = (&'a str, Stored)>) -> Vec<u8> {
    let mut out = vec![0; SLOT_HEADER];
    let mut count = 0u32;
    for (name, stored) in names {
        count += 1;
        let (kind, pieces, len) = match &stored {
            Stored::Folder => (1u8, 0, 0),
            Stored::Large { len, runs } => (2, runs.len(), *len),
            Stored::Small(bytes) => (3, bytes.len(), bytes.len() as u64),
        };
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[kind, 0]);
        out.extend_from_slice(&(pieces as u32).to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(name.as_bytes());
        match stored {
            Stored::Folder => {}
            Stored::Small(bytes) => out.extend_from_slice(&bytes),
            Stored::Large { runs, .. } => {
                for run in runs {
                    out.extend_from_slice(&run.first.to_le_bytes());
                    out.extend_from_slice(&run.count.to_le_bytes());
                }
            }
        }
    }
    let bytes = out.len() as u64;
    out.resize(block_up(bytes) as usize, 0);
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&header.id.to_le_bytes());
    out[32..40].copy_from_slice(&generation.to_le_bytes());
    out[40..48].copy_from_slice(&bytes.to_le_bytes());
    out[48..52].copy_from_slice(&count.to_le_bytes());
    let crc = crc32c(&out[16..bytes as usize]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Bytes of a slot's content as its first block claims, if it claims any that fit.
pub fn claimed_bytes(block: &[u8], header: &Header) -> Option<usize> {
    let raw = block.get(..SLOT_HEADER).filter(|b| b[..8] == MAGIC)?;
    let bytes = u64::from_le_bytes(raw[40..48].try_into().expect("eight bytes"));
    (SLOT_HEADER as u64..=header.slot_bytes).contains(&bytes).then_some(bytes as usize)
}

/// Takes `n` bytes off the front.
fn split<'a>(rest: &mut &'a [u8], n: usize) -> Result<&'a [u8], &'static str> {
    let (head, tail) = rest.split_at_checked(n).ok_or("it is cut short")?;
    *rest = tail;
    Ok(head)
}

/// Reads a slot: its generation, the names, and what is free. Every error is a reason to use the other slot.
pub fn decode(slot: &[u8], header: &Header) -> Result<(u64, Names, Free), &'static str> {
    let bytes = claimed_bytes(slot, header).ok_or("it is not a directory")?;
    let content = slot.get(..bytes).ok_or("it is cut short")?;
    let u32_of = |b: &[u8]| u32::from_le_bytes(b[..4].try_into().expect("four bytes"));
    let u64_of = |b: &[u8]| u64::from_le_bytes(b[..8].try_into().expect("eight bytes"));
    if u32_of(&content[8..]) != VERSION {
        return Err("it was written by another version");
    }
    if u32_of(&content[12..]) != crc32c(&content[16..]) {
        return Err("its checksum is wrong");
    }
    if content[16..32] != header.id.to_le_bytes() {
        return Err("it is another volume's");
    }
    let (generation, count) = (u64_of(&content[32..]), u32_of(&content[48..]));
    let (mut names, mut free) = (Names::new(), Free::all(header.units));
    let mut rest = &content[SLOT_HEADER..];
    for _ in 0..count {
        let head = split(&mut rest, ENTRY_HEADER)?;
        let name_bytes = u16::from_le_bytes([head[0], head[1]]) as usize;
        let (kind, pieces, len) = (head[2], u32_of(&head[4..]) as usize, u64_of(&head[8..]));
        if name_bytes == 0 || name_bytes > NAME_BYTES_MAX {
            return Err("a name has no length that names have");
        }
        let name = std::str::from_utf8(split(&mut rest, name_bytes)?).map_err(|_| "a name is not UTF-8")?.to_string();
        let stored = match kind {
            1 => Stored::Folder,
            2 => {
                let raw = split(&mut rest, pieces.checked_mul(8).ok_or("it is cut short")?)?;
                let runs: Vec<Run> = raw.chunks_exact(8).map(|r| Run { first: u32_of(r), count: u32_of(&r[4..]) }).collect();
                if !runs.iter().all(|r| free.claim(*r)) {
                    return Err("two files share a unit, or one lies outside");
                }
                let units: u64 = runs.iter().map(|r| r.count as u64).sum();
                if len > units * UNIT {
                    return Err("a file is longer than its units");
                }
                Stored::Large { len, runs }
            }
            3 if pieces <= SMALL_BYTES_MAX => Stored::Small(split(&mut rest, pieces)?.to_vec()),
            _ => return Err("an entry is of no known kind"),
        };
        if names.insert(name, stored).is_some() {
            return Err("a name is there twice");
        }
    }
    if !rest.is_empty() {
        return Err("there is more than its entries");
    }
    Ok((generation, names, free))
}

/// The volume that fuzzing reads directories of.
#[cfg(feature = "fuzzing")]
fn fuzzed() -> Header {
    Header::plan(1, 64 << 20).expect("large enough")
}

#[cfg(feature = "fuzzing")]
pub(crate) fn directory_samples() -> Vec<Vec<u8>> {
    let runs = vec![Run { first: 3, count: 2 }, Run { first: 9, count: 1 }];
    let names =
        [("log", Stored::Folder), ("log/0.segment", Stored::Large { len: 3 * UNIT, runs }), ("log/log", Stored::Small(vec![7; 64]))];
    let mut slot = encode(&fuzzed(), 5, names.into_iter());
    let used = claimed_bytes(&slot, &fuzzed()).unwrap_or(0);
    slot.truncate(used);
    vec![slot]
}

/// The bytes as they are, and with a length and a checksum that fit.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_directory(bytes: &[u8]) {
    let header = fuzzed();
    let mut sealed = bytes.to_vec();
    if sealed.len() >= SLOT_HEADER {
        let len = sealed.len() as u64;
        sealed[40..48].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c(&sealed[16..]);
        sealed[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    for b in [bytes, &sealed] {
        if let Ok((generation, names, free)) = decode(b, &header) {
            let again = encode(&header, generation, names.iter().map(|(n, s)| (n.as_str(), s.clone())));
            let (g, n, f) = decode(&again, &header).expect("what was encoded decodes");
            assert_eq!((g, n, f.units()), (generation, names, free.units()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let runs = vec![Run { first: 3, count: 2 }, Run { first: 9, count: 1 }];
        [
            ("log", Stored::Folder),
            ("log/00000000.segment", Stored::Large { len: 3 * UNIT, runs }),
            ("log/log", Stored::Small(vec![7; 64])),
            ("none", Stored::Large { len: 0, runs: vec![] }),
        ]
        .into_iter()
        .map(|(n, s)| (n.to_string(), s))
        .collect()
    }

    fn encoded(names: &Names, header: &Header) -> Vec<u8> {
        encode(header, 5, names.iter().map(|(n, s)| (n.as_str(), s.clone())))
    }

    #[test]
    fn a_directory_comes_back_whole() {
        let h = Header::plan(1, 64 << 20).unwrap();
        let (generation, back, free) = decode(&encoded(&names(), &h), &h).unwrap();
        assert_eq!((generation, back, free.units()), (5, names(), h.units - 3));
        let (_, none, free) = decode(&encoded(&Names::new(), &h), &h).unwrap();
        assert!(none.is_empty() && free.units() == h.units);
    }

    #[test]
    fn no_bytes_make_it_panic_or_pass() {
        let h = Header::plan(1, 64 << 20).unwrap();
        let whole = encoded(&names(), &h);
        let used = claimed_bytes(&whole, &h).unwrap();
        for n in 0..used {
            assert!(decode(&whole[..n], &h).is_err(), "cut at {n}");
        }
        let mut rng = crate::sim::Rng::new(3);
        for _ in 0..20_000 {
            let mut b = whole.clone();
            let at = rng.below(used as u64) as usize;
            let was = b[at];
            b[at] = rng.next_u64() as u8;
            assert!(b[at] == was || decode(&b, &h).is_err(), "byte {at}");
            // And with a checksum that fits, as a mistake of ours would have it.
            let crc = crc32c(&b[16..used]);
            b[12..16].copy_from_slice(&crc.to_le_bytes());
            let _ = decode(&b, &h);
        }
        let mut other = h;
        other.id = 2;
        assert!(decode(&whole, &other).is_err());
    }
}
