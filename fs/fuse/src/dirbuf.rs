//! Buffers that READDIR and READDIRPLUS replies are built in, and the way back for bindings that take entries one by one.

use crate::encode::entry_out;
use crate::reply::{Entry, Reply};
use crate::wire::{AttrWire, DirentHead, EntryOut};
use bytes::{Bytes, BytesMut};
use zerocopy::{FromBytes, IntoBytes};

const HEAD: usize = size_of::<DirentHead>();
const PLUS: usize = size_of::<EntryOut>();

fn padded(n: usize) -> usize {
    n.next_multiple_of(8)
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Dirent<'a> {
    pub ino: u64,
    /// Where reading goes on after this entry.
    pub cookie: u64,
    /// Mode bits; only the file type counts.
    pub mode: u32,
    pub name: &'a [u8],
}

fn put(buf: &mut BytesMut, e: &Dirent<'_>) {
    let head = DirentHead { ino: e.ino, off: e.cookie, namelen: e.name.len() as u32, kind: (e.mode & libc::S_IFMT) >> 12 };
    buf.extend_from_slice(head.as_bytes());
    buf.extend_from_slice(e.name);
    buf.resize(padded(buf.len()), 0);
}

/// The body of a READDIR reply.
pub struct DirBuffer {
    buf: BytesMut,
    max: usize,
}

impl DirBuffer {
    /// Room for `size` bytes, as the operation asked.
    pub fn new(size: u32) -> Self {
        let max = (size as usize).min(1 << 20);
        Self { buf: BytesMut::with_capacity(max.min(32 << 10)), max }
    }

    /// Adds an entry; false when there is no room for it.
    #[must_use]
    pub fn push(&mut self, e: &Dirent<'_>) -> bool {
        if self.buf.len() + padded(HEAD + e.name.len()) > self.max {
            return false;
        }
        put(&mut self.buf, e);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub fn finish(self) -> Reply {
        Reply::Dir(self.buf.freeze())
    }
}

/// The body of a READDIRPLUS reply.
pub struct DirPlusBuffer {
    buf: BytesMut,
    max: usize,
}

impl DirPlusBuffer {
    /// Room for `size` bytes, as the operation asked.
    pub fn new(size: u32) -> Self {
        let max = (size as usize).min(1 << 20);
        Self { buf: BytesMut::with_capacity(max.min(64 << 10)), max }
    }

    /// Whether a name of this length still fits: ask before taking a lookup count for the entry.
    pub fn fits(&self, name_len: usize) -> bool {
        self.buf.len() + PLUS + padded(HEAD + name_len) <= self.max
    }

    /// Adds an entry and its attributes, which the kernel counts as a lookup; false when there is no room for it.
    #[must_use]
    pub fn push(&mut self, entry: &Entry, cookie: u64, name: &[u8]) -> bool {
        let e = Dirent { ino: entry.attr.ino, cookie, mode: entry.attr.mode, name };
        self.add(entry_out(entry), &e)
    }

    /// Adds an entry without attributes, which is not a lookup: `.`, `..`, and what cannot be looked up now.
    #[must_use]
    pub fn push_bare(&mut self, e: &Dirent<'_>) -> bool {
        let attr = AttrWire { ino: e.ino, mode: e.mode, ..AttrWire::default() };
        self.add(EntryOut { attr, ..EntryOut::default() }, e)
    }

    fn add(&mut self, out: EntryOut, e: &Dirent<'_>) -> bool {
        if !self.fits(e.name.len()) {
            return false;
        }
        self.buf.extend_from_slice(out.as_bytes());
        put(&mut self.buf, e);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub fn finish(self) -> Reply {
        Reply::DirPlus(self.buf.freeze())
    }
}

/// An entry read back from a finished buffer; `plus` is set for READDIRPLUS.
#[derive(Debug, Clone)]
pub struct ParsedEntry {
    pub ino: u64,
    pub cookie: u64,
    pub kind: u32,
    pub name: Bytes,
    pub plus: Option<EntryOut>,
}

/// Reads a finished buffer back. Bytes that are not whole entries end the reading.
pub fn parse(mut body: Bytes, plus: bool) -> Vec<ParsedEntry> {
    let mut out = Vec::new();
    loop {
        let lead = if plus { PLUS } else { 0 };
        let Some(fixed) = body.get(..lead + HEAD) else { return out };
        let plus_out = if plus { EntryOut::read_from_bytes(&fixed[..PLUS]).ok() } else { None };
        let Ok(head) = DirentHead::read_from_bytes(&fixed[lead..]) else { return out };
        let (from, len) = (lead + HEAD, head.namelen as usize);
        if len > body.len() - from {
            return out;
        }
        let name = body.slice(from..from + len);
        out.push(ParsedEntry { ino: head.ino, cookie: head.off, kind: head.kind, name, plus: plus_out });
        let next = lead + padded(HEAD + len);
        if next > body.len() {
            return out;
        }
        body = body.slice(next..);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::NodeId;
    use crate::reply::Attr;
    use std::time::Duration;

    #[test]
    fn a_directory_buffer_keeps_its_bound_and_reads_back() {
        let mut b = DirBuffer::new(100);
        assert!(b.push(&Dirent { ino: 7, cookie: 1, mode: libc::S_IFREG, name: b"one" }));
        assert!(b.push(&Dirent { ino: 8, cookie: 2, mode: libc::S_IFDIR, name: b"exactly8" }));
        assert!(!b.push(&Dirent { ino: 9, cookie: 3, mode: libc::S_IFREG, name: b"a name that is too long" }));
        let Reply::Dir(body) = b.finish() else { panic!("not a directory reply") };
        assert_eq!(body.len(), 32 + 32);
        let e = parse(body, false);
        assert_eq!(e.len(), 2);
        assert_eq!((e[0].ino, e[0].cookie, e[0].kind, &e[0].name[..]), (7, 1, 8, &b"one"[..]));
        assert_eq!((e[1].ino, e[1].cookie, e[1].kind, &e[1].name[..]), (8, 2, 4, &b"exactly8"[..]));
    }

    #[test]
    fn a_plus_buffer_carries_attributes_and_bare_entries_have_no_node() {
        let attr = Attr { ino: 5, mode: libc::S_IFREG | 0o644, size: 10, ..Attr::default() };
        let entry =
            Entry { node: NodeId(5), generation: 0, entry_valid: Duration::from_secs(1), attr_valid: Duration::from_millis(1500), attr };
        let mut b = DirPlusBuffer::new(4096);
        assert!(b.push_bare(&Dirent { ino: 1, cookie: 1, mode: libc::S_IFDIR, name: b"." }));
        assert!(b.push(&entry, 2, b"file"));
        let Reply::DirPlus(body) = b.finish() else { panic!("not a directory reply") };
        let e = parse(body, true);
        assert_eq!(e[0].plus.expect("plus").nodeid, 0);
        let p = e[1].plus.expect("plus");
        assert_eq!((p.nodeid, p.attr.size, p.attr_valid, p.attr_valid_nsec), (5, 10, 1, 500_000_000));
    }

    #[test]
    fn reading_back_garbage_ends_without_a_panic() {
        for n in 0..300usize {
            let junk: Vec<u8> = (0..n).map(|i| (i * 151 + n) as u8).collect();
            parse(Bytes::from(junk.clone()), false);
            parse(Bytes::from(junk), true);
        }
    }
}
