//! One pass over a body: checksums, MD5 and stripes, bounded by the budget.
//!
//! What always holds: no more than [`WRITES_MAX`] stripes of a body are in memory besides the one being filled; what
//! `ingest` returns is durable on its write quorum. A body waits for the budget only while it holds nothing of it but stripes on their
//! way to the devices, and while others wait, a client that sends slowly gives back what it holds: its stripe is cut short and written.
//! A small body is written nowhere: it travels in the commit.
//! What it leaves out: the commit that makes it reachable.

use crate::door::{Charging, Inner, Session};
use crate::error;
use crate::stripes::Stripes;
use crate::sums::Sums;
use base64::Engine;
use bytes::Bytes;
use futures::StreamExt;
use holdfast_objstore_base::budget::Charge;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_client::StripeWrite;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Bucket, CHUNK_BYTES, Extent, Inline};
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::stripe::INLINE_BYTES_MAX;
use hyper::HeaderMap;
use s3s::crypto::{Checksum, Md5};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Stripes of one body being written at once: enough to keep the devices busy while the next one fills.
const WRITES_MAX: usize = 2;
/// S3's limit for one PUT or part.
const BODY_BYTES_MAX: u64 = 5 << 30;
const STRIPE: usize = CHUNK_BYTES as usize;
/// How long a stripe may be filled while others wait for the budget.
const FILL_TIME: Duration = Duration::from_secs(5);
/// Room for the next stripe of a body that comes slowly, at least.
const SLOW_BYTES: usize = 256 << 10;
/// Stripes of one body beyond which none is cut short: one commit names them all.
const SHORT_STRIPES_MAX: usize = 16_384;

/// What copies charge for a body of `length` bytes that they have ingested with [`Charging::Caller`].
pub fn charge_of(length: u64) -> u64 {
    // One being filled, one being written.
    length.min(2 * STRIPE as u64)
}

/// A body that is on the devices.
pub struct Ingested {
    pub size: u64,
    pub md5: [u8; 16],
    pub checksums: Vec<(String, String)>,
    pub extents: Vec<Extent>,
    pub stripes: Arc<Stripes>,
    /// The whole body, when it is small.
    pub inline: Vec<Inline>,
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

#[cfg(feature = "fuzzing")]
impl Declared<'_> {
    pub(crate) fn fuzz(&self) {
        let _ = (self.length(), self.md5());
    }
}

/// The stripe being filled.
struct Filling {
    /// Its length is what the stripe may become.
    buf: AlignedBuf,
    fill: usize,
    charge: Option<Charge>,
    since: Instant,
}

struct Writer<'a> {
    door: &'a Arc<Inner>,
    session: &'a Arc<Session>,
    bucket: &'a Bucket,
    ino: InodeId,
    charging: Charging,
    size: u64,
    filling: Option<Filling>,
    /// Room for the next stripe, at most: less than a whole one while the body comes slowly and the budget is short.
    pace: usize,
    expected: Option<u64>,
    writing: VecDeque<JoinHandle<S3Result<()>>>,
    extents: Vec<Extent>,
    stripes: Arc<Stripes>,
    inline: Vec<Inline>,
}

impl Writer<'_> {
    async fn push(&mut self, mut data: &[u8]) -> S3Result<()> {
        while !data.is_empty() {
            if self.filling.is_none() {
                self.filling = Some(self.begin(data.len()).await);
            }
            let Some(f) = self.filling.as_mut() else { continue };
            let n = data.len().min(f.buf.len() - f.fill);
            f.buf[f.fill..f.fill + n].copy_from_slice(&data[..n]);
            f.fill += n;
            self.size += n as u64;
            data = &data[n..];
            if f.fill == f.buf.len() && !(self.expected == Some(self.size) && self.is_small()) {
                self.pace = (self.pace * 2).min(STRIPE);
                self.cut().await?;
            }
        }
        self.make_way().await
    }

    /// Charged in one go: growing a charge step by step would be waiting for a part of the budget while holding another.
    async fn begin(&self, at_hand: usize) -> Filling {
        let left = self.expected.map_or(STRIPE as u64, |e| e.saturating_sub(self.size));
        let to_border = STRIPE - (self.size % CHUNK_BYTES) as usize;
        let room = (left.max(at_hand as u64).min(STRIPE as u64) as usize).min(to_border).min(self.pace).max(1);
        let charge = match self.charging {
            Charging::Here => Some(self.door.budget.charge(room as u64).await),
            Charging::Caller => None,
        };
        Filling { buf: AlignedBuf::zeroed(room), fill: 0, charge, since: Instant::now() }
    }

    /// Whether memory of the budget waits for the client.
    fn holds(&self) -> bool {
        self.filling.as_ref().is_some_and(|f| f.charge.is_some())
    }

    /// Cuts the stripe short when it has been filled for long and the budget is used up.
    async fn make_way(&mut self) -> S3Result<()> {
        let slow = self.filling.as_ref().is_some_and(|f| f.charge.is_some() && f.since.elapsed() >= FILL_TIME);
        // Nothing can be taken at once, however little, while anybody waits.
        if !slow || self.extents.len() >= SHORT_STRIPES_MAX || self.door.budget.try_charge(SLOW_BYTES as u64).is_some() {
            return Ok(());
        }
        let fill = self.filling.as_ref().map_or(0, |f| f.fill);
        self.pace = (2 * fill).next_multiple_of(BLOCK).clamp(SLOW_BYTES, STRIPE);
        self.cut().await
    }

    /// Sends the stripe being filled on its way.
    async fn cut(&mut self) -> S3Result<()> {
        let Some(Filling { mut buf, fill, charge, .. }) = self.filling.take() else { return Ok(()) };
        buf.set_len(fill);
        let writes_max = if self.charging == Charging::Here { WRITES_MAX } else { 1 };
        while self.writing.len() >= writes_max {
            self.reap().await?;
        }
        let id = self.session.ids.stripe().await.map_err(error::meta)?;
        let (session, epoch) = self.session.meta.session();
        let offset = self.size - fill as u64;
        self.extents.push(Extent { offset, len: fill as u32, stripe: id, stripe_offset: 0 });
        let write = StripeWrite {
            id,
            code: self.bucket.code,
            data: vec![buf.freeze()],
            session,
            epoch,
            hint: Hint { bucket: self.bucket.id.0, inode: self.ino, chunk: (offset / CHUNK_BYTES) as u32 },
            background: false,
        };
        let objects = self.door.objects.clone();
        self.door.metrics.stripes.inc();
        if self.expected == Some(self.size) && self.writing.is_empty() {
            // The whole body in one stripe: nothing to overlap with, so no task.
            self.stripes.landed(objects.write(write).await.map_err(error::objects)?);
            drop(charge);
            return Ok(());
        }
        let stripes = self.stripes.clone();
        self.writing.push_back(tokio::spawn(async move {
            let written = objects.write(write).await.map_err(error::objects);
            drop(charge);
            stripes.landed(written?);
            Ok(())
        }));
        Ok(())
    }

    async fn reap(&mut self) -> S3Result<()> {
        if let Some(task) = self.writing.pop_front() {
            task.await.map_err(|e| S3Error::with_source(S3ErrorCode::InternalError, Box::new(e)))??;
        }
        Ok(())
    }

    /// Whether all there is of the body is little enough to travel in the commit.
    fn is_small(&self) -> bool {
        self.extents.is_empty() && self.size > 0 && self.size <= INLINE_BYTES_MAX as u64
    }

    async fn finish(&mut self) -> S3Result<()> {
        if self.is_small()
            && self.session.meta.inline_room(self.size as usize)
            && let Some(f) = self.filling.take()
        {
            let stripe = self.session.ids.stripe().await.map_err(error::meta)?;
            self.extents.push(Extent { offset: 0, len: f.fill as u32, stripe, stripe_offset: 0 });
            // A copy, since the buffer may be far larger.
            self.inline.push(Inline { stripe, data: Bytes::copy_from_slice(&f.buf[..f.fill]) });
            return Ok(());
        }
        self.cut().await?;
        while !self.writing.is_empty() {
            self.reap().await?;
        }
        Ok(())
    }
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
    charging: Charging,
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
        charging,
        size: 0,
        filling: None,
        pace: STRIPE,
        expected,
        writing: VecDeque::new(),
        extents: Vec::new(),
        stripes: Arc::new(Stripes::new(door.clone())),
        inline: Vec::new(),
    };
    let mut md5 = Md5::new();
    stream(&mut w, body, &mut md5, &mut sums).await?;
    let (md5, checksums) = check(&w, expected, said_md5, md5, sums, declared.trailers)?;
    w.stripes.flush().await?;
    door.metrics.bytes_in.inc_by(w.size);
    Ok(Ingested { size: w.size, md5, checksums, extents: w.extents, stripes: w.stripes, inline: w.inline })
}

async fn stream(w: &mut Writer<'_>, body: Option<StreamingBlob>, md5: &mut Md5, sums: &mut Sums) -> S3Result<()> {
    if let Some(mut body) = body {
        loop {
            let next = if w.holds() {
                match timeout(FILL_TIME, body.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        w.make_way().await?;
                        continue;
                    }
                }
            } else {
                body.next().await
            };
            let Some(next) = next else { break };
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
    } else if text.contains(crate::guard::IDLE) {
        S3ErrorCode::RequestTimeout
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

fn check(
    w: &Writer<'_>,
    expected: Option<u64>,
    said_md5: Option<[u8; 16]>,
    md5: Md5,
    sums: Sums,
    trailers: Option<&TrailingHeaders>,
) -> S3Result<Checked> {
    if expected.is_some_and(|n| n != w.size) {
        return Err(S3ErrorCode::IncompleteBody.into());
    }
    let md5: [u8; 16] = md5.finalize();
    if said_md5.is_some_and(|said| said != md5) {
        return Err(S3ErrorCode::BadDigest.into());
    }
    Ok((md5, sums.finish(trailers)?))
}
