//! Telling what a row of the state is, for `holdfast dump`.
//!
//! What always holds: any key and any value give a line; what this code would not read gives one with an error. Every family is in
//! the table, which a test compares with [`crate::keys`].

pub use crate::keys::after_prefix;

use crate::keys::{self, BlockId};
use crate::record::BucketRecord;
use crate::record::{
    self, Chunk, Completed, CookieRecord, Counters, Dentry, Inode, Orphan, Owned, Pieces, Record, Retired, Session, Stats, StripeRecord,
    UploadRecord, decode,
};
use holdfast_objstore_base::dump::{Line, hex};
use holdfast_objstore_proto::meta::{ObjectInfo, Reply};
use holdfast_objstore_proto::{BucketId, StripeId, UploadId};

/// What follows the family in a key.
#[derive(Clone, Copy)]
enum Part {
    U8(&'static str),
    U16(&'static str),
    U32(&'static str),
    U64(&'static str),
    Stripe,
    /// The 17 bytes of a block of ids.
    Block,
    /// Bytes up to the end, or up to the parts that follow (a NUL and a number).
    Name,
    /// The next part need not be there.
    Maybe,
}

struct Family {
    byte: u8,
    name: &'static str,
    key: &'static [Part],
    value: fn(Line, &[u8]) -> Line,
}

fn of<T: Record>(line: Line, bytes: &[u8]) -> Line {
    match decode::<T>(bytes) {
        Ok(value) => line.with("value", value),
        Err(e) => line.bad(e.0),
    }
}

fn empty(line: Line, bytes: &[u8]) -> Line {
    if bytes.is_empty() { line } else { line.bad(format!("a value of {} bytes where none should be", bytes.len())) }
}

fn owned(line: Line, bytes: &[u8]) -> Line {
    if bytes.is_empty() { line } else { of::<Owned>(line, bytes) }
}

fn header(line: Line, bytes: &[u8]) -> Line {
    match bytes.split_first_chunk::<4>().map(|(magic, version)| (magic, <[u8; 4]>::try_from(version))) {
        Some((b"HFMS", Ok(version))) => line.with("version", u32::from_be_bytes(version)),
        _ => line.bad("not the header of a metadata state"),
    }
}

fn chunk(line: Line, bytes: &[u8]) -> Line {
    // A head and a block differ by the key: the block's has its number.
    if line.field("block").is_some() { of::<Pieces>(line, bytes) } else { of::<Chunk>(line, bytes) }
}

macro_rules! families {
    ($($byte:ident $name:literal [$($part:expr),*] $value:expr;)*) => {
        const TABLE: &[Family] = &[$(Family { byte: keys::$byte, name: $name, key: &[$($part),*], value: $value }),*];
    };
}

use self::Part::*;
families! {
    HEADER "header" [] header;
    COUNTERS "counters" [] of::<Counters>;
    STATS "totals" [] of::<Stats>;
    BUCKET "bucket" [U32("bucket")] of::<BucketRecord>;
    BUCKET_NAME "bucket-name" [Name] of::<BucketId>;
    INODE "inode" [U64("inode")] of::<Inode>;
    INFO "object-record" [U64("inode")] of::<ObjectInfo>;
    CHUNK "chunk" [U64("inode"), U32("chunk"), Maybe, U8("block")] chunk;
    ORPHAN "orphan" [U64("inode")] of::<Orphan>;
    DENTRY "name" [U64("dir"), Name] of::<Dentry>;
    COOKIE "cookie" [U64("dir"), U64("cookie")] of::<CookieRecord>;
    STRIPE "stripe" [Stripe] of::<StripeRecord>;
    RETIRED "retired-stripe" [Stripe] of::<Retired>;
    MISSING "missing-shards" [Stripe] empty;
    STAGED "staged-stripe" [U64("index"), Stripe] empty;
    PACKED "packed-stripe" [Stripe, U32("at")] of::<record::Packed>;
    SPARSE "sparse-pack" [Stripe] empty;
    SMALL "small-stripe" [U32("bucket"), Stripe] of::<record::Small>;
    SESSION "session" [U64("session")] of::<Session>;
    REPLY "reply" [U64("session"), U64("seq")] of::<Reply>;
    BLOCK "id-block" [Block] of::<record::Block>;
    OWNED "owned-block" [U64("session"), Block] owned;
    UPLOAD "upload" [U64("upload")] of::<UploadRecord>;
    UPLOAD_KEY "upload-key" [U32("bucket"), Name, U64("upload")] empty;
    PART "part" [U64("upload"), U16("part")] of::<record::Part>;
    COMPLETED "completed-upload" [U64("upload")] of::<Completed>;
    COMPLETED_ORDER "completed-order" [U64("n")] of::<UploadId>;
}

/// Adds to `line` the family of a row, what its key and its value say, and what is wrong with them.
pub fn describe(line: Line, key: &[u8], value: &[u8]) -> Line {
    let line = line.with("key", hex(key));
    let Some((family, rest)) = key.split_first().and_then(|(f, rest)| Some((TABLE.iter().find(|t| t.byte == *f)?, rest))) else {
        return line.bad("a key of no family that this program knows");
    };
    match parse(line.clone().with("family", family.name), family.key, rest) {
        Some(line) => (family.value)(line, value),
        None => line.with("family", family.name).bad("a key of another length than its family's"),
    }
}

fn number<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn parse(mut line: Line, parts: &[Part], mut rest: &[u8]) -> Option<Line> {
    for (i, part) in parts.iter().enumerate() {
        line = match *part {
            U8(name) => line.with(name, number::<1>(&mut rest)?[0]),
            U16(name) => line.with(name, u16::from_be_bytes(number(&mut rest)?)),
            U32(name) => line.with(name, u32::from_be_bytes(number(&mut rest)?)),
            U64(name) => line.with(name, u64::from_be_bytes(number(&mut rest)?)),
            Stripe => line.show("stripe", StripeId::from_bytes(number(&mut rest)?)),
            Block => line.with("block", format!("{:?}", BlockId::from_bytes(&number::<17>(&mut rest)?)?)),
            Name => {
                let behind = if i + 1 < parts.len() { 9 } else { 0 };
                let (name, tail) = rest.split_at_checked(rest.len().checked_sub(behind)?)?;
                rest = match (behind, tail.split_first()) {
                    (0, _) => tail,
                    (_, Some((0, number))) => number,
                    _ => return None,
                };
                line.with("name", bytes::Bytes::copy_from_slice(name))
            }
            Maybe if rest.is_empty() => return Some(line),
            Maybe => line,
        };
    }
    rest.is_empty().then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode;
    use std::path::Path;

    #[test]
    fn every_family_is_told_of() {
        let known: Vec<u8> = TABLE.iter().map(|f| f.byte).collect();
        assert_eq!(known, keys::FAMILIES);
    }

    #[test]
    fn rows_are_told_by_their_names() {
        let line = || Line::new("row", Path::new("state"));
        let told = describe(line(), &keys::upload_key(BucketId(3), b"a/b", UploadId(9)), b"");
        assert_eq!(told.to_string(), "state row key=6100000003612f62000000000000000009 family=upload-key bucket=3 name=a/b upload=9");
        let pieces = encode(&Pieces(Vec::new()));
        let ino = holdfast_objstore_proto::InodeId(5);
        assert!(!describe(line(), &keys::chunk_block(ino, 1, 2), &pieces).is_bad());
        assert!(describe(line(), &keys::chunk(ino, 1), &pieces).is_bad(), "a head is no block");
        for bad in [&[][..], &[0xf0, 1], &[0x20, 1], &[0x61, 0, 0, 0, 1, b'k', 1, 0, 0, 0, 0, 0, 0, 0, 9]] {
            assert!(describe(line(), bad, b"").is_bad(), "{bad:02x?}");
        }
    }
}
