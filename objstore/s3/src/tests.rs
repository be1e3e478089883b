//! Bodies in and out over metadata and an object cluster in memory.

use crate::door::{Charging, Config, Door, Inner, Session};
use crate::ingest::{Declared, Ingested, ingest};
use crate::sums::Sums;
use bytes::Bytes;
use futures::StreamExt;
use holdfast_meta_client::local::Local;
use holdfast_meta_client::{Meta, MetaService, NoEvents};
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_client::Fake;
use holdfast_objstore_client::fake::Point;
use holdfast_objstore_proto::meta::{Bucket, Command, ObjectInfo, Owner, PutObject, Reply, Shape};
use holdfast_objstore_proto::{Code, InodeId};
use hyper::HeaderMap;
use s3s::dto::{CopySource, StreamingBlob, UploadPartCopyInput};
use s3s::{S3ErrorCode, S3Request, S3Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

mod bodies;
mod replies;

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(300);

struct Rig {
    local: Local,
    fake: Arc<Fake>,
    door: Arc<Inner>,
    session: Arc<Session>,
    bucket: Bucket,
}

impl Rig {
    async fn new(budget: u64) -> Rig {
        let (local, fake) = (Local::new(), Fake::new());
        let config = Config { region: "here".into(), code: Code::new(4, 2), owner: Owner { uid: 1, gid: 1 }, connections_max: 10 };
        let door = Door::open(Arc::new(local.clone()), fake.clone(), Budget::new(budget), config, Default::default()).await.unwrap().0;
        let session = door.session().await.unwrap();
        let command =
            Command::CreateBucket { name: "box".into(), shape: Shape::Flat, code: Code::new(4, 2), owner: door.config.owner, mode: 0o755 };
        door.commit(&session, command).await.unwrap();
        let bucket = door.bucket(&session, "box").await.unwrap();
        Rig { local, fake, door, session, bucket }
    }

    async fn ingest(&self, ino: InodeId, body: StreamingBlob, length: Option<u64>) -> S3Result<Ingested> {
        self.ingest_with(ino, body, length, &HeaderMap::new()).await
    }

    async fn ingest_with(&self, ino: InodeId, body: StreamingBlob, length: Option<u64>, headers: &HeaderMap) -> S3Result<Ingested> {
        let declared = Declared { headers, trailers: None, length };
        let sums = Sums::from_headers(headers, None)?;
        ingest(&self.door, &self.session, &self.bucket, ino, Some(body), declared, sums, Charging::Here).await
    }

    async fn put(&self, key: &str, content: Vec<Bytes>) -> InodeId {
        let ino = self.session.ids.inode().await.unwrap();
        let length = content.iter().map(|b| b.len() as u64).sum();
        let body = self.ingest(ino, whole(content), Some(length)).await.unwrap();
        self.commit(key, ino, body).await;
        ino
    }

    async fn commit(&self, key: &str, ino: InodeId, body: Ingested) {
        let (size, extents, inline) = (body.size, body.extents, body.inline);
        let command = |stripes| match put_command(&self.bucket, key, ino, size, extents, stripes) {
            Command::PutObject(put) => Command::PutObject(PutObject { inline, ..put }),
            other => other,
        };
        let reply = body.stripes.commit(&self.session, command).await.unwrap();
        assert!(matches!(reply, Reply::Put { .. }));
    }

    /// The bytes of an inode, as a GET reads them.
    async fn content(&self, ino: InodeId, length: u64) -> S3Result<Vec<u8>> {
        let body = crate::deliver::deliver(&self.door, &self.session, ino, 0..length, Charging::Here).await?;
        collect(body).await.map_err(|_| S3ErrorCode::IncompleteBody.into())
    }

    /// Another session, as a mount's.
    async fn other(&self) -> Arc<dyn Meta> {
        self.local.connect("other", false, Arc::new(NoEvents)).await.unwrap()
    }

    /// Waits until the cluster holds as many stripes.
    async fn until_stripes(&self, n: usize) {
        let reached = async {
            while self.fake.stripes().len() != n {
                tokio::task::yield_now().await;
                tokio::time::advance(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, reached).await.expect("the stripes come and go");
    }
}

fn put_command(
    bucket: &Bucket,
    key: &str,
    ino: InodeId,
    size: u64,
    extents: Vec<holdfast_objstore_proto::meta::Extent>,
    stripes: Vec<Arc<holdfast_objstore_proto::StripeMeta>>,
) -> Command {
    Command::PutObject(PutObject {
        bucket: bucket.id,
        key: Bytes::copy_from_slice(key.as_bytes()),
        ino,
        size,
        extents,
        stripes,
        inline: Vec::new(),
        info: ObjectInfo::default(),
        owner: Owner { uid: 1, gid: 1 },
        condition: Default::default(),
        copy_from: None,
    })
}

/// Pieces of 256 KiB that all differ.
fn pieces(bytes: u64) -> Vec<Bytes> {
    (0..bytes.div_ceil(256 << 10)).map(|i| Bytes::from(vec![i as u8 + 1; (bytes - i * (256 << 10)).min(256 << 10) as usize])).collect()
}

fn whole(content: Vec<Bytes>) -> StreamingBlob {
    StreamingBlob::wrap(futures::stream::iter(content.into_iter().map(Ok::<_, std::io::Error>)))
}

/// A body that comes as the test sends it.
fn sent() -> (mpsc::UnboundedSender<Bytes>, StreamingBlob) {
    let (send, mut receive) = mpsc::unbounded_channel();
    let body = futures::stream::poll_fn(move |cx| receive.poll_recv(cx).map(|o| o.map(Ok::<_, std::io::Error>)));
    (send, StreamingBlob::wrap(body))
}

async fn collect(mut body: StreamingBlob) -> Result<Vec<u8>, s3s::StdError> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}

fn request<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: hyper::Method::PUT,
        uri: Default::default(),
        headers: HeaderMap::new(),
        extensions: Default::default(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}
