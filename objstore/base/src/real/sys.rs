//! The blocking calls, in the kernel's own convention: a count, or a negated errno.
//!
//! What always holds: an interrupted call is made again. Nothing else is retried.

use bytes::Bytes;
use std::os::fd::RawFd;

/// At most this many parts go into one vectored call (Linux's IOV_MAX).
pub(super) const PARTS_MAX: usize = 1024;
/// At most this many bytes go into one call, well below Linux's 2 GiB - 4 KiB.
pub(super) const CALL_BYTES_MAX: usize = 1 << 30;

fn retry(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        let n = call();
        if n >= 0 {
            return n as i32;
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        if errno != libc::EINTR {
            return -errno;
        }
    }
}

/// Reads into `buf` from `offset`.
pub(super) fn pread(fd: RawFd, buf: &mut [u8], offset: u64) -> i32 {
    let len = buf.len().min(CALL_BYTES_MAX);
    // SAFETY: `buf` is valid for writes of `len` bytes for the length of the call.
    retry(|| unsafe { libc::pread(fd, buf.as_mut_ptr().cast(), len, offset as i64) })
}

/// Writes the vectors from `offset`.
pub(super) fn pwritev(fd: RawFd, iov: &[libc::iovec], offset: u64) -> i32 {
    let n = iov.len().min(PARTS_MAX) as i32;
    // SAFETY: the caller keeps the memory behind the vectors alive and unchanged during the call.
    retry(|| unsafe { libc::pwritev(fd, iov.as_ptr(), n, offset as i64) })
}

/// fdatasync.
pub(super) fn fdatasync(fd: RawFd) -> i32 {
    // SAFETY: no memory is involved.
    retry(|| unsafe { libc::fdatasync(fd) as isize })
}

/// fsync.
pub(super) fn fsync(fd: RawFd) -> i32 {
    // SAFETY: no memory is involved.
    retry(|| unsafe { libc::fsync(fd) as isize })
}

/// What is left of `parts` after `done` bytes, as vectors for one call.
pub(super) fn vectors(parts: &[Bytes], mut done: usize, out: &mut Vec<libc::iovec>) {
    out.clear();
    let mut room = CALL_BYTES_MAX;
    for part in parts {
        if done >= part.len() {
            done -= part.len();
            continue;
        }
        if out.len() == PARTS_MAX || room == 0 {
            break;
        }
        let rest = &part[done..];
        done = 0;
        let len = rest.len().min(room);
        room -= len;
        out.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: len });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_leave_out_what_is_done() {
        let parts = [Bytes::from_static(&[1; 10]), Bytes::new(), Bytes::from_static(&[2; 20])];
        let mut iov = Vec::new();
        let lens = |iov: &Vec<libc::iovec>| iov.iter().map(|v| v.iov_len).collect::<Vec<_>>();
        vectors(&parts, 0, &mut iov);
        assert_eq!(lens(&iov), [10, 20]);
        vectors(&parts, 10, &mut iov);
        assert_eq!(lens(&iov), [20]);
        vectors(&parts, 15, &mut iov);
        assert_eq!(lens(&iov), [15]);
        vectors(&parts, 30, &mut iov);
        assert!(iov.is_empty());
    }
}
