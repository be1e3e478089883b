//! Finds the process that serves a data folder and asks it.

use super::proto::admin_client::AdminClient;
use super::{proto, socket};
use crate::layout;
use anyhow::{Context, anyhow, bail};
use holdfast_objstore_base::real::{RealDisk, mounts};
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use tonic::transport::{Channel, Endpoint};

pub struct Client(AdminClient<Channel>);

/// `holdfast:` and the first data folder: what a mount shows as its source, so that a mount point leads to its process.
pub const SOURCE_PREFIX: &str = "holdfast:";

/// The largest answer: a piece of a backup with one very large record.
const REPLY_BYTES_MAX: usize = 80 << 20;

impl Client {
    /// By any data folder of the cluster.
    pub async fn by_data(dir: &Path) -> anyhow::Result<Client> {
        let file = layout::read(&RealDisk::new(), dir)?
            .with_context(|| format!("{} is not a Holdfast data folder (it has no {})", dir.display(), layout::FILE))?;
        // Where another folder knows more, the metadata has moved since.
        let disk = RealDisk::new();
        let others = file.dirs.iter().filter_map(|d| layout::read(&disk, d).ok().flatten()).filter(|f| f.cluster == file.cluster);
        let newest = others.max_by_key(|f| f.epoch).filter(|f| f.epoch > file.epoch).unwrap_or_else(|| file.clone());
        // The folder itself may be the one, wherever it was moved to.
        let home = if newest.home == file.index { std::path::absolute(dir)? } else { newest.dirs[newest.home].clone() };
        Client::connect(&home).await
    }

    /// By a mount point.
    pub async fn by_mount(mount: &Path) -> anyhow::Result<(Client, String)> {
        let point = std::fs::canonicalize(mount).with_context(|| format!("{} is not there", mount.display()))?;
        let home = mount_source(&point)?.with_context(|| format!("{} is not a Holdfast mount", mount.display()))?;
        let text = point.to_str().with_context(|| format!("{} is not UTF-8", point.display()))?.to_string();
        Ok((Client::connect(&home).await?, text))
    }

    async fn connect(home: &Path) -> anyhow::Result<Client> {
        let dir = home.to_path_buf();
        let connect = tower::service_fn(move |_| {
            let dir = dir.clone();
            async move { socket::connect(&dir).await.map(TokioIo::new) }
        });
        // The address is never dialled: the connector above is.
        let channel = Endpoint::from_static("http://admin.holdfast").connect_with_connector(connect).await;
        match channel {
            Ok(c) => Ok(Client(AdminClient::new(c).max_decoding_message_size(REPLY_BYTES_MAX))),
            Err(_) => bail!("no holdfast process serves {}; start it with: holdfast up {}", home.display(), home.display()),
        }
    }

    pub async fn status(&mut self) -> anyhow::Result<serde_json::Value> {
        let reply = self.0.status(proto::StatusRequest {}).await.map_err(said)?.into_inner();
        Ok(serde_json::from_str(&reply.json)?)
    }
    pub async fn sync(&mut self, mount: String) -> anyhow::Result<()> {
        self.0.sync(proto::SyncRequest { mount }).await.map_err(said)?;
        Ok(())
    }
    pub async fn drop_caches(&mut self) -> anyhow::Result<()> {
        self.0.drop_caches(proto::DropCachesRequest {}).await.map_err(said)?;
        Ok(())
    }
    pub async fn create_bucket(&mut self, name: String, code: String) -> anyhow::Result<()> {
        self.0.create_bucket(proto::CreateBucketRequest { name, code }).await.map_err(said)?;
        Ok(())
    }
    pub async fn delete_bucket(&mut self, name: String) -> anyhow::Result<()> {
        self.0.delete_bucket(proto::DeleteBucketRequest { name }).await.map_err(said)?;
        Ok(())
    }
    /// `action`: as the protocol says. Answers what was done, in a sentence.
    pub async fn osd(&mut self, action: &str, osd: u16, dir: String, format: bool) -> anyhow::Result<String> {
        let request = proto::OsdRequest { action: action.into(), osd: osd as u32, dir, format };
        Ok(self.0.osd(request).await.map_err(said)?.into_inner().said)
    }
    pub async fn scrub(&mut self, deep: bool) -> anyhow::Result<()> {
        self.0.scrub(proto::ScrubRequest { deep }).await.map_err(said)?;
        Ok(())
    }
    /// `action`: as the protocol says.
    pub async fn meta(&mut self, action: &str, id: u64) -> anyhow::Result<(serde_json::Value, Vec<u8>)> {
        let reply = self.0.meta(proto::MetaRequest { action: action.into(), id }).await.map_err(said)?.into_inner();
        Ok((serde_json::from_str(&reply.json)?, reply.data))
    }
    pub async fn metrics(&mut self) -> anyhow::Result<String> {
        Ok(self.0.metrics(proto::MetricsRequest {}).await.map_err(said)?.into_inner().text)
    }
}

fn said(status: tonic::Status) -> anyhow::Error {
    anyhow!("{}", status.message())
}

/// The first data folder behind a mount point, from the kernel's mount table.
fn mount_source(point: &Path) -> anyhow::Result<Option<PathBuf>> {
    let table = mounts().context("cannot read the mount table")?;
    // The last mount on a point is the one that shows.
    let source = table.iter().rfind(|m| m.at == point).and_then(|m| m.source.to_str()?.strip_prefix(SOURCE_PREFIX));
    Ok(source.map(PathBuf::from))
}
