//! Operations on open files and directories.

use super::cursor::Cursor;
use crate::op::{
    CopyFileRange, Fallocate, Flush, Fsync, Handle, LockOwner, Lseek, NodeId, Op, Open, Opendir, Read, Readdir, Release, Releasedir, Write,
};
use crate::wire::{CopyFileRangeIn, FallocateIn, FlushIn, FsyncIn, LseekIn, OpenIn, ReadIn, ReleaseIn, WriteIn, flags, opcode};
use bytes::Bytes;
use std::ops::Range;

pub(super) fn decode(code: u32, ino: NodeId, c: &mut Cursor<'_>) -> Result<Option<Op>, &'static str> {
    Ok(Some(match code {
        opcode::OPEN => {
            let a: OpenIn = c.take()?;
            Op::Open(Open { ino, flags: a.flags as i32, kill_suidgid: a.open_flags & flags::OPEN_KILL_SUIDGID != 0 })
        }
        opcode::READ => {
            let a: ReadIn = c.take()?;
            let lock_owner = owner_if(a.read_flags & flags::READ_LOCKOWNER != 0, a.lock_owner);
            Op::Read(Read { ino, handle: Handle(a.fh), offset: offset(a.offset)?, size: a.size, flags: a.flags as i32, lock_owner })
        }
        opcode::RELEASE => {
            let a: ReleaseIn = c.take()?;
            let flock_owner = owner_if(a.release_flags & flags::RELEASE_FLOCK_UNLOCK != 0, a.lock_owner);
            Op::Release(Release { ino, handle: Handle(a.fh), flags: a.flags as i32, flock_owner })
        }
        opcode::FLUSH => {
            let a: FlushIn = c.take()?;
            Op::Flush(Flush { ino, handle: Handle(a.fh), lock_owner: LockOwner(a.lock_owner) })
        }
        opcode::FSYNC => Op::Fsync(fsync(ino, c)?),
        opcode::FSYNCDIR => Op::Fsyncdir(fsync(ino, c)?),
        opcode::OPENDIR => Op::Opendir(Opendir { ino, flags: c.take::<OpenIn>()?.flags as i32 }),
        opcode::READDIR => Op::Readdir(readdir(ino, c)?),
        opcode::READDIRPLUS => Op::Readdirplus(readdir(ino, c)?),
        opcode::RELEASEDIR => Op::Releasedir(Releasedir { ino, handle: Handle(c.take::<ReleaseIn>()?.fh) }),
        opcode::FALLOCATE => {
            let a: FallocateIn = c.take()?;
            Op::Fallocate(Fallocate { ino, handle: Handle(a.fh), offset: offset(a.offset)?, len: offset(a.length)?, mode: a.mode })
        }
        opcode::LSEEK => {
            let a: LseekIn = c.take()?;
            Op::Lseek(Lseek { ino, handle: Handle(a.fh), offset: offset(a.offset)?, whence: a.whence })
        }
        opcode::COPY_FILE_RANGE => {
            let a: CopyFileRangeIn = c.take()?;
            Op::CopyFileRange(CopyFileRange {
                from: ino,
                from_handle: Handle(a.fh_in),
                from_offset: offset(a.off_in)?,
                to: NodeId(a.nodeid_out),
                to_handle: Handle(a.fh_out),
                to_offset: offset(a.off_out)?,
                len: a.len,
                flags: a.flags,
            })
        }
        _ => return Ok(None),
    }))
}

/// A WRITE without its data, and where that lies in the request.
pub(super) fn write(ino: NodeId, c: &mut Cursor<'_>) -> Result<(Write, Range<usize>), &'static str> {
    let a: WriteIn = c.take()?;
    let at = c.range(a.size as usize)?;
    let write = Write {
        ino,
        handle: Handle(a.fh),
        offset: offset(a.offset)?,
        data: Bytes::new(),
        flags: a.flags as i32,
        cached: a.write_flags & flags::WRITE_CACHE != 0,
        kill_suidgid: a.write_flags & flags::WRITE_KILL_SUIDGID != 0,
        lock_owner: owner_if(a.write_flags & flags::WRITE_LOCKOWNER != 0, a.lock_owner),
    };
    Ok((write, at))
}

fn fsync(ino: NodeId, c: &mut Cursor<'_>) -> Result<Fsync, &'static str> {
    let a: FsyncIn = c.take()?;
    Ok(Fsync { ino, handle: Handle(a.fh), datasync: a.fsync_flags & flags::FSYNC_FDATASYNC != 0 })
}

fn readdir(ino: NodeId, c: &mut Cursor<'_>) -> Result<Readdir, &'static str> {
    let a: ReadIn = c.take()?;
    Ok(Readdir { ino, handle: Handle(a.fh), cookie: a.offset, size: a.size })
}

fn owner_if(valid: bool, owner: u64) -> Option<LockOwner> {
    valid.then_some(LockOwner(owner))
}

/// File offsets are `loff_t`: a negative one is refused here, so that sums of offset and length cannot overflow later.
fn offset(v: u64) -> Result<u64, &'static str> {
    if v > i64::MAX as u64 { Err("an offset is negative") } else { Ok(v) }
}
