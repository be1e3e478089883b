//! A session of the service's own for what its background work writes: stripes and inodes have ids of its range, so what it leaves behind is
//! reconciled like any writer's.
//!
//! What always holds: one command at a time, so each acknowledges all before it.

use super::super::core::Core;
use holdfast_objstore_proto::meta::{Command, MetaError, MetaResult, Reply, Request};
use holdfast_objstore_proto::{InodeId, InodeRange, SessionEpoch, SessionId, StripeId, StripeRange};

/// Stripe ids asked for at a time: one block of them.
const IDS: u32 = 512;

pub(super) struct Writer {
    pub id: SessionId,
    pub epoch: SessionEpoch,
    seq: u64,
    ids: Option<StripeRange>,
    inodes: Option<InodeRange>,
    /// Somebody ended it.
    pub over: bool,
}

impl Writer {
    pub async fn open(core: &Core, client: &str) -> MetaResult<Self> {
        let command = Command::OpenSession { client: client.into() };
        let open = Request { session: SessionId(0), epoch: SessionEpoch(0), seq: 0, acked: 0, command };
        match core.propose(&open).await? {
            Reply::Session { session: id, epoch } => Ok(Self { id, epoch, seq: 0, ids: None, inodes: None, over: false }),
            other => Err(MetaError::Failed(format!("OpenSession answered {other:?}"))),
        }
    }

    pub async fn run(&mut self, core: &Core, command: Command) -> MetaResult<Reply> {
        self.seq += 1;
        let (session, epoch, seq) = (self.id, self.epoch, self.seq);
        let reply = core.propose(&Request { session, epoch, seq, acked: seq - 1, command }).await;
        self.over |= matches!(reply, Err(MetaError::Evicted));
        reply
    }

    pub async fn stripe(&mut self, core: &Core) -> MetaResult<StripeId> {
        if self.ids.is_none_or(|r| r.count == 0) {
            match self.run(core, Command::GrantStripes { count: IDS }).await? {
                Reply::Stripes(range) => self.ids = Some(range),
                other => return Err(MetaError::Failed(format!("GrantStripes answered {other:?}"))),
            }
        }
        let range = self.ids.as_mut().expect("just granted");
        let id = range.first;
        range.first.counter += 1;
        range.count -= 1;
        Ok(id)
    }

    pub async fn inode(&mut self, core: &Core) -> MetaResult<InodeId> {
        if self.inodes.is_none_or(|r| r.count == 0) {
            match self.run(core, Command::GrantInodes { count: 1 }).await? {
                Reply::Inodes(range) => self.inodes = Some(range),
                other => return Err(MetaError::Failed(format!("GrantInodes answered {other:?}"))),
            }
        }
        let range = self.inodes.as_mut().expect("just granted");
        let id = range.first;
        range.first.0 += 1;
        range.count -= 1;
        Ok(id)
    }
}
