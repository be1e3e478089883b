//! Reading requests: one buffer at a time, placed so that a WRITE's payload begins on a page.

use super::fd::DevFd;
use crate::decode::{Body, DecodeError, Request, decode};
use crate::op::Op;
use crate::pool::{Lent, Pool};
use crate::wire::WRITE_PAYLOAD_AT;
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::units::BLOCK;
use std::io;
use std::sync::Arc;

/// Where a request is read to in its buffer: the payload of a WRITE then lies on the second page.
const AT: usize = BLOCK - WRITE_PAYLOAD_AT;
/// Payloads shorter than this are copied: a copy costs less than a megabyte buffer held by a small write that waits or is kept.
const LEND_MIN: usize = 32 << 10;
/// Buffers that may be lent to writes in progress; beyond them payloads are copied.
const LENT_MAX: usize = 32;
/// Buffers kept when none is lent.
const KEPT_MAX: usize = 8;

/// What a read of the device gave.
pub enum Got {
    Request(Result<Request, DecodeError>),
    /// Nothing there now.
    Empty,
    /// Try again: the request was taken back.
    Again,
    /// The mount is over.
    Ended,
    Failed(io::Error),
}

pub struct Receiver {
    pool: Arc<Pool>,
    /// Never lent itself: swapped for one of the pool's, or copied from.
    buf: Lent,
    read_len: usize,
}

impl Receiver {
    /// For requests with payloads up to `max_write` bytes.
    pub fn new(max_write: u32) -> Self {
        // The kernel refuses reads into less than a header and the largest write, or than 8 KiB.
        let read_len = (WRITE_PAYLOAD_AT + max_write as usize).max(2 * BLOCK);
        let pool = Pool::new(AT + read_len, LENT_MAX + 1, KEPT_MAX);
        let buf = pool.take().expect("a new pool lends its first buffer");
        Self { pool, buf, read_len }
    }

    /// Reads and decodes one request.
    pub fn next(&mut self, fd: &DevFd) -> Got {
        let n = match fd.read(&mut self.buf[AT..AT + self.read_len]) {
            // The device never ends this way; a broken one must not make the loop spin.
            Ok(0) => return Got::Failed(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) => {
                return match e.raw_os_error() {
                    Some(libc::EAGAIN) => Got::Empty,
                    Some(libc::ENOENT | libc::EINTR) => Got::Again,
                    Some(libc::ENODEV | libc::ECONNABORTED) => Got::Ended,
                    _ => Got::Failed(e),
                };
            }
        };
        let mut request = decode(&self.buf[AT..AT + n]);
        if let Ok(Request { body: Body::Op(Op::Write(w), Some(at)), .. }) = &mut request {
            w.data = self.payload(AT + at.start, at.len());
        }
        Got::Request(request)
    }

    /// The payload at `from` in the buffer, on a page of its own or on the buffer's second.
    fn payload(&mut self, from: usize, len: usize) -> Bytes {
        if len >= LEND_MIN
            && let Some(fresh) = self.pool.take()
        {
            return std::mem::replace(&mut self.buf, fresh).freeze().slice(from..from + len);
        }
        AlignedBuf::copy_of(&self.buf[from..from + len]).freeze()
    }
}
