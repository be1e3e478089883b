//! Stripes of a body that nothing refers to yet.
//!
//! What always holds: those that were written are deleted when this is dropped, whatever ended the request: a checksum that is wrong, a refused
//! commit, a client that went away. From the moment a command that names them is on its way only its refusal deletes them.
//! What it leaves out: a write that was itself dropped half way leaves shards without a record; reconciliation finds those.

use crate::door::{Inner, Session};
use crate::error;
use holdfast_meta_client::MetaResult;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::{Command, Reply};
use parking_lot::Mutex;
use s3s::S3Result;
use std::sync::Arc;

/// See the module. Shared with the tasks that write them: the last one to drop it deletes.
pub struct Stripes {
    door: Arc<Inner>,
    written: Mutex<Vec<Arc<StripeMeta>>>,
}

impl Stripes {
    pub fn new(door: Arc<Inner>) -> Self {
        Self { door, written: Mutex::default() }
    }

    /// Takes a stripe that was written.
    pub fn landed(&self, stripe: Arc<StripeMeta>) {
        self.written.lock().push(stripe);
    }

    /// Makes all of them stable.
    pub async fn flush(&self) -> S3Result<()> {
        let written = self.written.lock().clone();
        if !written.is_empty() {
            let stable = self.door.objects.flush(written).await.map_err(error::objects)?;
            *self.written.lock() = stable;
        }
        Ok(())
    }

    /// Commits the command made for them.
    pub async fn commit(&self, session: &Session, command: impl FnOnce(Vec<Arc<StripeMeta>>) -> Command) -> MetaResult<Reply> {
        // Out of the guard's reach: dropped here, the command may still be carried out.
        let stripes = std::mem::take(&mut *self.written.lock());
        let reply = self.door.commit(session, command(stripes.clone())).await;
        if reply.as_ref().is_err_and(error::is_definite) {
            *self.written.lock() = stripes;
        }
        reply
    }
}

impl Drop for Stripes {
    fn drop(&mut self) {
        let stripes = std::mem::take(self.written.get_mut());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if stripes.is_empty() {
            return;
        }
        failpoint::reached("s3.upload_given_up");
        let objects = self.door.objects.clone();
        runtime.spawn(async move {
            if let Err(e) = objects.delete(stripes).await {
                tracing::warn!("stripes of a failed upload stay until reconciliation: {e}");
            }
        });
    }
}
