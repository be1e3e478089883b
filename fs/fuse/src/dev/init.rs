//! INIT: what the kernel offers, what the mount takes.

use super::fd::DevFd;
use crate::encode::Frame;
use crate::filesystem::{Filesystem, InitReply, KernelInfo};
use crate::flags;
use crate::options::MountOptions;
use crate::wire::{self, InHeader, InitIn, InitInExt, InitOut, MAJOR, MINOR, opcode};
use std::io;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// How long the kernel may take to put INIT into the queue after mount(2).
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    pub kernel: KernelInfo,
    pub flags: u64,
    pub max_write: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("the kernel is too old")]
    Old(KernelInfo),
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn parse(bytes: &[u8]) -> Option<(u64, KernelInfo)> {
    let (head, rest) = InHeader::read_from_prefix(bytes).ok()?;
    let (init, rest) = InitIn::read_from_prefix(rest).ok()?;
    if head.opcode != opcode::INIT {
        return None;
    }
    let upper = match InitInExt::read_from_prefix(rest) {
        Ok((ext, _)) if u64::from(init.flags) & flags::INIT_EXT != 0 => ext.flags2,
        _ => 0,
    };
    let flags = u64::from(init.flags) | u64::from(upper) << 32;
    Some((head.unique, KernelInfo { major: init.major, minor: init.minor, flags, max_readahead: init.max_readahead }))
}

/// For fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let _ = parse(bytes);
}

fn reply(kernel: &KernelInfo, want: InitReply, o: &MountOptions) -> (InitOut, u64) {
    let flags = want.flags & kernel.flags;
    let pages = (o.max_write / 4096) as u16;
    let out = InitOut {
        major: MAJOR,
        minor: kernel.minor.min(MINOR),
        max_readahead: kernel.max_readahead.max(o.read_ahead),
        flags: flags as u32,
        max_background: o.max_background,
        congestion_threshold: (u32::from(o.max_background) * 3 / 4).max(1) as u16,
        max_write: o.max_write,
        time_gran: want.time_gran_ns.max(1),
        max_pages: pages,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    };
    (out, flags)
}

/// Waits for INIT and answers it.
pub(crate) fn negotiate(fd: &DevFd, fs: &dyn Filesystem, o: &MountOptions) -> Result<Agreed, InitError> {
    let mut buf = vec![0u8; wire::WRITE_PAYLOAD_AT + (1 << 20) + 4096];
    let n = read_within(fd, &mut buf, Instant::now() + WAIT_MAX)?;
    let Some((unique, kernel)) = parse(&buf[..n]) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first request is not INIT").into());
    };
    if (kernel.major, kernel.minor) < (MAJOR, 31) || kernel.major != MAJOR {
        fd.send(&Frame::error(unique, libc::EPROTO));
        return Err(InitError::Old(kernel));
    }
    let (out, flags) = reply(&kernel, fs.init(&kernel), o);
    let head = wire::OutHeader { len: (size_of::<wire::OutHeader>() + size_of::<InitOut>()) as u32, error: 0, unique };
    fd.write(&[io::IoSlice::new(head.as_bytes()), io::IoSlice::new(out.as_bytes())])?;
    tracing::info!(
        protocol = %format_args!("{}.{}", kernel.major, out.minor),
        flags = %format_args!("{flags:#x}"),
        refused = %format_args!("{:#x}", flags::WANTED & !kernel.flags),
        max_write = out.max_write,
        "FUSE connection agreed"
    );
    Ok(Agreed { kernel, flags, max_write: out.max_write })
}

fn read_within(fd: &DevFd, buf: &mut [u8], deadline: Instant) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    loop {
        match fd.read(buf) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENOENT)) => {}
            other => return other,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel sent no INIT"));
        }
        let mut p = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, valid for the call; a failure only makes the loop read again.
        unsafe { libc::poll(&mut p, 1, left.as_millis().min(1000) as i32) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: KernelInfo = KernelInfo { major: 7, minor: 45, flags: u64::MAX, max_readahead: 131_072 };

    #[test]
    fn only_offered_flags_are_taken_and_write_back_caching_never() {
        let o = MountOptions::default();
        let (out, flags) = reply(&OFFER, InitReply::default(), &o);
        assert_eq!(flags, flags::WANTED);
        assert_eq!(flags & (flags::WRITEBACK_CACHE | flags::POSIX_LOCKS | flags::FLOCK_LOCKS), 0);
        assert_eq!(u64::from(out.flags2) << 32, flags::DIRECT_IO_ALLOW_MMAP);
        assert_eq!((out.max_pages, out.minor), (256, 45));
        let poor = KernelInfo { minor: 31, flags: flags::ASYNC_READ, ..OFFER };
        let (out, flags) = reply(&poor, InitReply::default(), &o);
        assert_eq!((flags, out.minor), (flags::ASYNC_READ, 31));
        assert!(OFFER.supports_inc_epoch() && !poor.supports_inc_epoch());
    }

    #[test]
    fn an_init_cut_short_is_refused() {
        for n in 0..56 {
            assert!(parse(&vec![26u8; n]).is_none());
        }
    }
}
