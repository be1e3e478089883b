//! Telling the kernel to drop what it caches.
//!
//! What it is: a bounded queue and a thread of its own that writes notifications to the device. What always holds: a notification may
//! wait inside the kernel for page or directory locks that a request in flight holds, so it is never written from the
//! thread that answers requests, and the writer holds no lock. Notifications are written in the order they were queued.
//! "Not cached" is success. What it leaves out: storing into and reading from the page cache.

use crate::op::NodeId;
use crate::wire::{InvalEntryOut, InvalInodeOut, OutHeader, notify};
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use std::io;
use tokio::sync::{mpsc, oneshot};
use zerocopy::IntoBytes;

/// Notifications that may be queued; who comes later waits.
const QUEUE_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotifyError {
    /// The mount is over: the kernel caches nothing of it any more.
    #[error("the mount is over")]
    Gone,
    /// This kernel does not know the notification.
    #[error("the kernel does not know this notification")]
    Unsupported,
    /// It was refused: what is cached may be stale.
    #[error("the kernel refused a notification: {}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

pub type NotifyResult = Result<(), NotifyError>;

/// The kernel's caches, as a filesystem invalidates them. A returned future ends when the kernel has done it; dropping
/// the future once it has been polled does not take the notification back. Must not be awaited by a request that the kernel holds
/// locks for: see the module.
pub trait Notify: Send + Sync + 'static {
    /// Drops the attributes of a node and its pages in `[offset, offset + len)`; `len` 0 reaches to the end, a negative `offset`
    /// drops attributes only. Pushes dirty pages of shared mappings to the filesystem first.
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> BoxFuture<'static, NotifyResult>;

    /// Drops a name. Takes the directory's lock.
    fn inval_entry(&self, parent: NodeId, name: Bytes) -> BoxFuture<'static, NotifyResult>;

    /// Makes every cached name of the mount be looked up again. Takes no directory lock.
    fn inc_epoch(&self) -> BoxFuture<'static, NotifyResult>;

    /// Whether `inc_epoch` works.
    fn supports_inc_epoch(&self) -> bool;
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Inode { node: NodeId, offset: i64, len: i64 },
    Entry { parent: NodeId, name: Bytes },
    Epoch,
}

/// How a binding writes one; called on the notifier's thread.
pub(crate) type Writer = Box<dyn FnMut(&Message) -> io::Result<()> + Send>;

type Queued = (Message, oneshot::Sender<NotifyResult>);

/// The real [`Notify`]. Its thread ends when all clones are gone, or when the mount is.
#[derive(Clone)]
pub struct Notifier {
    queue: mpsc::Sender<Queued>,
    inc_epoch: bool,
}

impl Notifier {
    pub(crate) fn start(inc_epoch: bool, mut write: Writer) -> io::Result<Self> {
        let (queue, mut rx) = mpsc::channel::<Queued>(QUEUE_MAX);
        std::thread::Builder::new().name("fuse-notify".into()).spawn(move || {
            while let Some((message, done)) = rx.blocking_recv() {
                let result = outcome(write(&message));
                let over = result == Err(NotifyError::Gone);
                // A receiver that has gone away wanted the deed, not the word.
                let _ = done.send(result);
                if over {
                    return;
                }
            }
        })?;
        Ok(Self { queue, inc_epoch })
    }

    fn send(&self, message: Message) -> BoxFuture<'static, NotifyResult> {
        let queue = self.queue.clone();
        Box::pin(async move {
            let (tx, rx) = oneshot::channel();
            queue.send((message, tx)).await.map_err(|_| NotifyError::Gone)?;
            rx.await.unwrap_or(Err(NotifyError::Gone))
        })
    }
}

impl Notify for Notifier {
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> BoxFuture<'static, NotifyResult> {
        self.send(Message::Inode { node, offset, len })
    }

    fn inval_entry(&self, parent: NodeId, name: Bytes) -> BoxFuture<'static, NotifyResult> {
        self.send(Message::Entry { parent, name })
    }

    fn inc_epoch(&self) -> BoxFuture<'static, NotifyResult> {
        if !self.inc_epoch {
            return Box::pin(std::future::ready(Err(NotifyError::Unsupported)));
        }
        self.send(Message::Epoch)
    }

    fn supports_inc_epoch(&self) -> bool {
        self.inc_epoch
    }
}

fn outcome(result: io::Result<()>) -> NotifyResult {
    let Err(e) = result else { return Ok(()) };
    match e.raw_os_error().unwrap_or(libc::EIO) {
        libc::ENOENT => Ok(()),
        libc::ENODEV | libc::ENOTCONN | libc::ECONNABORTED | libc::EBADF => Err(NotifyError::Gone),
        libc::ENOSYS | libc::EOPNOTSUPP => Err(NotifyError::Unsupported),
        errno => Err(NotifyError::Refused(errno)),
    }
}

/// Hands the runs of bytes of a notification to `write`.
pub(crate) fn with_bytes(message: &Message, write: impl FnOnce(&[io::IoSlice<'_>]) -> io::Result<()>) -> io::Result<()> {
    let head = |len: usize, code: i32| OutHeader { len: (16 + len) as u32, error: code, unique: 0 };
    match message {
        Message::Inode { node, offset, len } => {
            let body = InvalInodeOut { ino: node.0, off: *offset, len: *len };
            let h = head(24, notify::INVAL_INODE);
            write(&[io::IoSlice::new(h.as_bytes()), io::IoSlice::new(body.as_bytes())])
        }
        Message::Entry { parent, name } => {
            let body = InvalEntryOut { parent: parent.0, namelen: name.len() as u32, flags: 0 };
            let h = head(16 + name.len() + 1, notify::INVAL_ENTRY);
            write(&[io::IoSlice::new(h.as_bytes()), io::IoSlice::new(body.as_bytes()), io::IoSlice::new(name), io::IoSlice::new(&[0])])
        }
        Message::Epoch => write(&[io::IoSlice::new(head(0, notify::INC_EPOCH).as_bytes())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    fn rt() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn notifications_are_written_in_order_and_not_cached_is_success() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let n = Notifier::start(
            true,
            Box::new(move |m| {
                log.lock().push(m.clone());
                Err(io::Error::from_raw_os_error(libc::ENOENT))
            }),
        )
        .unwrap();
        rt().block_on(async {
            n.inval_inode(NodeId(5), -1, 0).await.unwrap();
            n.inval_entry(NodeId(1), Bytes::from_static(b"x")).await.unwrap();
            n.inc_epoch().await.unwrap();
        });
        let seen = seen.lock();
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[2], Message::Epoch);
    }

    #[test]
    fn the_end_of_the_mount_ends_the_notifier_and_every_waiter() {
        let n = Notifier::start(false, Box::new(|_| Err(io::Error::from_raw_os_error(libc::ENODEV)))).unwrap();
        rt().block_on(async {
            assert_eq!(n.inval_inode(NodeId(5), 0, 0).await, Err(NotifyError::Gone));
            assert_eq!(n.inval_inode(NodeId(5), 0, 0).await, Err(NotifyError::Gone));
            assert_eq!(n.inc_epoch().await, Err(NotifyError::Unsupported));
        });
    }
}
