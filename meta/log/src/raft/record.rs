//! The records of the write-ahead log: their kinds, and their bytes both ways.
//!
//! What always holds: the stored shapes are our own and versioned; nothing of openraft's own encoding is stored. Decoding
//! answers an error on any input it does not know. The bytes are drawn in docs/formats/wal.md.

use super::types::{Command, Id, Members, Membership, Payload, RaftEntry, Vote, id};
use bytes::Bytes;
use openraft::BasicNode;
use serde::{Deserialize, Serialize};

/// The version this code writes and the newest it reads.
pub const VERSION: u8 = 1;

/// Kinds of records, as the record log stores them.
pub mod kind {
    pub const ENTRIES: u8 = 1;
    pub const VOTE: u8 = 2;
    pub const TRUNCATE: u8 = 3;
    pub const PURGE: u8 = 4;
    pub const COMMITTED: u8 = 5;
    pub const RESET: u8 = 6;
}

/// A log id: (term, leader, index).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredId {
    pub term: u64,
    pub leader: u64,
    pub index: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVote {
    pub term: u64,
    pub node: u64,
    pub committed: bool,
}

/// Who is a member: joint configurations as sorted lists of voters, and every node's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMembers {
    pub configs: Vec<Vec<u64>>,
    pub nodes: Vec<(u64, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredKind {
    Blank,
    Command(Bytes),
    Members(StoredMembers),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEntry {
    pub index: u64,
    pub term: u64,
    pub leader: u64,
    pub now_ns: i64,
    pub kind: StoredKind,
}

/// Consecutive entries, and how far the log was committed when they were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    pub committed: Option<StoredId>,
    pub entries: Vec<StoredEntry>,
}

/// Everything after `after` is void. `None`: everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncate {
    pub after: Option<StoredId>,
}

/// Entries up to `upto` are no longer needed. It repeats what must outlive the segments given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purge {
    pub upto: StoredId,
    pub vote: Option<StoredVote>,
    pub committed: Option<StoredId>,
    /// No later entry may be stamped below this.
    pub now_ns: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    pub id: StoredId,
}

/// Everything before is void: a copy of the log is filled anew from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {}

/// What the state machine keeps for the log with each batch it applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    pub applied: StoredId,
    pub members_id: Option<StoredId>,
    pub members: StoredMembers,
    pub now_ns: i64,
}

impl From<Id> for StoredId {
    fn from(i: Id) -> Self {
        Self { term: i.leader_id.term, leader: i.leader_id.node_id, index: i.index }
    }
}

impl From<StoredId> for Id {
    fn from(i: StoredId) -> Self {
        id(i.term, i.leader, i.index)
    }
}

impl From<Vote> for StoredVote {
    fn from(v: Vote) -> Self {
        Self { term: v.leader_id.term, node: v.leader_id.node_id, committed: v.committed }
    }
}

impl From<StoredVote> for Vote {
    fn from(v: StoredVote) -> Self {
        let vote = Vote::new(v.term, v.node);
        Vote { committed: v.committed, ..vote }
    }
}

impl From<&Membership> for StoredMembers {
    fn from(m: &Membership) -> Self {
        Self {
            configs: m.get_joint_config().iter().map(|c| c.iter().copied().collect()).collect(),
            nodes: m.nodes().map(|(id, n)| (*id, n.addr.clone())).collect(),
        }
    }
}

impl StoredMembers {
    pub fn to_membership(&self) -> Result<Membership, String> {
        if self.configs.is_empty() && self.nodes.is_empty() {
            return Ok(Membership::default());
        }
        let configs = self.configs.iter().map(|c| c.iter().copied().collect()).collect();
        let nodes: std::collections::BTreeMap<u64, BasicNode> = self.nodes.iter().map(|(id, a)| (*id, BasicNode::new(a))).collect();
        Membership::new(configs, nodes).map_err(|e| format!("stored membership: {e}"))
    }
}

impl StoredEntry {
    pub fn from_raft(e: &RaftEntry, now_ns: i64) -> Self {
        let kind = match &e.payload {
            Payload::Blank => StoredKind::Blank,
            Payload::Normal(c) => StoredKind::Command(c.bytes.clone()),
            Payload::Membership(m) => StoredKind::Members(m.into()),
        };
        let StoredId { term, leader, index } = e.log_id.into();
        Self { index, term, leader, now_ns, kind }
    }

    pub fn into_raft(self) -> Result<RaftEntry, String> {
        let payload = match self.kind {
            StoredKind::Blank => Payload::Blank,
            StoredKind::Command(bytes) => Payload::Normal(Command { now_ns: self.now_ns, bytes }),
            StoredKind::Members(m) => Payload::Membership(m.to_membership()?),
        };
        Ok(RaftEntry { log_id: id(self.term, self.leader, self.index), payload })
    }
}

impl Tail {
    pub fn members(&self) -> Result<Members, String> {
        Ok(Members::new(self.members_id.map(Into::into), self.members.to_membership()?))
    }
}

/// One version byte, then postcard.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("memory takes everything these types hold")
}

/// The reverse of [`encode`]; trailing bytes are an error.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &str) -> Result<T, String> {
    match bytes.split_first() {
        None => Err(format!("{what}: empty")),
        Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            Ok((_, more)) => Err(format!("{what}: {} bytes too many", more.len())),
            Err(e) => Err(format!("{what}: {e}")),
        },
        Some((&v, _)) => Err(format!("{what}: version {v} is unknown here (newest known: {VERSION})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Entries {
        let kinds = [
            StoredKind::Blank,
            StoredKind::Command(Bytes::from_static(b"abc")),
            StoredKind::Members(StoredMembers { configs: vec![vec![1, 2]], nodes: vec![(1, "a:1".into()), (2, String::new())] }),
        ];
        let entry = |(i, kind)| StoredEntry { index: 5 + i as u64, term: 3, leader: 1, now_ns: 77, kind };
        Entries { committed: Some(StoredId { term: 3, leader: 1, index: 4 }), entries: kinds.into_iter().enumerate().map(entry).collect() }
    }

    #[test]
    fn entries_survive_both_ways() {
        let bytes = encode(&sample());
        let back: Entries = decode(&bytes, "entries").expect("decodes");
        assert_eq!(back, sample());
        for e in back.entries {
            let raft = e.clone().into_raft().expect("a valid entry");
            let again = StoredEntry::from_raft(&raft, e.now_ns);
            assert_eq!(again, e);
        }
    }

    #[test]
    fn the_bytes_of_version_1_do_not_change() {
        let bytes = encode(&sample());
        let want = [
            1, 1, 3, 1, 4, 3, // version, committed (3, 1, 4), three entries
            5, 3, 1, 154, 1, 0, // 5: term 3, leader 1, now 77 (zigzag 154), blank
            6, 3, 1, 154, 1, 1, 3, b'a', b'b', b'c', // 6: a command of three bytes
            7, 3, 1, 154, 1, 2, 1, 2, 1, 2, 2, 1, 3, b'a', b':', b'1', 2, 0, // 7: members
        ];
        assert_eq!(bytes, want);
        assert_eq!(encode(&Truncate { after: None }), [1, 0]);
        let purge = Purge {
            upto: StoredId { term: 1, leader: 2, index: 3 },
            vote: Some(StoredVote { term: 4, node: 5, committed: true }),
            committed: None,
            now_ns: -1,
        };
        assert_eq!(encode(&purge), [1, 1, 2, 3, 1, 4, 5, 1, 0, 1]);
    }

    #[test]
    fn no_input_makes_decoding_panic() {
        let whole = encode(&sample());
        for n in 0..whole.len() {
            assert!(decode::<Entries>(&whole[..n], "entries").is_err(), "cut at {n}");
        }
        for i in 0..whole.len() {
            for v in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[i] = v;
                let _ = decode::<Entries>(&bad, "entries").map(|e| e.entries.into_iter().map(StoredEntry::into_raft).collect::<Vec<_>>());
            }
        }
        let mut more = whole.clone();
        more.push(0);
        assert!(decode::<Entries>(&more, "entries").is_err());
        assert!(decode::<Entries>(&[2, 0, 0], "entries").is_err_and(|e| e.contains("version 2")));
        // A length far beyond the input must not be allocated.
        assert!(decode::<Entries>(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "entries").is_err());
    }
}
