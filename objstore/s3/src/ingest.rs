//! One pass over a body: checksums, MD5 and stripes, bounded by the budget.
//!
//! What always holds: no more than [`WRITES_MAX`] stripes of a body are in memory besides the one being filled; what
//! `ingest` returns is durable on its write quorum. What it leaves out: the commit that makes it reachable.

use crate::door::{Inner, Session};
use crate::error;
use crate::sums::Sums;
use base64::Engine;
use bytes::Bytes;
use futures::StreamExt;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::budget::Charge;
use holdfast_objstore_client::StripeWrite;
use holdfast_objstore_proto::meta::{Bucket, CHUNK_BYTES, Extent};
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::{InodeId, StripeMeta};
use hyper::HeaderMap;
use s3s::crypto::{Checksum, Md5};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Stripes of one body being written at once: enough to keep the devices busy while the next one fills.
const WRITES_MAX: usize = 2;
/// S3's limit for one PUT or part.
const BODY_BYTES_MAX: u64 = 5 << 30;
const STRIPE: usize = CHUNK_BYTES as usize;

/// A body that is on the devices.
pub struct Ingested {
    pub size: u64,
    pub md5: [u8; 16],
    pub checksums: Vec<(String, String)>,
    pub extents: Vec<Extent>,
    pub stripes: Vec<Arc<StripeMeta>>,
}

impl Ingested {
    pub fn etag(&self) -> String {
        hex(&self.md5)
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What the request says of its body.
pub struct Declared<'a> {
    pub headers: &'a HeaderMap,
    pub trailers: Option<&'a TrailingHeaders>,
    pub length: Option<u64>,
}

impl Declared<'_> {
    /// The length of the object itself: of a chunked transfer the decoded one.
    fn length(&self) -> S3Result<Option<u64>> {
        let Some(v) = self.headers.get("x-amz-decoded-content-length") else { return Ok(self.length) };
        let n = v.to_str().ok().and_then(|t| t.parse().ok());
        n.map(Some).ok_or_else(|| S3Error::with_message(S3ErrorCode::InvalidArgument, "x-amz-decoded-content-length is not a number"))
    }

    fn md5(&self) -> S3Result<Option<[u8; 16]>> {
        let Some(v) = self.headers.get("content-md5") else { return Ok(None) };
        let raw = base64::engine::general_purpose::STANDARD.decode(v.as_bytes()).ok().and_then(|b| <[u8; 16]>::try_from(b).ok());
        raw.map(Some).ok_or_else(|| S3ErrorCode::InvalidDigest.into())
    }
}

struct Writer<'a> {
    door: &'a Arc<Inner>,
    session: &'a Arc<Session>,
    bucket: &'a Bucket,
    ino: InodeId,
    size: u64,
    /// The stripe being filled; its length is what is in it.
    filling: Option<(AlignedBuf, Charge)>,
    fill: usize,
    expected: Option<u64>,
    writing: VecDeque<JoinHandle<S3Result<Arc<StripeMeta>>>>,
    extents: Vec<Extent>,
    stripes: Vec<Arc<StripeMeta>>,
}

impl Writer<'_> {
    async fn push(&mut self, mut data: &[u8]) -> S3Result<()> {
        while !data.is_empty() {
            if self.filling.is_none() {
                let left = self.expected.map_or(STRIPE as u64, |e| e.saturating_sub(self.size));
                let room = (left.max(data.len() as u64) as usize).clamp(1, STRIPE);
                let charge = self.door.budget.charge(room as u64).await;
                self.filling = Some((AlignedBuf::zeroed(room), charge));
                self.fill = 0;
            }
            let Some((buf, _)) = self.filling.as_mut() else { continue };
            let n = data.len().min(buf.len() - self.fill);
            buf[self.fill..self.fill + n].copy_from_slice(&data[..n]);
            self.fill += n;
            self.size += n as u64;
            data = &data[n..];
            if self.fill == buf.len() {
                self.cut().await?;
            }
        }
        Ok(())
    }

    /// Sends the stripe being filled on its way.
    async fn cut(&mut self) -> S3Result<()> {
        let Some((mut buf, charge)) = self.filling.take() else { return Ok(()) };
        buf.set_len(self.fill);
        while self.writing.len() >= WRITES_MAX {
            self.reap().await?;
        }
        let id = self.session.ids.stripe().await.map_err(error::meta)?;
        let (session, epoch) = self.session.meta.session();
        let offset = self.size - self.fill as u64;
        self.extents.push(Extent { offset, len: self.fill as u32, stripe: id, stripe_offset: 0 });
        let write = StripeWrite {
            id,
            code: self.bucket.code,
            data: vec![buf.freeze()],
            session,
            epoch,
            hint: Hint { bucket: self.bucket.id.0, inode: self.ino, chunk: (offset / CHUNK_BYTES) as u32 },
        };
        let objects = self.door.objects.clone();
        self.door.metrics.stripes.inc();
        if self.expected == Some(self.size) && self.writing.is_empty() {
            // The whole body in one stripe: nothing to overlap with, so no task.
            self.stripes.push(objects.write(write).await.map_err(error::objects)?);
            drop(charge);
            return Ok(());
        }
        self.writing.push_back(tokio::spawn(async move {
            let written = objects.write(write).await.map_err(error::objects);
            drop(charge);
            written
        }));
        Ok(())
    }

    async fn reap(&mut self) -> S3Result<()> {
        if let Some(task) = self.writing.pop_front() {
            self.stripes.push(task.await.map_err(|e| S3Error::with_source(S3ErrorCode::InternalError, Box::new(e)))??);
        }
        Ok(())
    }

    async fn finish(&mut self) -> S3Result<()> {
        self.cut().await?;
        while !self.writing.is_empty() {
            self.reap().await?;
        }
        Ok(())
    }

    /// The body came to nothing: its stripes are garbage.
    async fn abandon(mut self) {
        for task in std::mem::take(&mut self.writing) {
            if let Ok(Ok(stripe)) = task.await {
                self.stripes.push(stripe);
            }
        }
        discard(self.door, std::mem::take(&mut self.stripes));
    }
}

/// Deletes stripes that nothing will ever refer to, in the background; what that misses, reconciliation finds.
pub fn discard(door: &Arc<Inner>, stripes: Vec<Arc<StripeMeta>>) {
    if stripes.is_empty() {
        return;
    }
    let objects = door.objects.clone();
    tokio::spawn(async move {
        if let Err(e) = objects.delete(stripes).await {
            tracing::warn!("stripes of a failed upload stay until reconciliation: {e}");
        }
    });
}

/// Streams `body` into stripes of `bucket`, verifies every checksum the client sent, and makes it durable.
pub async fn ingest(
    door: &Arc<Inner>,
    session: &Arc<Session>,
    bucket: &Bucket,
    ino: InodeId,
    body: Option<StreamingBlob>,
    declared: Declared<'_>,
    mut sums: Sums,
) -> S3Result<Ingested> {
    let expected = declared.length()?;
    if expected.is_some_and(|n| n > BODY_BYTES_MAX) {
        return Err(S3ErrorCode::EntityTooLarge.into());
    }
    let said_md5 = declared.md5()?;
    let mut w = Writer {
        door,
        session,
        bucket,
        ino,
        size: 0,
        filling: None,
        fill: 0,
        expected,
        writing: VecDeque::new(),
        extents: Vec::new(),
        stripes: Vec::new(),
    };
    let mut md5 = Md5::new();
    let streamed = stream(&mut w, body, &mut md5, &mut sums).await;
    let checked = match streamed {
        Ok(()) => check(&w, expected, said_md5, md5, sums, declared.trailers),
        Err(e) => Err(e),
    };
    let (md5, checksums) = match checked {
        Ok(c) => c,
        Err(e) => {
            w.abandon().await;
            return Err(e);
        }
    };
    let written = std::mem::take(&mut w.stripes);
    let stripes = if written.is_empty() { written } else { door.objects.flush(written).await.map_err(error::objects)? };
    door.metrics.bytes_in.inc_by(w.size);
    Ok(Ingested { size: w.size, md5, checksums, extents: w.extents, stripes })
}

async fn stream(w: &mut Writer<'_>, body: Option<StreamingBlob>, md5: &mut Md5, sums: &mut Sums) -> S3Result<()> {
    if let Some(mut body) = body {
        while let Some(next) = body.next().await {
            let data: Bytes = next.map_err(body_error)?;
            if w.size + data.len() as u64 > w.expected.unwrap_or(BODY_BYTES_MAX) {
                return Err(S3ErrorCode::EntityTooLarge.into());
            }
            md5.update(&data);
            sums.update(&data);
            w.push(&data).await?;
        }
    }
    w.finish().await
}

/// A body ends early, or a chunk's signature or the body's hash is wrong: the parser says which.
fn body_error(e: s3s::StdError) -> S3Error {
    let text = e.to_string();
    let code = if text.contains("mismatch") || text.contains("ignature") || text.contains("hash") {
        S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into())
    } else if text.contains(crate::guard::TOO_LARGE) {
        S3ErrorCode::EntityTooLarge
    } else {
        S3ErrorCode::IncompleteBody
    };
    let custom = matches!(code, S3ErrorCode::Custom(_));
    let mut e = S3Error::with_message(code, text);
    if custom {
        e.set_status_code(hyper::StatusCode::BAD_REQUEST);
    }
    e
}

type Checked = ([u8; 16], Vec<(String, String)>);

fn check(w: &Writer<'_>, expected: Option<u64>, said_md5: Option<[u8; 16]>, md5: Md5, sums: Sums, trailers: Option<&TrailingHeaders>) -> S3Result<Checked> {
    if expected.is_some_and(|n| n != w.size) {
        return Err(S3ErrorCode::IncompleteBody.into());
    }
    let md5: [u8; 16] = md5.finalize();
    if said_md5.is_some_and(|said| said != md5) {
        return Err(S3ErrorCode::BadDigest.into());
    }
    Ok((md5, sums.finish(trailers)?))
}
