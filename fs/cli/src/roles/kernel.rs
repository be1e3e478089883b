//! Between a vfs and the kernel above it: the vfs is made before there is a mount, so its notifications go to whatever mount comes.

use bytes::Bytes;
use holdfast_fs_fuse::{Notifier, Notify, NotifyError};
use holdfast_fs_vfs::{KernelNotify, NodeId};
use holdfast_objstore_base::BoxFuture;
use std::sync::{Arc, OnceLock};

/// Before [`Kernel::attach`] there is no kernel that caches anything, so everything succeeds.
#[derive(Default, Clone)]
pub struct Kernel(Arc<OnceLock<Notifier>>);

impl Kernel {
    pub fn attach(&self, notifier: Notifier) {
        if self.0.set(notifier).is_err() {
            tracing::error!("a second mount was attached to one vfs");
        }
    }
}

/// A mount that is over caches nothing; what the kernel refuses is logged, for what it caches may then be stale.
fn done(what: &str, result: Result<(), NotifyError>) {
    if let Err(e) = result
        && e != NotifyError::Gone
    {
        tracing::warn!("{what}: {e}");
    }
}

impl KernelNotify for Kernel {
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> BoxFuture<'static, ()> {
        let sent = self.0.get().map(|n| n.inval_inode(holdfast_fs_fuse::NodeId(node.0), offset, len));
        Box::pin(async move {
            if let Some(s) = sent {
                done("invalidating an inode", s.await);
            }
        })
    }
    fn inval_entry(&self, parent: NodeId, name: Bytes) -> BoxFuture<'static, ()> {
        let sent = self.0.get().map(|n| n.inval_entry(holdfast_fs_fuse::NodeId(parent.0), name));
        Box::pin(async move {
            if let Some(s) = sent {
                done("invalidating a name", s.await);
            }
        })
    }
    fn inc_epoch(&self) -> BoxFuture<'static, bool> {
        let sent = self.0.get().map(|n| n.inc_epoch());
        Box::pin(async move {
            match sent {
                None => true,
                Some(s) => match s.await {
                    Err(NotifyError::Unsupported) => false,
                    other => {
                        done("raising the epoch", other);
                        true
                    }
                },
            }
        })
    }
}
