//! The decoders of the write-ahead log's records, for fuzzing.

use super::layout::unpack;
use super::mirror::set::{Epoch, Set, Super};
use super::record::{self, *};
use bytes::Bytes;
use holdfast_objstore_base::fuzzing::Target;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub const TARGETS: &[Target] = &[
    Target { name: "wal_record", samples: records, body: one_record },
    Target { name: "wal_tail", samples: tails, body: tail },
    Target { name: "wal_mirrors", samples: mirrors, body: mirror },
];

/// Bytes of a record's meta before the body.
const HEAD: usize = 29;

fn mirrors() -> Vec<Vec<u8>> {
    let set = |before| Set { epoch: Epoch { start: 5, change: 6 }, known: vec![0, 1, 2], before, members: vec![0, 2] };
    [vec![], vec![0, 3]].map(|before| Super { log: 7, promised: 8, set: set(before) }.encode()).to_vec()
}

/// The bytes as they are, and with a length and a checksum that fit.
fn mirror(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= 60 {
        let len = sealed.len();
        sealed[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        let crc = holdfast_objstore_base::checksum::crc32c(&sealed[..len - 4]);
        sealed[len - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    for b in [bytes, &sealed] {
        if let Ok(s) = Super::decode(b) {
            assert_eq!(Super::decode(&s.encode()), Ok(s));
        }
    }
}

fn id(index: u64) -> StoredId {
    StoredId { term: 3, leader: 1, index }
}

fn members() -> StoredMembers {
    StoredMembers { configs: vec![vec![1, 2]], nodes: vec![(1, "a:1".into()), (2, String::new())] }
}

/// The first byte is the kind, the rest the record's meta: where the body is, and the body.
fn records() -> Vec<Vec<u8>> {
    let kinds = [StoredKind::Blank, StoredKind::Command(Bytes::from_static(b"abc")), StoredKind::Members(members())];
    let entry = |(i, kind)| StoredEntry { index: 5 + i as u64, term: 3, leader: 1, now_ns: 77, kind };
    let entries = Entries { committed: Some(id(4)), entries: kinds.into_iter().enumerate().map(entry).collect() };
    let vote = StoredVote { term: 3, node: 1, committed: true };
    let of = |kind: u8, body: Vec<u8>| [&[kind][..], &[0; HEAD], &body].concat();
    vec![
        of(kind::ENTRIES, encode(&entries)),
        of(kind::VOTE, encode(&vote)),
        of(kind::TRUNCATE, encode(&Truncate { after: Some(id(3)) })),
        of(kind::PURGE, encode(&Purge { upto: id(9), vote: Some(vote), committed: None, now_ns: -5 })),
        of(kind::COMMITTED, encode(&Committed { id: id(7) })),
    ]
}

fn one_record(bytes: &[u8]) {
    let Some((kind, meta)) = bytes.split_first() else { return };
    let _ = unpack(meta);
    let body = meta.get(HEAD..).unwrap_or_default();
    match *kind {
        kind::ENTRIES => {
            if let Some(record) = both_ways::<Entries>(body) {
                // What openraft makes of an entry is the entry.
                for e in record.entries {
                    if let Ok(raft) = e.clone().into_raft()
                        && !matches!(e.kind, StoredKind::Members(_))
                    {
                        assert_eq!(StoredEntry::from_raft(&raft, e.now_ns), e);
                    }
                }
            }
        }
        kind::VOTE => drop(both_ways::<StoredVote>(body)),
        kind::TRUNCATE => drop(both_ways::<Truncate>(body)),
        kind::PURGE => drop(both_ways::<Purge>(body)),
        kind::COMMITTED => drop(both_ways::<Committed>(body)),
        _ => {}
    }
    // Whatever the order of records says, reading them back ends with a state or a reason.
    let mut state = super::wal::State::default();
    let _ = state.replay_one(*kind, body);
}

fn both_ways<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(body: &[u8]) -> Option<T> {
    let record: T = record::decode(body, "a record").ok()?;
    assert_eq!(record::decode::<T>(&encode(&record), "a record").as_ref(), Ok(&record));
    Some(record)
}

fn tails() -> Vec<Vec<u8>> {
    vec![encode(&Tail { applied: id(8), members_id: Some(id(2)), members: members(), now_ns: 99 })]
}

fn tail(bytes: &[u8]) {
    if let Some(tail) = both_ways::<Tail>(bytes) {
        let _ = tail.members();
    }
}
