//! Operations on names: lookup, make, remove, rename, link.

use super::cursor::Cursor;
use crate::op::{Create, Link, Lookup, Mkdir, Mknod, NodeId, Op, Readlink, Rename, Rmdir, Symlink, Unlink};
use crate::wire::{CreateIn, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, flags, opcode};

pub(super) fn decode(code: u32, node: NodeId, c: &mut Cursor<'_>) -> Result<Option<Op>, &'static str> {
    Ok(Some(match code {
        opcode::LOOKUP => Op::Lookup(Lookup { parent: node, name: c.name()? }),
        opcode::CREATE => {
            let a: CreateIn = c.take()?;
            Op::Create(Create {
                parent: node,
                name: c.name()?,
                flags: a.flags as i32,
                mode: a.mode,
                umask: a.umask,
                kill_suidgid: a.open_flags & flags::OPEN_KILL_SUIDGID != 0,
            })
        }
        opcode::MKNOD => {
            let a: MknodIn = c.take()?;
            Op::Mknod(Mknod { parent: node, name: c.name()?, mode: a.mode, rdev: a.rdev, umask: a.umask })
        }
        opcode::MKDIR => {
            let a: MkdirIn = c.take()?;
            Op::Mkdir(Mkdir { parent: node, name: c.name()?, mode: a.mode, umask: a.umask })
        }
        opcode::SYMLINK => Op::Symlink(Symlink { parent: node, name: c.name()?, target: c.string()? }),
        opcode::READLINK => Op::Readlink(Readlink { ino: node }),
        opcode::UNLINK => Op::Unlink(Unlink { parent: node, name: c.name()? }),
        opcode::RMDIR => Op::Rmdir(Rmdir { parent: node, name: c.name()? }),
        opcode::RENAME => {
            let a: RenameIn = c.take()?;
            rename(node, a.newdir, 0, c)?
        }
        opcode::RENAME2 => {
            let a: Rename2In = c.take()?;
            rename(node, a.newdir, a.flags, c)?
        }
        opcode::LINK => {
            let a: LinkIn = c.take()?;
            Op::Link(Link { ino: NodeId(a.oldnodeid), new_parent: node, new_name: c.name()? })
        }
        _ => return Ok(None),
    }))
}

fn rename(parent: NodeId, new_parent: u64, flags: u32, c: &mut Cursor<'_>) -> Result<Op, &'static str> {
    Ok(Op::Rename(Rename { parent, name: c.name()?, new_parent: NodeId(new_parent), new_name: c.name()?, flags }))
}
