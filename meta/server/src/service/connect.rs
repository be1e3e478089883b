//! Opening sessions.

use super::Service;
use super::core::Core;
use super::detached::Detached;
use super::local::Local;
use super::session::Session;
use holdfast_meta_client::{Meta, MetaService, SessionEvents};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{Command, MetaError, MetaResult, Reply, Request};
use holdfast_objstore_proto::{SessionEpoch, SessionId};
use std::sync::Arc;

impl MetaService for Service {
    fn connect(&self, client: &str, caching: bool, events: Arc<dyn SessionEvents>) -> BoxFuture<'_, MetaResult<Arc<dyn Meta>>> {
        let client = client.to_owned();
        Box::pin(async move {
            let core = self.core.clone();
            // Seen through: one who loses interest must not leave a session behind, and dropping what this makes ends it.
            let open = async move {
                let session = core.connect(&client, caching, events).await?;
                Ok(Arc::new(Local { core, session }) as Arc<dyn Meta>)
            };
            Detached::begin(self.core.runtime.clone(), Box::pin(open)).await
        })
    }
}

impl Core {
    async fn connect(self: &Arc<Self>, client: &str, caching: bool, events: Arc<dyn SessionEvents>) -> MetaResult<Arc<Session>> {
        if self.sessions.lock().len() >= self.config.sessions_max {
            return Err(MetaError::Retry(format!("there are {} sessions already", self.config.sessions_max)));
        }
        // The one request that belongs to no session.
        let request = Request {
            session: SessionId(0),
            epoch: SessionEpoch(0),
            seq: 0,
            acked: 0,
            command: Command::OpenSession { client: client.to_owned() },
        };
        match self.propose(&request).await? {
            Reply::Session { session, epoch } => {
                let session = Arc::new(Session::new(session, epoch, client, caching, events));
                self.sessions.lock().insert(session.id, session.clone());
                Ok(session)
            }
            other => Err(MetaError::Failed(format!("OpenSession answered {other:?}"))),
        }
    }
}
