//! The nodes the kernel knows, each with an `O_PATH` descriptor.

use super::{VALID, sys};
use crate::filesystem::Forget;
use crate::op::NodeId;
use crate::reply::Entry;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

struct Node {
    fd: Arc<OwnedFd>,
    key: (u64, u64),
    lookups: u64,
}

struct Inner {
    nodes: HashMap<u64, Node>,
    /// (device, inode) to node.
    by_key: HashMap<(u64, u64), u64>,
    next: u64,
}

pub struct Nodes(Mutex<Inner>);

impl Nodes {
    pub fn new(root: OwnedFd) -> io::Result<Self> {
        let st = sys::stat(root.as_raw_fd())?;
        let key = (st.st_dev, st.st_ino);
        let node = Node { fd: Arc::new(root), key, lookups: 1 };
        Ok(Self(Mutex::new(Inner { nodes: HashMap::from([(1, node)]), by_key: HashMap::from([(key, 1)]), next: 2 })))
    }

    pub fn fd(&self, node: NodeId) -> io::Result<Arc<OwnedFd>> {
        let inner = self.0.lock();
        inner.nodes.get(&node.0).map(|n| n.fd.clone()).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    /// Looks a name up; counts as one lookup of the node it gives.
    pub fn find(&self, parent: NodeId, name: &[u8]) -> io::Result<Entry> {
        let dir = self.fd(parent)?;
        let fd = sys::open_at(dir.as_raw_fd(), &sys::name(name)?, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        self.adopt(fd)
    }

    /// Makes an `O_PATH` descriptor a node, or drops it when its file is one already; counts as one lookup.
    pub fn adopt(&self, fd: OwnedFd) -> io::Result<Entry> {
        let st = sys::stat(fd.as_raw_fd())?;
        let key = (st.st_dev, st.st_ino);
        let inner = &mut *self.0.lock();
        let id = *inner.by_key.entry(key).or_insert_with(|| {
            inner.next += 1;
            inner.next - 1
        });
        let node = inner.nodes.entry(id).or_insert_with(|| Node { fd: Arc::new(fd), key, lookups: 0 });
        node.lookups += 1;
        Ok(Entry { node: NodeId(id), generation: 0, entry_valid: VALID, attr_valid: VALID, attr: sys::attr(&st) })
    }

    pub fn forget(&self, items: &[Forget]) {
        let mut inner = self.0.lock();
        for f in items {
            let Some(n) = inner.nodes.get_mut(&f.node.0) else { continue };
            n.lookups = n.lookups.saturating_sub(f.lookups);
            if n.lookups == 0 && f.node != NodeId::ROOT {
                let key = n.key;
                inner.nodes.remove(&f.node.0);
                inner.by_key.remove(&key);
            }
        }
    }
}
