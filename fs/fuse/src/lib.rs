//! The mount's kernel side: FUSE requests in, replies and cache invalidations out.
//!
//! What it is: our own operation and reply types, a trait a filesystem implements, and bindings that drive it: a loop of our own
//! on `/dev/fuse` (the default) and the `fuser` crate (the second, which keeps the seam honest). Two small filesystems
//! for the bench, [`null`] and [`passthrough`], show what the path costs by itself.
//! What always holds: every request is answered once; no input from the device can panic a decoder; a request in hand is
//! counted in `base::exec`; payload is not copied between the device and the filesystem, and is page-aligned.
//! What it leaves out: POSIX semantics (`fs/vfs`), locks (the kernel keeps them local unless a filesystem asks), FUSE over
//! io_uring. Only this crate knows a FUSE binding.

mod decode;
mod dev;
mod dirbuf;
mod encode;
mod filesystem;
mod fuser;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod mount;
mod mountpoint;
mod notify;
pub mod null;
pub mod op;
mod options;
pub mod passthrough;
mod pool;
pub mod reply;
mod vfs;
mod wire;

pub use dev::LoopError;
pub use dirbuf::{DirBuffer, DirPlusBuffer, Dirent};
pub use filesystem::{Answer, Context, Filesystem, Forget, InitReply, KernelInfo};
pub use mount::{Mounted, RunError, Unmounter, mount};
pub use mountpoint::{FS_TYPE, MountError, Unmounted, check_mountpoint};
pub use notify::{Notifier, Notify, NotifyError, NotifyResult};
pub use op::{Handle, NodeId, Op};
pub use options::{Binding, MAX_WRITE_RANGE, MountOptions, parse_options};
pub use reply::{Attr, Entry, Opened, Reply};
pub use vfs::VfsAdapter;
pub use wire::flags;
