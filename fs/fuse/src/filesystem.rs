//! The trait the bindings drive.

use crate::flags;
use crate::op::{NodeId, Op};
use crate::reply::Reply;
use holdfast_objstore_base::BoxFuture;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub uid: u32,
    pub gid: u32,
    /// Of the calling thread; 0 when it is in another namespace or the kernel itself asks.
    pub pid: u32,
    /// The request's number, as [`Filesystem::interrupted`] names it.
    pub unique: u64,
}

/// What the kernel said at INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelInfo {
    pub major: u32,
    pub minor: u32,
    /// Flags on offer, as in [`crate::flags`].
    pub flags: u64,
    /// Bytes.
    pub max_readahead: u32,
}

impl KernelInfo {
    /// Whether the kernel takes [`crate::Notify::inc_epoch`].
    pub fn supports_inc_epoch(&self) -> bool {
        (self.major, self.minor) >= (crate::wire::MAJOR, crate::wire::MINOR_INC_EPOCH)
    }
}

/// What the filesystem wants at INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitReply {
    /// Wanted flags; those not on offer are dropped.
    pub flags: u64,
    /// Time stamps are multiples of this many nanoseconds.
    pub time_gran_ns: u32,
}

impl Default for InitReply {
    fn default() -> Self {
        Self { flags: flags::WANTED, time_gran_ns: 1 }
    }
}

/// An answer, now or later.
pub enum Answer<'a> {
    Ready(Reply),
    Later(BoxFuture<'a, Reply>),
}

/// A node that the kernel forgets `lookups` lookups of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forget {
    pub node: NodeId,
    pub lookups: u64,
}

/// A filesystem, as a binding sees it. Called from the binding's threads: one for the `/dev/fuse` loop, several for `fuser`.
///
/// `handle` must be quick to return; what may wait goes into the future, which is first polled at once, on the same thread,
/// inside a tokio runtime. The future is dropped unfinished only when the mount ends.
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, before anything else, by whoever mounts.
    fn init(&self, _kernel: &KernelInfo) -> InitReply {
        InitReply::default()
    }

    /// Answers one operation.
    fn handle(&self, context: Context, op: Op) -> Answer<'_>;

    /// Lookup counts to take back; must not wait.
    fn forget(&self, _items: &[Forget]) {}

    /// The caller of this operation, still unanswered, has got a signal. It goes on waiting until it is answered; EINTR is fine.
    fn interrupted(&self, _unique: u64) {}

    /// The mount is over. Nothing follows.
    fn destroy(&self) {}
}
