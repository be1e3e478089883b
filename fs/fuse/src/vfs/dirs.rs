//! Directories of a vfs.

use super::{VfsAdapter, empty, handle, later, node, reply};
use crate::dirbuf::{DirBuffer, DirPlusBuffer, Dirent};
use crate::filesystem::Answer;
use crate::op::{Op, Readdir};
use crate::reply::Reply;
use holdfast_fs_vfs::DirItem;

use super::translate::{entry, errno, opened};

fn bare(item: &DirItem) -> Dirent<'_> {
    Dirent { ino: item.node.0, cookie: item.next, mode: item.kind.mode_bits(), name: &item.name }
}

impl VfsAdapter {
    pub(super) fn on_dir(&self, op: Op) -> Answer<'_> {
        let vfs = &*self.vfs;
        match op {
            Op::Opendir(o) => later(async move { reply(vfs.opendir(node(o.ino)).await, |r| Reply::Opened(opened(&r))) }),
            Op::Readdir(o) => self.readdir(o),
            Op::Readdirplus(o) => self.readdirplus(o),
            Op::Releasedir(o) => {
                vfs.releasedir(handle(o.handle));
                Answer::Ready(Reply::Empty)
            }
            Op::Fsyncdir(o) => later(async move { empty(vfs.fsyncdir(handle(o.handle)).await) }),
            _ => Answer::Ready(Reply::Err(libc::ENOSYS)),
        }
    }

    fn readdir(&self, o: Readdir) -> Answer<'_> {
        later(async move {
            let mut out = DirBuffer::new(o.size);
            let mut fill = |item: &DirItem| out.push(&bare(item));
            let result = self.vfs.readdir(handle(o.handle), o.cookie, &mut fill).await;
            // What was read before an error is given first; the next call meets the error again.
            match result {
                Err(e) if out.is_empty() => Reply::Err(errno(e)),
                _ => out.finish(),
            }
        })
    }

    fn readdirplus(&self, o: Readdir) -> Answer<'_> {
        later(async move {
            let mut out = DirPlusBuffer::new(o.size);
            let mut fill = |item: &DirItem| match &item.entry {
                Some(e) => out.push(&entry(e), item.next, &item.name),
                None => out.push_bare(&bare(item)),
            };
            let result = self.vfs.readdirplus(handle(o.handle), o.cookie, &mut fill).await;
            // As above; and entries in the buffer are counted as looked up, so the kernel must hear of them.
            match result {
                Err(e) if out.is_empty() => Reply::Err(errno(e)),
                _ => out.finish(),
            }
        })
    }
}
