//! From [`Reply`] to the bytes the kernel reads.
//!
//! What always holds: payload is never copied; a frame lists it as it lies. Replies of a kind that cannot be sent become EIO.

use crate::op::Time;
use crate::reply::{Attr, Entry, Opened, Parts, Reply};
use crate::wire::{AttrOut, AttrWire, EntryOut, LkOut, LseekOut, OpenOut, OutHeader, StatfsOut, WriteOut, XattrSizeOut};
use bytes::Bytes;
use zerocopy::IntoBytes;

/// Bytes of the largest reply without payload: a header, an entry and an open (CREATE).
const FIXED_MAX: usize = 16 + 128 + 16;
/// Runs sent in one call; more are joined (the kernel takes 1,024, one of them the header).
const PARTS_MAX: usize = 1000;

/// A reply, ready to be sent: fixed bytes, then runs of payload.
pub struct Frame {
    fixed: [u8; FIXED_MAX],
    fixed_len: usize,
    parts: Parts,
}

fn whole_secs(d: std::time::Duration) -> (u64, u32) {
    (d.as_secs(), d.subsec_nanos())
}

pub(crate) fn attr_wire(a: &Attr) -> AttrWire {
    let secs = |t: Time| t.secs as u64;
    AttrWire {
        ino: a.ino,
        size: a.size,
        blocks: a.blocks,
        atime: secs(a.atime),
        mtime: secs(a.mtime),
        ctime: secs(a.ctime),
        atimensec: a.atime.nanos,
        mtimensec: a.mtime.nanos,
        ctimensec: a.ctime.nanos,
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: a.blksize,
        flags: 0,
    }
}

pub(crate) fn entry_out(e: &Entry) -> EntryOut {
    let (entry_valid, entry_valid_nsec) = whole_secs(e.entry_valid);
    let (attr_valid, attr_valid_nsec) = whole_secs(e.attr_valid);
    EntryOut {
        nodeid: e.node.0,
        generation: e.generation,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr_wire(&e.attr),
    }
}

fn open_out(o: &Opened) -> OpenOut {
    OpenOut { fh: o.handle.0, open_flags: o.flags, backing_id: 0 }
}

impl Frame {
    fn bare(unique: u64, error: i32) -> Self {
        let mut f = Frame { fixed: [0; FIXED_MAX], fixed_len: 16, parts: Parts::new() };
        let head = OutHeader { len: 16, error, unique };
        f.fixed[..16].copy_from_slice(head.as_bytes());
        f
    }

    /// A reply that says only `errno`.
    pub fn error(unique: u64, errno: i32) -> Self {
        // The kernel takes -511..=0; anything else would be refused and leave the caller waiting.
        let errno = if (1..512).contains(&errno) { errno } else { libc::EIO };
        Self::bare(unique, -errno)
    }

    fn add<T: IntoBytes + zerocopy::Immutable>(&mut self, value: &T) {
        let b = value.as_bytes();
        self.fixed[self.fixed_len..self.fixed_len + b.len()].copy_from_slice(b);
        self.fixed_len += b.len();
    }

    pub fn new(unique: u64, reply: Reply) -> Self {
        let mut f = Self::bare(unique, 0);
        match reply {
            Reply::Err(errno) => return Self::error(unique, errno),
            Reply::Empty => {}
            Reply::Entry(e) => f.add(&entry_out(&e)),
            Reply::Absent(d) => {
                let (entry_valid, entry_valid_nsec) = whole_secs(d);
                if d.is_zero() {
                    return Self::error(unique, libc::ENOENT);
                }
                f.add(&EntryOut { entry_valid, entry_valid_nsec, ..EntryOut::default() });
            }
            Reply::Attr(a, valid) => {
                let (attr_valid, attr_valid_nsec) = whole_secs(valid);
                f.add(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr_wire(&a) });
            }
            Reply::Opened(o) => f.add(&open_out(&o)),
            Reply::Created(e, o) => {
                f.add(&entry_out(&e));
                f.add(&open_out(&o));
            }
            Reply::Data(parts) => f.parts = joined(parts),
            Reply::Dir(body) | Reply::DirPlus(body) => f.parts.push(body),
            Reply::Written(size) => f.add(&WriteOut { size, padding: 0 }),
            Reply::Statfs(s) => f.add(&StatfsOut {
                blocks: s.blocks,
                bfree: s.bfree,
                bavail: s.bavail,
                files: s.files,
                ffree: s.ffree,
                bsize: s.bsize,
                namelen: s.name_max,
                frsize: s.frsize,
                ..StatfsOut::default()
            }),
            Reply::XattrSize(size) => f.add(&XattrSizeOut { size, padding: 0 }),
            Reply::Lock(l) => f.add(&LkOut { start: l.start, end: l.end, kind: l.kind as u32, pid: l.pid }),
            Reply::Offset(offset) => f.add(&LseekOut { offset }),
        }
        let len = f.len() as u32;
        f.fixed[..4].copy_from_slice(&len.to_ne_bytes());
        f
    }

    /// Bytes of the whole frame.
    pub fn len(&self) -> usize {
        self.fixed_len + self.parts.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn fixed(&self) -> &[u8] {
        &self.fixed[..self.fixed_len]
    }

    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }
}

fn joined(parts: Parts) -> Parts {
    if parts.len() <= PARTS_MAX {
        return parts;
    }
    let mut all = Vec::with_capacity(parts.iter().map(Bytes::len).sum());
    for p in &parts {
        all.extend_from_slice(p);
    }
    let mut one = Parts::new();
    one.push(all.into());
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn flat(f: &Frame) -> Vec<u8> {
        let mut v = f.fixed().to_vec();
        for p in f.parts() {
            v.extend_from_slice(p);
        }
        v
    }

    #[test]
    fn frames_count_themselves_and_carry_negative_errnos() {
        let f = flat(&Frame::new(9, Reply::data(Bytes::from_static(b"hello"))));
        assert_eq!(f.len(), 21);
        assert_eq!(u32::from_ne_bytes(f[..4].try_into().unwrap()), 21);
        assert_eq!(u64::from_ne_bytes(f[8..16].try_into().unwrap()), 9);
        let e = flat(&Frame::new(9, Reply::Err(libc::ENOENT)));
        assert_eq!(i32::from_ne_bytes(e[4..8].try_into().unwrap()), -libc::ENOENT);
        for bad in [0, -5, 512, i32::MAX] {
            let e = flat(&Frame::new(9, Reply::Err(bad)));
            assert_eq!(i32::from_ne_bytes(e[4..8].try_into().unwrap()), -libc::EIO);
        }
    }

    #[test]
    fn an_absent_name_is_cached_only_when_it_may_be() {
        assert_eq!(Frame::new(1, Reply::Absent(Duration::ZERO)).len(), 16);
        assert_eq!(Frame::new(1, Reply::Absent(Duration::from_secs(1))).len(), 16 + 128);
    }

    #[test]
    fn many_runs_are_joined_into_what_one_call_takes() {
        let parts: Parts = (0..5000u32).map(|i| Bytes::copy_from_slice(&i.to_ne_bytes())).collect();
        let f = Frame::new(1, Reply::Data(parts));
        assert_eq!((f.parts().len(), f.len()), (1, 16 + 20_000));
    }
}
