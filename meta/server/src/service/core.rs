//! What all parts of the service share, and the way to the log and the state.

use super::grants::Grants;
use super::opens::Opens;
use super::session::Session;
use super::work::{Known, Work};
use crate::ballast::Ballast;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::state::{self, Layers, State};
use holdfast_meta_core::{SERVICE_EPOCH, SERVICE_SESSION, StateError};
use holdfast_meta_log::{Error as LogError, SharedLog, raft};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_proto::SessionId;
use holdfast_objstore_proto::meta::{Command, MetaError, MetaResult, Reply, Request};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;

pub(crate) struct Core {
    pub log: SharedLog,
    pub state: Arc<State>,
    /// `None` for a service in memory.
    pub ballast: Option<Arc<Ballast>>,
    pub clock: Arc<dyn Clock>,
    pub config: Config,
    pub metrics: Metrics,
    /// Where background work runs: the runtime the service was opened in.
    pub runtime: Handle,
    pub grants: Grants,
    pub opens: Opens,
    pub sessions: Mutex<BTreeMap<SessionId, Arc<Session>>>,
    pub work: Work,
    pub snapshots: Known,
    /// What the start could not make sure of, a sentence each.
    pub notes: Mutex<Vec<String>>,
}

fn log_error(e: LogError) -> MetaError {
    match e {
        LogError::NotLeader { leader } => MetaError::Retry(match leader {
            Some(l) => format!("{l} leads the metadata group"),
            None => "the metadata group has no leader".into(),
        }),
        LogError::Failed(why) => MetaError::Failed(why),
    }
}

pub(crate) fn state_error(e: StateError) -> MetaError {
    MetaError::Failed(e.0)
}

impl Core {
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.boot_ns()
    }

    /// Ok while reads may be answered from applied state.
    pub(crate) fn may_read(&self) -> MetaResult<()> {
        self.log.may_read().map_err(log_error)
    }

    /// Reads one moment of the state.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&Layers) -> Result<MetaResult<T>, StateError>) -> MetaResult<T> {
        self.may_read()?;
        self.state.view(read).map_err(state_error)?
    }

    /// Whether the device has no room left for metadata to grow.
    pub(crate) fn tight(&self) -> bool {
        let spent = self.ballast.as_ref().filter(|b| b.spent());
        if let Some(ballast) = spent {
            let ballast = ballast.clone();
            self.runtime.spawn(async move { ballast.refill().await });
        }
        self.log.tight() || spent.is_some()
    }

    /// Puts a request through the log.
    pub(crate) async fn propose(&self, request: &Request) -> MetaResult<Reply> {
        let bytes = state::encode_request(request).map_err(|e| MetaError::Failed(format!("a command cannot be encoded: {e}")))?;
        if bytes.len() > raft::COMMAND_BYTES_MAX {
            return Err(MetaError::Invalid(format!("a command of {} bytes; the largest is {}", bytes.len(), raft::COMMAND_BYTES_MAX)));
        }
        let answer = self.log.propose(bytes).await.map_err(log_error)?;
        self.metrics.commands.inc();
        match state::decode_reply(&answer).map_err(|e| MetaError::Failed(format!("a reply cannot be decoded: {e}")))? {
            Reply::Error(e) => Err(e),
            reply => Ok(reply),
        }
    }

    /// A command of the service itself; safe to repeat.
    pub(crate) async fn propose_own(&self, command: Command) -> MetaResult<Reply> {
        self.propose(&Request { session: SERVICE_SESSION, epoch: SERVICE_EPOCH, seq: 0, acked: 0, command }).await
    }

    /// Refuses what an ended session asks, and everything once the service has failed.
    pub(crate) fn admits(&self, session: &Session) -> MetaResult<()> {
        if session.is_over() {
            return Err(MetaError::Evicted);
        }
        self.state.check().map_err(state_error)
    }
}
