//! Answers the control channel. It runs on the control thread, so that a hung disk cannot silence it.

use super::proto::admin_server::{Admin, AdminServer};
use super::proto::*;
use holdfast_objstore_base::BoxFuture;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// What a running cluster offers the control channel.
pub trait Control: Send + Sync + 'static {
    fn status(&self) -> serde_json::Value;
    /// Drains the mount at `mount` (empty: all).
    fn sync(&self, mount: String) -> BoxFuture<'static, Result<(), String>>;
    fn drop_caches(&self) -> BoxFuture<'static, Result<(), String>>;
    /// Makes a tree bucket; `code` empty: the cluster's own.
    fn create_bucket(&self, name: String, code: String) -> BoxFuture<'static, Result<(), String>>;
    fn delete_bucket(&self, name: String) -> BoxFuture<'static, Result<(), String>>;
    /// Changes the set of OSDs; answers a sentence.
    fn osd(&self, request: OsdRequest) -> BoxFuture<'static, Result<String, String>>;
    fn scrub(&self, deep: bool);
    /// Backups and checks of the metadata: a JSON document and bytes.
    fn meta(&self, action: String, id: u64) -> BoxFuture<'static, Result<(serde_json::Value, Vec<u8>), String>>;
    fn metrics(&self) -> String;
}

struct Service(Arc<dyn Control>);

#[tonic::async_trait]
impl Admin for Service {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Ok(Response::new(StatusReply { json: self.0.status().to_string() }))
    }
    async fn sync(&self, request: Request<SyncRequest>) -> Result<Response<SyncReply>, Status> {
        self.0.sync(request.into_inner().mount).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(SyncReply {}))
    }
    async fn drop_caches(&self, _: Request<DropCachesRequest>) -> Result<Response<DropCachesReply>, Status> {
        self.0.drop_caches().await.map_err(Status::failed_precondition)?;
        Ok(Response::new(DropCachesReply {}))
    }
    async fn create_bucket(&self, request: Request<CreateBucketRequest>) -> Result<Response<CreateBucketReply>, Status> {
        let r = request.into_inner();
        self.0.create_bucket(r.name, r.code).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(CreateBucketReply {}))
    }
    async fn delete_bucket(&self, request: Request<DeleteBucketRequest>) -> Result<Response<DeleteBucketReply>, Status> {
        self.0.delete_bucket(request.into_inner().name).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(DeleteBucketReply {}))
    }
    async fn osd(&self, request: Request<OsdRequest>) -> Result<Response<OsdReply>, Status> {
        let said = self.0.osd(request.into_inner()).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(OsdReply { said }))
    }
    async fn scrub(&self, request: Request<ScrubRequest>) -> Result<Response<ScrubReply>, Status> {
        self.0.scrub(request.into_inner().deep);
        Ok(Response::new(ScrubReply {}))
    }
    async fn meta(&self, request: Request<MetaRequest>) -> Result<Response<MetaReply>, Status> {
        let r = request.into_inner();
        let (said, data) = self.0.meta(r.action, r.id).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(MetaReply { json: said.to_string(), data }))
    }
    async fn metrics(&self, _: Request<MetricsRequest>) -> Result<Response<MetricsReply>, Status> {
        Ok(Response::new(MetricsReply { text: self.0.metrics() }))
    }
}

/// Serves until `stop` completes.
pub async fn serve(listener: tokio::net::UnixListener, control: Arc<dyn Control>, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(16)
        .add_service(AdminServer::new(Service(control)))
        .serve_with_incoming_shutdown(incoming, stop)
        .await?;
    Ok(())
}
