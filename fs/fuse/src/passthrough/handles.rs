//! Open files and directories.

use crate::op::Handle;
use holdfast_objstore_base::disk;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// An open file or directory of the backing tree.
pub struct Opened {
    pub fd: OwnedFd,
    /// The same file for the ring, when it was opened for direct I/O.
    pub ring: Option<Arc<dyn disk::File>>,
}

impl Opened {
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[derive(Default)]
struct Inner {
    slots: Vec<Option<Arc<Opened>>>,
    free: Vec<usize>,
}

#[derive(Default)]
pub struct Handles(Mutex<Inner>);

impl Handles {
    pub fn insert(&self, opened: Opened) -> Handle {
        let mut inner = self.0.lock();
        let value = Some(Arc::new(opened));
        match inner.free.pop() {
            Some(i) => {
                inner.slots[i] = value;
                Handle(i as u64)
            }
            None => {
                inner.slots.push(value);
                Handle(inner.slots.len() as u64 - 1)
            }
        }
    }

    pub fn get(&self, handle: Handle) -> io::Result<Arc<Opened>> {
        let inner = self.0.lock();
        let slot = inner.slots.get(handle.0 as usize);
        slot.cloned().flatten().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    pub fn remove(&self, handle: Handle) {
        let mut inner = self.0.lock();
        let index = handle.0 as usize;
        let gone = inner.slots.get_mut(index).and_then(Option::take);
        if gone.is_some() {
            inner.free.push(index);
        }
        // Closing may take a while: not under the lock.
        drop(inner);
        drop(gone);
    }
}
