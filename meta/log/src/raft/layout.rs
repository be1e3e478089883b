//! How a record of the write-ahead log lies in a record of the record log: its name, and where its body is.
//!
//! ```text
//!  0  1  0: the body is the rest of the meta; 1: the body is the payload
//!  1  8  epoch of the set of copies it was written under: number of the start
//!  9  4  epoch: number of the change
//! 13  8  number of the record, rising by one along the log
//! 21  8  the highest entry index in it, 0 when there is none
//! 29  …  the body, if it is here
//! ```
//! Numbers are little-endian.

use super::mirror::set::Epoch;
use super::record;
use bytes::Bytes;
use holdfast_objstore_base::checksum::block_crcs;
use holdfast_objstore_osd::log::{Append, META_BYTES_MAX};

const BODY_IN_META: u8 = 0;
const BODY_IN_PAYLOAD: u8 = 1;
const HEAD: usize = 29;

/// The name of a record. Two copies that have a record of the same name have the same records up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub epoch: Epoch,
    pub number: u64,
}

/// Where the body of a record is.
pub enum Body<'a> {
    Here(&'a [u8]),
    InPayload,
}

/// Puts the body where it is cheapest: beside the head when it fits. Only entries stay out of the reserve: a purge makes
/// room, and the others are a block each at a start or an end.
pub fn pack(kind: u8, key: Key, index_max: u64, body: Vec<u8>) -> Append {
    let here = HEAD + body.len() <= META_BYTES_MAX;
    let mut meta = Vec::with_capacity(if here { HEAD + body.len() } else { HEAD });
    meta.push(if here { BODY_IN_META } else { BODY_IN_PAYLOAD });
    meta.extend_from_slice(&key.epoch.start.to_le_bytes());
    meta.extend_from_slice(&key.epoch.change.to_le_bytes());
    meta.extend_from_slice(&key.number.to_le_bytes());
    meta.extend_from_slice(&index_max.to_le_bytes());
    let append = if here {
        meta.extend_from_slice(&body);
        Append::new(kind, meta)
    } else {
        // Here, once for all copies.
        let crcs = block_crcs(&body);
        Append::new(kind, meta).payload(Bytes::from(body)).crcs(crcs.into())
    };
    if kind == record::kind::ENTRIES { append } else { append.urgent() }
}

/// The reverse of [`pack`]: the record's name, its highest entry index, and where its body is.
pub fn unpack(meta: &[u8]) -> Result<(Key, u64, Body<'_>), String> {
    let unknown = || format!("a record of the write-ahead log with an unknown layout (record version {})", record::VERSION);
    let (head, rest) = meta.split_first_chunk::<HEAD>().ok_or_else(unknown)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let change = u32::from_le_bytes(head[9..13].try_into().expect("four bytes"));
    let key = Key { epoch: Epoch { start: word(1), change }, number: word(13) };
    match (head[0], rest) {
        (BODY_IN_META, rest) => Ok((key, word(21), Body::Here(rest))),
        (BODY_IN_PAYLOAD, []) => Ok((key, word(21), Body::InPayload)),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_any_size_is_found_again_under_its_name() {
        let key = Key { epoch: Epoch { start: 5, change: 6 }, number: 7 };
        for (len, here) in [(0, true), (1, true), (META_BYTES_MAX - HEAD, true), (META_BYTES_MAX - HEAD + 1, false)] {
            let append = pack(record::kind::ENTRIES, key, 8, vec![9; len]);
            let (found, index_max, body) = unpack(&append.meta).expect("its own layout");
            assert_eq!((found, index_max), (key, 8));
            match body {
                Body::Here(b) => assert!(here && b == vec![9; len]),
                Body::InPayload => assert!(!here && append.payload == vec![9; len]),
            }
        }
        for n in 0..HEAD {
            assert!(unpack(&vec![0; n]).is_err());
        }
        assert!(unpack(&[2; HEAD]).is_err() && unpack(&[1; HEAD + 1]).is_err());
    }
}
