//! Between the vfs's words and the kernel's.

use crate::flags;
use crate::op::{self, Time};
use crate::reply::{Attr, Entry, Opened, StatfsReply};
use holdfast_fs_vfs::{BLKSIZE, EntryReply, Error, FileAttr, HandleId, OpenReply, SetAttrArgs, SetTime, StatFs};
use holdfast_objstore_proto::meta::TimeNs;

const SECOND: i64 = 1_000_000_000;

/// The one table of errnos.
pub(super) fn errno(e: Error) -> i32 {
    match e {
        Error::NotFound => libc::ENOENT,
        Error::Stale => libc::ESTALE,
        Error::Exists => libc::EEXIST,
        Error::NotDir => libc::ENOTDIR,
        Error::IsDir => libc::EISDIR,
        Error::NotEmpty => libc::ENOTEMPTY,
        Error::Invalid => libc::EINVAL,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::NotPermitted => libc::EPERM,
        Error::TooManyLinks => libc::EMLINK,
        Error::NoSpace => libc::ENOSPC,
        Error::FileTooLarge => libc::EFBIG,
        Error::BadHandle => libc::EBADF,
        Error::NoSuchOffset => libc::ENXIO,
        Error::NotSupported => libc::EOPNOTSUPP,
        Error::NotImplemented => libc::ENOSYS,
        Error::Io => libc::EIO,
    }
}

fn time(ns: TimeNs) -> Time {
    Time { secs: ns.div_euclid(SECOND), nanos: ns.rem_euclid(SECOND) as u32 }
}

/// Times outside 1677–2262 become the nearest that can be kept.
fn time_ns(t: Time) -> TimeNs {
    t.secs.saturating_mul(SECOND).saturating_add(i64::from(t.nanos))
}

fn set_time(t: op::SetTime) -> SetTime {
    match t {
        op::SetTime::Now => SetTime::Now,
        op::SetTime::At(t) => SetTime::At(time_ns(t)),
    }
}

pub(super) fn setattr_args(o: &op::Setattr) -> SetAttrArgs {
    SetAttrArgs {
        mode: o.mode.map(|m| m & 0o7777),
        uid: o.uid,
        gid: o.gid,
        size: o.size,
        atime: o.atime.map(set_time),
        mtime: o.mtime.map(set_time),
        ctime: o.ctime.map(time_ns),
        handle: o.handle.map(|h| HandleId(h.0)),
        kill_suidgid: o.kill_suidgid,
    }
}

pub(super) fn attr(a: &FileAttr) -> Attr {
    Attr {
        ino: a.node.0,
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        mode: a.kind.mode_bits() | a.mode & 0o7777,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: BLKSIZE,
    }
}

pub(super) fn entry(e: &EntryReply) -> Entry {
    Entry { node: op::NodeId(e.attr.node.0), generation: 0, entry_valid: e.entry_valid, attr_valid: e.attr_valid, attr: attr(&e.attr) }
}

pub(super) fn opened(r: &OpenReply) -> Opened {
    let mut how = 0;
    for (on, bit) in [
        (r.direct_io, flags::FOPEN_DIRECT_IO),
        (r.keep_cache, flags::FOPEN_KEEP_CACHE),
        (r.parallel_direct_writes, flags::FOPEN_PARALLEL_DIRECT_WRITES),
    ] {
        if on {
            how |= bit;
        }
    }
    Opened { handle: op::Handle(r.handle.0), flags: how }
}

pub(super) fn statfs(s: &StatFs) -> StatfsReply {
    StatfsReply {
        blocks: s.blocks,
        bfree: s.bfree,
        bavail: s.bavail,
        files: s.files,
        ffree: s.ffree,
        bsize: s.bsize,
        frsize: s.bsize,
        name_max: s.namelen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_and_beyond_the_range_are_kept_or_clamped() {
        assert_eq!(time(-1), Time { secs: -1, nanos: 999_999_999 });
        assert_eq!(time_ns(Time { secs: -1, nanos: 999_999_999 }), -1);
        assert_eq!(time_ns(Time { secs: i64::MAX, nanos: 0 }), i64::MAX);
        assert_eq!(time_ns(Time { secs: i64::MIN, nanos: 0 }), i64::MIN);
        assert_eq!(time(time_ns(Time { secs: 1_700_000_000, nanos: 5 })), Time { secs: 1_700_000_000, nanos: 5 });
    }

    #[test]
    fn open_replies_become_the_kernels_flags() {
        let r = OpenReply { handle: HandleId(3), direct_io: true, keep_cache: false, parallel_direct_writes: true };
        assert_eq!(opened(&r).flags, flags::FOPEN_DIRECT_IO | flags::FOPEN_PARALLEL_DIRECT_WRITES);
    }
}
