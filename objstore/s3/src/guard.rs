//! Bounds the chunks of an aws-chunked body before the parser collects one whole.
//!
//! A chunk is `hex-size[;extensions]\r\n` data `\r\n`. The parser behind us keeps a whole chunk in memory and would believe
//! any size; clients send 64 KiB to 1 MiB. This watches the framing as bytes pass and ends the body at a chunk beyond [`CHUNK_BYTES_MAX`].

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Far above what clients use (the largest seen is 8 MiB), far below what would hurt.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// In the error of a body that stands still.
pub const IDLE: &str = "the body stood still for too long";
pub const TOO_LARGE: &str = "a chunk of the body is larger than 16 MiB";
const HEADER_BYTES_MAX: usize = 1024;

enum State {
    /// Reading a size: digits so far, and whether they ended.
    Size { value: u64, ended: bool, bytes: usize },
    /// Inside a chunk's data and its final CRLF.
    Data(u64),
    /// After the last chunk: trailers, bounded by the parser.
    Trailers,
}

/// A request body whose chunk sizes are bounded; other bodies pass untouched.
pub struct Guarded {
    inner: Incoming,
    state: Option<State>,
}

impl Guarded {
    pub fn new(inner: Incoming, is_aws_chunked: bool) -> Self {
        let state = is_aws_chunked.then_some(State::Size { value: 0, ended: false, bytes: 0 });
        Self { inner, state }
    }
}

/// Follows the framing through `data`. Err when a chunk is too large; what is malformed is left to the parser.
fn follow(state: &mut State, data: &[u8]) -> Result<(), &'static str> {
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
                        if *value > CHUNK_BYTES_MAX {
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

impl Body for Guarded {
    type Data = Bytes;
    type Error = s3s::StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(state)) = (&polled, self.state.as_mut())
            && let Some(data) = frame.data_ref()
            && let Err(e) = follow(state, data)
        {
            return Poll::Ready(Some(Err(e.into())));
        }
        polled.map(|o| o.map(|r| r.map_err(|e| Box::new(e) as s3s::StdError)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// The request's body as the parser takes it.
pub fn body(inner: Incoming, is_aws_chunked: bool) -> s3s::Body {
    s3s::Body::http_body_unsync(Guarded::new(inner, is_aws_chunked).map_err(|e| e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parts: &[&[u8]]) -> Result<(), &'static str> {
        let mut s = State::Size { value: 0, ended: false, bytes: 0 };
        parts.iter().try_for_each(|p| follow(&mut s, p))
    }

    #[test]
    fn large_chunks_are_refused_however_the_bytes_are_cut() {
        assert!(run(&[b"5;chunk-signature=ab\r\nhello\r\n0\r\n\r\n"]).is_ok());
        assert!(run(&[b"5\r", b"\nhel", b"lo\r\n", b"1000001\r\n"]).is_err());
        assert!(run(&[b"ffffffff", b"f\r\n"]).is_err());
        assert!(run(&[b"2\r\nff\r\n", b"0\r\nx-amz-checksum-crc32:ffffffffff\r\n\r\n"]).is_ok());
    }
}
