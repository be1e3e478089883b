//! An inode's bytes as a body: read ahead of the client, bounded by the budget, verified before they leave.
//!
//! What always holds: the inode is held open while its bytes are sent, so that its stripes outlive a deletion; a map that went
//! stale is read again once, by inode and never by name; a file cut short meanwhile ends the body with an error, not with zeroes. A client
//! that takes nothing gives back what it holds of the budget. What it leaves out: headers and conditions.

use crate::door::{Charging, Inner, Session};
use crate::error;
use bytes::Bytes;
use futures::stream::{FuturesOrdered, StreamExt};
use holdfast_meta_client::Meta;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client::{Error as ObjectsError, Objects};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{CHUNK_BYTES, MappedExtent};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, StdError};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Bytes read at a time; one piece of one stripe in most cases.
const STEP: u64 = 1 << 20;
/// Steps being read at once for one body.
const STEPS_AHEAD: usize = 3;
/// A body up to this size is read whole before the reply begins.
const WHOLE_BYTES_MAX: u64 = 256 << 10;

/// How long a client may take nothing of its reply.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a body of `length` bytes charges while it is delivered.
pub fn charge_of(length: u64) -> u64 {
    length.min(STEP * STEPS_AHEAD as u64)
}

/// Holds an inode open on behalf of the gateway's session.
struct Held {
    meta: Arc<dyn Meta>,
    ino: InodeId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.meta.closed(self.ino);
    }
}

/// The bytes `range` of an inode, which must lie within its size.
pub async fn deliver(
    door: &Arc<Inner>,
    session: &Arc<Session>,
    ino: InodeId,
    range: Range<u64>,
    charging: Charging,
) -> S3Result<StreamingBlob> {
    session.meta.opened(ino).await.map_err(error::meta)?;
    let held = Held { meta: session.meta.clone(), ino };
    door.metrics.bytes_out.inc_by(range.end - range.start);
    if range.end - range.start <= WHOLE_BYTES_MAX {
        let charge = match charging {
            Charging::Here if !range.is_empty() => Some(door.budget.charge(range.end - range.start).await),
            _ => None,
        };
        let pieces = read(&*session.meta, &*door.objects, ino, range).await?;
        let body = futures::stream::iter(pieces.into_iter().map(move |piece| {
            let _held_with_the_body = &charge;
            Ok::<_, std::io::Error>(piece)
        }));
        return Ok(StreamingBlob::wrap(body));
    }
    // The stream type must be Sync, which boxed reads are not: a task reads, a short channel hands over.
    let (send, mut receive) = tokio::sync::mpsc::channel::<Result<Bytes, StdError>>(2);
    let (door, session) = (door.clone(), session.clone());
    tokio::spawn(async move {
        let _held = held;
        let _charge = match charging {
            Charging::Here => Some(door.budget.charge(charge_of(range.end - range.start)).await),
            Charging::Caller => None,
        };
        let mut steps = steps(range);
        let mut reading = FuturesOrdered::new();
        loop {
            while reading.len() < STEPS_AHEAD
                && let Some(step) = steps.next()
            {
                reading.push_back(read(&*session.meta, &*door.objects, ino, step));
            }
            let Some(done) = reading.next().await else { return };
            match done {
                Ok(pieces) => {
                    for p in pieces {
                        let sent = match charging {
                            Charging::Here => send.send_timeout(Ok(p), IDLE_TIMEOUT).await.is_ok(),
                            Charging::Caller => send.send(Ok(p)).await.is_ok(),
                        };
                        if !sent {
                            failpoint::reached("s3.client_gone");
                            return; // the client went away, or takes nothing: its body ends short
                        }
                    }
                }
                Err(e) => {
                    failpoint::reached("s3.body_failed");
                    tracing::error!("reading {ino} for S3 failed midway: {e:?}");
                    let _ = send.send_timeout(Err(Box::new(e)), IDLE_TIMEOUT).await;
                    return;
                }
            }
        }
    });
    let body = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
    Ok(StreamingBlob::new(Plain(body)))
}

/// A stream of unknown remaining length; the reply's Content-Length is set by the operation.
struct Plain<S>(S);

impl<S: futures::Stream + Unpin> futures::Stream for Plain<S> {
    type Item = S::Item;
    fn poll_next(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<S::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<S: futures::Stream + Unpin> s3s::stream::ByteStream for Plain<S> {}

/// `range` cut at multiples of [`STEP`], so that no step crosses a chunk's border.
fn steps(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let end = ((at / STEP + 1) * STEP).min(range.end);
        let step = at..end;
        at = end;
        Some(step)
    })
}

/// The bytes `range` of an inode in pieces; holes are zeroes.
pub async fn read(meta: &dyn Meta, objects: &dyn Objects, ino: InodeId, range: Range<u64>) -> S3Result<Vec<Bytes>> {
    let mut again = true;
    loop {
        let chunks = (range.start / CHUNK_BYTES) as u32..range.end.div_ceil(CHUNK_BYTES) as u32;
        let map = meta.extents(ino, chunks).await.map_err(error::meta)?;
        // Asked after the map: a hole in a map that was read before a truncation was always one.
        if !covers(&map, &range) && meta.getattr(ino).await.map_err(error::meta)?.0.size < range.end {
            return Err(S3Error::with_message(S3ErrorCode::ServiceUnavailable, "the object was cut short while it was read"));
        }
        match read_mapped(objects, &map, range.clone()).await {
            Err(ObjectsError::Gone { .. } | ObjectsError::Lost { .. }) if again => again = false,
            other => return other.map_err(error::objects),
        }
    }
}

/// Whether extents hold every byte of `range`.
fn covers(map: &[MappedExtent], range: &Range<u64>) -> bool {
    let mut at = range.start;
    for e in map {
        if e.offset > at {
            break;
        }
        at = at.max(e.offset + e.len as u64);
    }
    at >= range.end
}

async fn read_mapped(objects: &dyn Objects, map: &[MappedExtent], range: Range<u64>) -> Result<Vec<Bytes>, ObjectsError> {
    let mut out = Vec::new();
    let mut at = range.start;
    for e in map {
        let (from, to) = (e.offset.max(at), (e.offset + e.len as u64).min(range.end));
        if from >= to {
            continue;
        }
        zeroes(&mut out, from - at);
        let start = e.stripe_offset + (from - e.offset) as u32;
        let range = start..start + (to - from) as u32;
        match &e.inline {
            Some(data) => out.push(data.slice(range.start as usize..range.end as usize)),
            None => out.extend(objects.read(&e.stripe, range).await?),
        }
        at = to;
    }
    zeroes(&mut out, range.end - at);
    Ok(out)
}

fn zeroes(out: &mut Vec<Bytes>, mut n: u64) {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    while n > 0 {
        let k = n.min(ZEROES.len() as u64);
        out.push(Bytes::from_static(&ZEROES[..k as usize]));
        n -= k;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_range_and_stay_within_chunks() {
        let got: Vec<_> = steps(STEP - 1..2 * STEP + 5).collect();
        assert_eq!(got, [STEP - 1..STEP, STEP..2 * STEP, 2 * STEP..2 * STEP + 5]);
        assert_eq!(steps(7..7).count(), 0);
    }
}
