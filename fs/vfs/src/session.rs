//! The session a mount speaks through, and its replacement after an eviction.
//!
//! What always holds: what belongs to one session (ids, grants, unpublished stripes) never leaks into the next: everything checks the generation.
//! What it leaves out: what an eviction does to inodes and handles (evict).

use crate::error;
use crate::types::{Error, Result};
use crate::vfs::Vfs;
use holdfast_meta_client::ids::IdPool;
use holdfast_meta_client::{Meta, MetaError, Recall, SessionEvents};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{Attr, Command, Reply};
use holdfast_objstore_proto::{SessionEpoch, SessionId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long an operation waits for a new session, and a command the service wants tried again.
const WAIT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);

pub struct Session {
    pub meta: Arc<dyn Meta>,
    pub ids: IdPool,
    pub id: SessionId,
    pub epoch: SessionEpoch,
    /// Counts this mount's sessions.
    pub generation: u64,
    over: AtomicBool,
}

impl Session {
    pub fn new(meta: Arc<dyn Meta>, generation: u64) -> Self {
        let (id, epoch) = meta.session();
        Self { ids: IdPool::new(meta.clone()), meta, id, epoch, generation, over: AtomicBool::new(false) }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// True for the first who ends it.
    pub fn end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }
}

/// Hands the service's calls to the mount. What arrives before the mount stands, or after it fell, concerns nothing that is held.
#[derive(Default)]
pub struct Events {
    vfs: OnceLock<(Weak<Vfs>, u64)>,
}

impl Events {
    pub fn attach(&self, vfs: Weak<Vfs>, generation: u64) {
        let _ = self.vfs.set((vfs, generation));
    }

    fn vfs(&self) -> Option<(Arc<Vfs>, u64)> {
        let (vfs, generation) = self.vfs.get()?;
        Some((vfs.upgrade()?, *generation))
    }
}

impl SessionEvents for Events {
    fn recall(&self, recall: Recall) -> BoxFuture<'static, ()> {
        match self.vfs() {
            Some((vfs, generation)) => vfs.recall(generation, recall),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn evicted(&self) {
        if let Some((vfs, generation)) = self.vfs() {
            vfs.evicted(generation);
        }
    }
}

impl Vfs {
    /// The session in force; waits for it while the mount reconnects.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        let s = self.session.lock().clone();
        if !s.is_over() {
            return Ok(s);
        }
        let wait = async {
            loop {
                let mut changed = std::pin::pin!(self.session_changed.notified());
                changed.as_mut().enable();
                let s = self.session.lock().clone();
                if !s.is_over() {
                    return s;
                }
                changed.await;
            }
        };
        tokio::time::timeout(WAIT, wait).await.map_err(|_| Error::Io)
    }

    /// Whether `s` is still the one in force. Ask under the inode's lock: evictions take it too.
    pub(crate) fn is_current(&self, s: &Session) -> bool {
        !s.is_over()
    }

    /// Translates, and notices an eviction the service has not told of yet.
    pub(crate) fn meta_error(&self, s: &Session, e: MetaError) -> Error {
        if matches!(e, MetaError::Evicted) {
            self.evicted(s.generation);
        }
        error::from_meta(e)
    }

    /// Submits, and again while the service says so. A service that does not answer is waited for: what it was asked may have been done.
    pub(crate) async fn submit_raw(&self, s: &Session, command: Command) -> std::result::Result<Reply, MetaError> {
        for _ in 0..WAIT.as_millis() / RETRY.as_millis() {
            match s.meta.submit(command.clone()).await {
                Err(MetaError::Retry(_)) => tokio::time::sleep(RETRY).await,
                done => return done,
            }
        }
        s.meta.submit(command).await
    }

    pub(crate) async fn submit(&self, s: &Session, command: Command) -> Result<Reply> {
        self.submit_raw(s, command).await.map_err(|e| self.meta_error(s, e))
    }

    pub(crate) async fn submit_attr(&self, s: &Session, command: Command) -> Result<Attr> {
        match self.submit(s, command).await? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(unexpected(other)),
        }
    }
}

pub(crate) fn unexpected(reply: Reply) -> Error {
    tracing::error!(?reply, "metadata answered another command");
    Error::Io
}
