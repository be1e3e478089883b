//! openraft's type parameters, chosen once; short names for what the other files use.

use bytes::Bytes;
use openraft::{BasicNode, EntryPayload, LogId, RaftTypeConfig, StoredMembership};
use std::fmt;

/// The types of our Raft.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

/// A command on its way through the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Wall nanoseconds, stamped when the leader's log takes the entry; 0 until then.
    pub now_ns: i64,
    pub bytes: Bytes,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

pub type NodeId = u64;
pub type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, NodeId>;
pub type Vote = openraft::impls::Vote<LeaderId>;
pub type Id = LogId<LeaderId>;
pub type Payload = EntryPayload<Command, NodeId, BasicNode>;
pub type RaftEntry = openraft::Entry<LeaderId, Payload>;
pub type Members = StoredMembership<LeaderId, NodeId, BasicNode>;
pub type Membership = openraft::Membership<NodeId, BasicNode>;

impl RaftTypeConfig for Types {
    type D = Command;
    type R = Bytes;
    type NodeId = NodeId;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = RaftEntry;
    type AsyncRuntime = super::runtime::Runtime;
    type Responder<T>
        = openraft::impls::ProgressResponder<Self, T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// A log id from its parts.
pub fn id(term: u64, leader: NodeId, index: u64) -> Id {
    LogId { leader_id: LeaderId { term, node_id: leader }, index }
}
