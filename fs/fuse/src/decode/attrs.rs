//! Operations on attributes, extended attributes and locks.

use super::cursor::Cursor;
use crate::op::{
    Access, Getattr, Getlk, Getxattr, Handle, Listxattr, Lock, LockOwner, NodeId, Op, Removexattr, SetTime, Setattr, Setlk, Setxattr,
    Statfs, Time,
};
use crate::wire::{AccessIn, GetattrIn, GetxattrIn, LkIn, SetattrIn, SetxattrIn, flags, opcode};

pub(super) fn decode(code: u32, ino: NodeId, c: &mut Cursor<'_>) -> Result<Option<Op>, &'static str> {
    Ok(Some(match code {
        opcode::GETATTR => {
            let a: GetattrIn = c.take()?;
            let handle = (a.getattr_flags & flags::GETATTR_FH != 0).then_some(Handle(a.fh));
            Op::Getattr(Getattr { ino, handle })
        }
        opcode::SETATTR => Op::Setattr(setattr(ino, c.take()?)?),
        opcode::STATFS => Op::Statfs(Statfs { ino }),
        opcode::ACCESS => Op::Access(Access { ino, mask: c.take::<AccessIn>()?.mask }),
        opcode::SETXATTR => {
            let a: SetxattrIn = c.take()?;
            Op::Setxattr(Setxattr { ino, name: c.string()?, value: c.copy(a.size as usize)?, flags: a.flags as i32 })
        }
        opcode::GETXATTR => {
            let a: GetxattrIn = c.take()?;
            Op::Getxattr(Getxattr { ino, name: c.string()?, size: a.size })
        }
        opcode::LISTXATTR => Op::Listxattr(Listxattr { ino, size: c.take::<GetxattrIn>()?.size }),
        opcode::REMOVEXATTR => Op::Removexattr(Removexattr { ino, name: c.string()? }),
        opcode::GETLK => {
            let a: LkIn = c.take()?;
            Op::Getlk(Getlk { ino, handle: Handle(a.fh), owner: LockOwner(a.owner), lock: lock(&a) })
        }
        opcode::SETLK | opcode::SETLKW => {
            let a: LkIn = c.take()?;
            Op::Setlk(Setlk {
                ino,
                handle: Handle(a.fh),
                owner: LockOwner(a.owner),
                lock: lock(&a),
                wait: code == opcode::SETLKW,
                flock: a.lk_flags & flags::LK_FLOCK != 0,
            })
        }
        _ => return Ok(None),
    }))
}

fn setattr(ino: NodeId, a: SetattrIn) -> Result<Setattr, &'static str> {
    let has = |bit: u32| a.valid & bit != 0;
    let time = |set: u32, now: u32, secs: u64, nanos: u32| -> Result<Option<SetTime>, &'static str> {
        Ok(match (has(now), has(set)) {
            (true, _) => Some(SetTime::Now),
            (_, true) => Some(SetTime::At(stamp(secs, nanos)?)),
            _ => None,
        })
    };
    if has(flags::FATTR_SIZE) && a.size > i64::MAX as u64 {
        return Err("a size is negative");
    }
    Ok(Setattr {
        ino,
        handle: has(flags::FATTR_FH).then_some(Handle(a.fh)),
        mode: has(flags::FATTR_MODE).then_some(a.mode),
        uid: has(flags::FATTR_UID).then_some(a.uid),
        gid: has(flags::FATTR_GID).then_some(a.gid),
        size: has(flags::FATTR_SIZE).then_some(a.size),
        atime: time(flags::FATTR_ATIME, flags::FATTR_ATIME_NOW, a.atime, a.atimensec)?,
        mtime: time(flags::FATTR_MTIME, flags::FATTR_MTIME_NOW, a.mtime, a.mtimensec)?,
        ctime: if has(flags::FATTR_CTIME) { Some(stamp(a.ctime, a.ctimensec)?) } else { None },
        kill_suidgid: has(flags::FATTR_KILL_SUIDGID),
    })
}

fn stamp(secs: u64, nanos: u32) -> Result<Time, &'static str> {
    if nanos >= 1_000_000_000 {
        return Err("a time has too many nanoseconds");
    }
    Ok(Time { secs: secs as i64, nanos })
}

fn lock(a: &LkIn) -> Lock {
    Lock { start: a.start, end: a.end, kind: a.kind as i32, pid: a.pid }
}
