//! `/dev/fuse`, opened.

use crate::encode::Frame;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The device's descriptor: a read takes one request, a write gives one reply or notification.
#[derive(Debug)]
pub struct DevFd(OwnedFd);

/// What became of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrote {
    Sent,
    /// Nobody waits for it any more.
    Gone,
    /// The kernel refused it; the caller is still waiting.
    Refused(i32),
}

impl DevFd {
    /// Opens the device. Reads of a `blocking` one wait for a request.
    pub fn open(blocking: bool) -> io::Result<Self> {
        let flags = libc::O_RDWR | libc::O_CLOEXEC | if blocking { 0 } else { libc::O_NONBLOCK };
        // SAFETY: a constant path; the result is checked.
        let fd = unsafe { libc::open(c"/dev/fuse".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn into_owned(self) -> OwnedFd {
        self.0
    }

    /// Reads one request; `buf` must hold a header and the largest write.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `buf` is valid for writes of its length.
        let n = unsafe { libc::read(self.0.as_raw_fd(), buf.as_mut_ptr().cast::<c_void>(), buf.len()) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    /// Writes the runs of bytes as one message.
    pub fn write(&self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        // SAFETY: IoSlice has the layout of iovec, and the runs are valid for reads.
        let n = unsafe { libc::writev(self.0.as_raw_fd(), parts.as_ptr().cast::<libc::iovec>(), parts.len() as i32) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends a reply.
    pub fn send(&self, frame: &Frame) -> Wrote {
        let result = match frame.parts() {
            [] => self.write(&[io::IoSlice::new(frame.fixed())]),
            [one] => self.write(&[io::IoSlice::new(frame.fixed()), io::IoSlice::new(one)]),
            many => {
                let mut v = Vec::with_capacity(many.len() + 1);
                v.push(io::IoSlice::new(frame.fixed()));
                v.extend(many.iter().map(|p| io::IoSlice::new(p)));
                self.write(&v)
            }
        };
        match result {
            Ok(()) => Wrote::Sent,
            // ENOENT: the request was aborted; ENODEV: the mount is gone.
            Err(e) => match e.raw_os_error().unwrap_or(libc::EIO) {
                libc::ENOENT | libc::ENODEV | libc::ENOTCONN | libc::ECONNABORTED => Wrote::Gone,
                errno => Wrote::Refused(errno),
            },
        }
    }
}

#[cfg(test)]
impl From<OwnedFd> for DevFd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsRawFd for DevFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
