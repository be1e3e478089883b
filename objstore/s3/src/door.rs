//! What all operations share: the session with the metadata service, the object cluster, budgets.

use crate::error::meta as meta_error;
use crate::metrics::Metrics;
use bytes::Bytes;
use holdfast_meta_client::ids::IdPool;
use holdfast_meta_client::{Meta, MetaError, MetaResult, MetaService, Recall, SessionEvents};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_client::Objects;
use holdfast_objstore_proto::Code;
use holdfast_objstore_proto::meta::{Bucket, Command, Owner, Reply};
use parking_lot::Mutex;
use s3s::S3Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone)]
pub struct Config {
    /// The region that bucket locations name.
    pub region: String,
    /// Code of buckets made over S3.
    pub code: Code,
    /// Owner of files that PUTs make.
    pub owner: Owner,
    /// Open connections, at most.
    pub connections_max: usize,
}

/// Who charges the budget for a body's bytes. One request charges for one body at a time: who held one part of the budget while waiting for
/// another could wait for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charging {
    /// Whoever moves the bytes.
    Here,
    /// The caller has done so for all of its bodies together.
    Caller,
}

/// The S3 door of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Door(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    service: Arc<dyn MetaService>,
    session: Mutex<Arc<Session>>,
    pub objects: Arc<dyn Objects>,
    pub budget: Budget,
    pub config: Config,
    pub metrics: Metrics,
}

/// A session with the metadata service and the ids it was granted.
pub(crate) struct Session {
    pub meta: Arc<dyn Meta>,
    pub ids: IdPool,
    over: Arc<AtomicBool>,
}

struct Events(Arc<AtomicBool>);

impl SessionEvents for Events {
    fn recall(&self, _: Recall) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(())) // a gateway is granted nothing
    }
    fn evicted(&self) {
        self.0.store(true, Ordering::Release);
    }
}

async fn connect(service: &dyn MetaService) -> MetaResult<Arc<Session>> {
    let over = Arc::new(AtomicBool::new(false));
    let meta = service.connect("s3", false, Arc::new(Events(over.clone()))).await?;
    Ok(Arc::new(Session { ids: IdPool::new(meta.clone()), meta, over }))
}

impl Door {
    /// `budget` bounds the bytes of all bodies in flight.
    pub async fn open(
        service: Arc<dyn MetaService>,
        objects: Arc<dyn Objects>,
        budget: Budget,
        config: Config,
        metrics: Metrics,
    ) -> MetaResult<Door> {
        let session = Mutex::new(connect(&*service).await?);
        Ok(Door(Arc::new(Inner { service, session, objects, budget, config, metrics })))
    }

    /// Ends the session in order. Call when no request is in flight.
    pub async fn close(&self) {
        let session = self.0.session.lock().clone();
        session.meta.close_session().await;
    }
}

impl Inner {
    /// The session, a new one after an eviction.
    pub async fn session(&self) -> S3Result<Arc<Session>> {
        let now = self.session.lock().clone();
        if !now.over.load(Ordering::Acquire) {
            return Ok(now);
        }
        let fresh = connect(&*self.service).await.map_err(meta_error)?;
        let mut held = self.session.lock();
        if held.over.load(Ordering::Acquire) {
            *held = fresh.clone();
            return Ok(fresh);
        }
        let kept = held.clone();
        drop(held);
        tokio::spawn(async move { fresh.meta.close_session().await });
        Ok(kept)
    }

    pub async fn bucket(&self, session: &Session, name: &str) -> S3Result<Bucket> {
        session.meta.bucket(Bytes::copy_from_slice(name.as_bytes())).await.map_err(meta_error)
    }

    /// Runs a command, counted as a commit.
    pub async fn commit(&self, session: &Session, command: Command) -> MetaResult<Reply> {
        self.metrics.commits.inc();
        let reply = session.meta.submit(command).await;
        if matches!(reply, Err(MetaError::Evicted)) {
            session.over.store(true, Ordering::Release);
        }
        reply
    }
}
