//! The way to other members: there are none yet, and whoever asks is told so.
//!
//! What it leaves out: everything. Members beyond the first come with framed RPC between machines; until then a call here is a
//! sign of a membership that this code did not make.

use super::machine::Checkpoint;
use super::types::{NodeId, Types, Vote};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::type_config::alias::SnapshotOf;
use openraft::{AnyError, BasicNode, RaftNetworkFactory, RaftNetworkV2};

/// Makes connections that refuse.
pub struct NoNetwork;

/// A connection that refuses.
pub struct Refused {
    target: NodeId,
}

impl Refused {
    fn why(&self) -> Unreachable<Types> {
        Unreachable::new(&AnyError::error(format!("member {} cannot be reached: this version runs one member", self.target)))
    }
}

impl RaftNetworkFactory<Types> for NoNetwork {
    type Network = Refused;

    async fn new_client(&mut self, target: NodeId, _node: &BasicNode) -> Refused {
        Refused { target }
    }
}

impl RaftNetworkV2<Types> for Refused {
    type SnapshotData = Checkpoint;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(self.why()))
    }

    async fn vote(&mut self, _: VoteRequest<Types>, _: RPCOption) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(self.why()))
    }

    async fn pre_vote(&mut self, _: VoteRequest<Types>, _: RPCOption) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(self.why()))
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: SnapshotOf<Types, Checkpoint>,
        _: impl Future<Output = ReplicationClosed> + openraft::OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(StreamingError::Unreachable(self.why()))
    }
}
