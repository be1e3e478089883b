//! Watches a request's body on its way to the parser: that it does not stand still, and that no aws-chunked chunk is too large.
//!
//! A chunk is `hex-size[;extensions]\r\n` data `\r\n`. The parser behind us keeps a whole chunk in memory and would believe
//! any size; clients send 64 KiB to 1 MiB. This watches the framing as bytes pass and ends the body at a chunk beyond [`chunk_bytes_max`].
//! What it leaves out: bodies that come slowly but steadily.

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Far above what clients use (the largest seen is 8 MiB), far below what would hurt.
const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// What clients use without being told to; taken however small the budget is.
const CHUNK_BYTES_USUAL: u64 = 1 << 20;
/// The longest pause between two pieces of a body.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// In the error of a body that stands still.
pub const IDLE: &str = "the body stood still for too long";
pub const TOO_LARGE: &str = "a chunk of the body is larger than this server takes";
const HEADER_BYTES_MAX: usize = 1024;

/// The largest chunk taken where bodies share `budget` bytes.
pub fn chunk_bytes_max(budget: u64) -> u64 {
    (budget / 8).clamp(CHUNK_BYTES_USUAL, CHUNK_BYTES_MAX)
}

enum State {
    /// Reading a size: digits so far, and whether they ended.
    Size { value: u64, ended: bool, bytes: usize },
    /// Inside a chunk's data and its final CRLF.
    Data(u64),
    /// After the last chunk: trailers, bounded by the parser.
    Trailers,
}

/// A request body that stands still for a bounded time, and whose chunk sizes are bounded if it has any.
pub struct Guarded<B> {
    inner: B,
    state: Option<State>,
    chunk_bytes_max: u64,
    /// Runs while the body is waited for.
    idle: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<B> Guarded<B> {
    pub fn new(inner: B, is_aws_chunked: bool, chunk_bytes_max: u64) -> Self {
        let state = is_aws_chunked.then_some(State::Size { value: 0, ended: false, bytes: 0 });
        Self { inner, state, chunk_bytes_max, idle: None, waiting: false }
    }

    /// Nothing has come. Ready when that has lasted for too long.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = || Instant::now() + IDLE_TIMEOUT;
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep_until(deadline())));
        if !std::mem::replace(&mut self.waiting, true) {
            idle.as_mut().reset(deadline());
        }
        idle.as_mut().poll(cx)
    }
}

/// Follows the framing through `data`. Err when a chunk is too large; what is malformed is left to the parser.
fn follow(state: &mut State, data: &[u8], chunk_bytes_max: u64) -> Result<(), &'static str> {
    let mut i = 0;
    while i < data.len() {
        match state {
            State::Trailers => return Ok(()),
            State::Data(left) => {
                let n = (*left).min((data.len() - i) as u64);
                *left -= n;
                i += n as usize;
                if *left == 0 {
                    *state = State::Size { value: 0, ended: false, bytes: 0 };
                }
            }
            State::Size { value, ended, bytes } => {
                let c = data[i];
                i += 1;
                *bytes += 1;
                if *bytes > HEADER_BYTES_MAX {
                    return Err(TOO_LARGE);
                }
                match (c as char).to_digit(16) {
                    Some(d) if !*ended => {
                        *value = *value << 4 | d as u64;
                        if *value > chunk_bytes_max {
                            return Err(TOO_LARGE);
                        }
                    }
                    _ => *ended = true,
                }
                if c == b'\n' {
                    *state = if *value == 0 { State::Trailers } else { State::Data(*value + 2) };
                }
            }
        }
    }
    Ok(())
}

/// For fuzzing: what following the framing through these pieces ends with.
#[cfg(feature = "fuzzing")]
pub(crate) fn follow_all<'a>(mut pieces: impl Iterator<Item = &'a [u8]>, chunk_bytes_max: u64) -> Result<String, &'static str> {
    let mut s = State::Size { value: 0, ended: false, bytes: 0 };
    pieces.try_for_each(|p| follow(&mut s, p, chunk_bytes_max))?;
    Ok(match s {
        State::Size { value, ended, bytes } => format!("size {value} {ended} {bytes}"),
        State::Data(left) => format!("data {left}"),
        State::Trailers => "trailers".into(),
    })
}

impl<B> Body for Guarded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<s3s::StdError>,
{
    type Data = Bytes;
    type Error = s3s::StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            return this.wait(cx).map(|()| Some(Err(IDLE.into())));
        };
        this.waiting = false;
        if let (Some(Ok(frame)), Some(state)) = (&frame, this.state.as_mut())
            && let Some(data) = frame.data_ref()
            && let Err(e) = follow(state, data, this.chunk_bytes_max)
        {
            return Poll::Ready(Some(Err(e.into())));
        }
        Poll::Ready(frame.map(|f| f.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// The request's body as the parser takes it.
pub fn body(inner: Incoming, is_aws_chunked: bool, chunk_bytes_max: u64) -> s3s::Body {
    s3s::Body::http_body_unsync(Guarded::new(inner, is_aws_chunked, chunk_bytes_max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};

    fn run(parts: &[&[u8]]) -> Result<(), &'static str> {
        let mut s = State::Size { value: 0, ended: false, bytes: 0 };
        parts.iter().try_for_each(|p| follow(&mut s, p, CHUNK_BYTES_MAX))
    }

    #[test]
    fn large_chunks_are_refused_however_the_bytes_are_cut() {
        assert!(run(&[b"5;chunk-signature=ab\r\nhello\r\n0\r\n\r\n"]).is_ok());
        assert!(run(&[b"5\r", b"\nhel", b"lo\r\n", b"1000001\r\n"]).is_err());
        assert!(run(&[b"ffffffff", b"f\r\n"]).is_err());
        assert!(run(&[b"1000000\r\n"]).is_ok());
        assert!(run(&[b"2\r\nff\r\n", b"0\r\nx-amz-checksum-crc32:ffffffffff\r\n\r\n"]).is_ok());
    }

    #[test]
    fn a_chunk_never_takes_more_than_its_share_of_the_budget() {
        assert_eq!((chunk_bytes_max(1 << 30), chunk_bytes_max(32 << 20), chunk_bytes_max(1 << 20)), (16 << 20, 4 << 20, 1 << 20));
        let mut s = State::Size { value: 0, ended: false, bytes: 0 };
        assert_eq!(follow(&mut s, b"400001\r\n", chunk_bytes_max(32 << 20)), Err(TOO_LARGE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_ends_when_it_stands_still_and_not_while_it_comes_slowly() {
        let (send, receive) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let frames =
            futures::stream::unfold(receive, |mut r| async move { r.recv().await.map(|b| (Ok::<_, std::io::Error>(Frame::data(b)), r)) });
        let mut body = Guarded::new(StreamBody::new(Box::pin(frames)), false, CHUNK_BYTES_MAX);
        for _ in 0..3 {
            let piece = async {
                tokio::time::sleep(IDLE_TIMEOUT * 9 / 10).await;
                send.send(Bytes::from_static(b"piece")).unwrap();
            };
            let (frame, ()) = tokio::join!(body.frame(), piece);
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "piece");
        }
        // Time in which nobody asks is not the client's.
        tokio::time::sleep(IDLE_TIMEOUT * 2).await;
        let begun = Instant::now();
        let Some(Err(e)) = body.frame().await else { panic!("it came to an end") };
        assert_eq!((e.to_string().as_str(), begun.elapsed().as_secs()), (IDLE, IDLE_TIMEOUT.as_secs()));
    }
}
