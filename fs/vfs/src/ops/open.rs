//! open, release, flush, and the same for directories.
//!
//! What always holds: a handle opened while the file is shared is direct for life; metadata knows of every handle, so that the inode outlives its name.

use crate::acquire::Mode;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::types::{Error, HandleId, NodeId, OpenFlags, OpenReply, Result};
use crate::vfs::Vfs;
use holdfast_meta_client::Use;
use holdfast_objstore_proto::meta::Kind;
use std::sync::Arc;

impl Vfs {
    pub async fn open(&self, node: NodeId, a: OpenFlags) -> Result<OpenReply> {
        self.metrics().vfs_ops.inc();
        let inode = self.inode(node)?;
        match inode.kind {
            Kind::File => self.open_inode(&inode, a.flags, a.kill_suidgid).await,
            Kind::Dir => Err(Error::IsDir),
            _ => Err(Error::Invalid),
        }
    }

    pub(crate) async fn open_inode(&self, inode: &Arc<Inode>, flags: i32, kill_suidgid: bool) -> Result<OpenReply> {
        let s = self.session().await?;
        // First the handle, so that the inode cannot go while it is being opened.
        s.meta.opened(inode.ino).await.map_err(|e| self.meta_error(&s, e))?;
        inode.state.lock().opens += 1;
        let id = self.add_handle(Handle::new(inode.clone(), flags, s.generation));
        let opened = async {
            let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
            if flags & libc::O_TRUNC != 0 {
                self.truncate(inode, 0, kill_suidgid).await?;
            }
            let mode = self.hold(inode, if writes { Use::Write } else { Use::Read }).await?;
            let handle = self.handle(id)?;
            let mut st = inode.state.lock();
            let shared = matches!(mode, Mode::Through(_)) || !st.lease.may_cache();
            let direct_io = shared || flags & libc::O_DIRECT != 0;
            if !direct_io {
                handle.set_cached();
                st.write_opens += handle.writable() as u32;
            }
            Ok(OpenReply { handle: id, direct_io, keep_cache: !shared, parallel_direct_writes: direct_io })
        };
        let opened = opened.await;
        if opened.is_err() {
            self.release(id);
        }
        opened
    }

    /// Gives a handle back. What it wrote stays, and is written in the background.
    pub fn release(&self, id: HandleId) {
        let Some((_, handle)) = self.handles.remove(&id.0) else { return };
        let inode = &handle.inode;
        let last = {
            let mut st = inode.state.lock();
            st.opens -= 1;
            st.write_opens -= (handle.is_cached() && handle.writable()) as u32;
            st.opens == 0
        };
        {
            // A session that came meanwhile does not count it, or has it closed by whoever brought that session in.
            let s = self.session.lock();
            if handle.is_counted_in(s.generation) {
                s.meta.closed(inode.ino);
            }
        }
        if last && inode.state.lock().lookups == 0 {
            self.reap(inode);
        }
    }

    /// Each close(2): reports a write error the handle has not reported. Makes nothing durable.
    pub async fn flush(&self, id: HandleId) -> Result<()> {
        self.metrics().vfs_ops.inc();
        self.handle(id)?.check()
    }

    pub async fn opendir(&self, node: NodeId) -> Result<OpenReply> {
        self.metrics().vfs_ops.inc();
        let inode = self.inode(node)?;
        if inode.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        let s = self.session().await?;
        s.meta.opened(inode.ino).await.map_err(|e| self.meta_error(&s, e))?;
        inode.state.lock().opens += 1;
        let handle = self.add_handle(Handle::new(inode, 0, s.generation));
        Ok(OpenReply { handle, direct_io: false, keep_cache: false, parallel_direct_writes: false })
    }

    pub fn releasedir(&self, id: HandleId) {
        self.release(id);
    }
}
