//! Reading directories. The backing filesystem's own offsets are the cookies.

use super::handles::Opened as Dir;
use super::{Passthrough, sys};
use crate::dirbuf::{DirBuffer, DirPlusBuffer, Dirent};
use crate::flags;
use crate::op::{Opendir, Readdir};
use crate::reply::{Opened, Reply};
use std::io;
use std::os::fd::AsRawFd;

/// Bytes of records fetched at a time.
const FETCH: usize = 16 << 10;
/// Where the name begins in a `linux_dirent64`: d_ino, d_off, d_reclen, d_type.
const NAME_AT: usize = 19;

struct Record<'a> {
    ino: u64,
    cookie: u64,
    kind: u8,
    name: &'a [u8],
}

/// The first record of `bytes`, and its length.
fn record(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let head = bytes.get(..NAME_AT)?;
    let len = usize::from(u16::from_ne_bytes([head[16], head[17]]));
    let name = bytes.get(NAME_AT..len)?;
    let name = &name[..name.iter().position(|b| *b == 0)?];
    let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    Some((Record { ino: word(0), cookie: word(8), kind: head[18], name }, len))
}

impl Passthrough {
    pub(super) fn opendir(&self, o: &Opendir) -> io::Result<Reply> {
        let node = self.nodes.fd(o.ino)?;
        let fd = sys::reopen(node.as_raw_fd(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        let handle = self.handles.insert(Dir { fd, ring: None });
        Ok(Reply::Opened(Opened { handle, flags: flags::FOPEN_KEEP_CACHE | flags::FOPEN_CACHE_DIR }))
    }

    fn each(&self, o: &Readdir, mut put: impl FnMut(&Record<'_>) -> bool) -> io::Result<()> {
        let dir = self.handles.get(o.handle)?;
        // SAFETY: no memory is involved.
        sys::check(unsafe { libc::lseek(dir.raw(), o.cookie as i64, libc::SEEK_SET) })?;
        let mut buf = [0u8; FETCH];
        loop {
            let n = sys::getdents(&dir.fd, &mut buf)?;
            let mut rest = &buf[..n];
            if rest.is_empty() {
                return Ok(());
            }
            while let Some((r, len)) = record(rest) {
                if !put(&r) {
                    return Ok(());
                }
                rest = &rest[len..];
            }
        }
    }

    pub(super) fn readdir(&self, o: &Readdir) -> io::Result<Reply> {
        let mut out = DirBuffer::new(o.size);
        self.each(o, |r| out.push(&bare(r)))?;
        Ok(out.finish())
    }

    pub(super) fn readdirplus(&self, o: &Readdir) -> io::Result<Reply> {
        let mut out = DirPlusBuffer::new(o.size);
        self.each(o, |r| {
            if !out.fits(r.name.len()) {
                return false;
            }
            if matches!(r.name, b"." | b"..") {
                return out.push_bare(&bare(r));
            }
            match self.nodes.find(o.ino, r.name) {
                Ok(entry) => out.push(&entry, r.cookie, r.name),
                Err(_) => out.push_bare(&bare(r)),
            }
        })?;
        Ok(out.finish())
    }
}

fn bare<'a>(r: &Record<'a>) -> Dirent<'a> {
    Dirent { ino: r.ino, cookie: r.cookie, mode: u32::from(r.kind) << 12, name: r.name }
}
