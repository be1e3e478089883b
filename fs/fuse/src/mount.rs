//! Mounting with either binding, serving, and unmounting.
//!
//! What always holds: when [`mount`] returns, the kernel's INIT is answered and requests queue up until [`Mounted::run`] is awaited.
//! A mount whose [`Mounted`] or `run` future is dropped is aborted and taken out of the tree: nobody is left hanging on it.

use crate::dev::{self, Agreed, DevFd, InitError};
use crate::filesystem::Filesystem;
use crate::fuser;
use crate::mountpoint::{self, MountError, Unmounted};
use crate::notify::{self, Notifier};
use crate::options::{Binding, MountOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Loop(#[from] dev::LoopError),
    #[error("the fuser session failed: {0}")]
    Fuser(io::Error),
}

/// Takes the mount away when it goes, unless that has happened already.
struct Guard {
    path: PathBuf,
    gone: AtomicBool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.gone.load(Ordering::Acquire) {
            return;
        }
        match mountpoint::abort(&self.path) {
            Ok(()) => tracing::warn!(mountpoint = %self.path.display(), "mount aborted: nobody serves it any more"),
            Err(error) => tracing::error!(mountpoint = %self.path.display(), %error, "a mount that nobody serves could not be taken away"),
        }
    }
}

/// Unmounts; may be kept and used from anywhere.
#[derive(Clone)]
pub struct Unmounter(Arc<Guard>);

impl Unmounter {
    /// Unmounts and waits for it. While it lasts, [`Mounted::run`] must be polled: the kernel first writes back what it holds dirty.
    /// A mount in use is detached: it stays served until its last user is gone or `run` is dropped.
    pub async fn unmount(&self) -> io::Result<Unmounted> {
        let (tx, rx) = oneshot::channel();
        let this = self.clone();
        std::thread::Builder::new().name("fuse-umount".into()).spawn(move || {
            // Whoever asked may have stopped waiting.
            let _ = tx.send(this.unmount_blocking());
        })?;
        rx.await.unwrap_or_else(|_| Err(io::Error::other("the unmounting thread ended early")))
    }

    /// The same, blocking. Never call it on the thread that serves the mount.
    pub fn unmount_blocking(&self) -> io::Result<Unmounted> {
        if self.0.gone.load(Ordering::Acquire) {
            return Ok(Unmounted::Absent);
        }
        let how = mountpoint::unmount(&self.0.path)?;
        self.0.gone.store(true, Ordering::Release);
        tracing::info!(mountpoint = %self.0.path.display(), ?how, "unmounted");
        Ok(how)
    }
}

enum Live {
    Dev(dev::Loop),
    Fuser(fuser::Session),
}

/// A mount that waits to be served.
pub struct Mounted {
    live: Live,
    filesystem: Arc<dyn Filesystem>,
    notifier: Notifier,
    guard: Unmounter,
    /// Flags agreed at INIT.
    flags: u64,
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").field("path", &self.guard.0.path).field("transport", &self.transport()).finish_non_exhaustive()
    }
}

/// Mounts `filesystem` and agrees with the kernel. Clears away what a killed daemon of ours left at the mount point.
pub fn mount(options: &MountOptions, filesystem: Arc<dyn Filesystem>) -> Result<Mounted, MountError> {
    let path = mountpoint::prepare(&options.mountpoint)?;
    let mounted = match options.binding {
        Binding::Dev => mount_dev(options, &path, filesystem),
        Binding::Fuser => mount_fuser(options, &path, filesystem),
    }?;
    if let Err(error) = mountpoint::set_read_ahead(&path, options.read_ahead) {
        tracing::warn!(%error, "the kernel's read-ahead could not be set and stays at its default");
    }
    tracing::info!(mountpoint = %path.display(), transport = mounted.transport(), "mounted");
    Ok(mounted)
}

pub(crate) fn open_device(path: &Path, blocking: bool) -> Result<DevFd, MountError> {
    DevFd::open(blocking).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => MountError::NoDevice,
        Some(libc::EPERM | libc::EACCES) => MountError::NotPermitted(path.into()),
        _ => MountError::Io { path: path.into(), error },
    })
}

fn guard(path: &Path) -> Unmounter {
    Unmounter(Arc::new(Guard { path: path.into(), gone: AtomicBool::new(false) }))
}

fn mount_dev(o: &MountOptions, path: &Path, filesystem: Arc<dyn Filesystem>) -> Result<Mounted, MountError> {
    use std::os::fd::AsRawFd;
    let io = |error| MountError::Io { path: path.into(), error };
    let fd = open_device(path, false)?;
    mountpoint::mount(fd.as_raw_fd(), path, o)?;
    let guard = guard(path);
    let Agreed { kernel, flags, max_write } = dev::negotiate(&fd, &*filesystem, o).map_err(|e| match e {
        InitError::Old(k) => MountError::OldKernel { major: k.major, minor: k.minor },
        InitError::Io(error) => io(error),
    })?;
    let fd = Arc::new(fd);
    // Weak, so that the connection ends with the loop even while notifiers are kept.
    let weak = Arc::downgrade(&fd);
    let write = move |m: &notify::Message| match weak.upgrade() {
        Some(fd) => notify::with_bytes(m, |parts| fd.write(parts)),
        None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    };
    let notifier = Notifier::start(kernel.supports_inc_epoch(), Box::new(write)).map_err(io)?;
    let live = Live::Dev(dev::Loop { fd, filesystem: filesystem.clone(), max_write });
    Ok(Mounted { live, filesystem, notifier, guard, flags })
}

fn mount_fuser(o: &MountOptions, path: &Path, filesystem: Arc<dyn Filesystem>) -> Result<Mounted, MountError> {
    use std::os::fd::AsRawFd;
    let io = |error| MountError::Io { path: path.into(), error };
    let fd = open_device(path, true)?;
    mountpoint::mount(fd.as_raw_fd(), path, o)?;
    let guard = guard(path);
    let (session, flags) = fuser::Session::start(fd.into_owned(), filesystem.clone(), o).map_err(io)?;
    let notifier = Notifier::start(false, session.notify_writer()).map_err(io)?;
    Ok(Mounted { live: Live::Fuser(session), filesystem, notifier, guard, flags })
}

impl Mounted {
    /// Serves the mount until it is unmounted. Await it on the data thread, inside a tokio runtime with I/O and time enabled: the
    /// default binding does all its work in this future; `fuser` uses threads of its own and tasks of this runtime.
    pub fn run(self) -> impl Future<Output = Result<(), RunError>> + Send + 'static {
        let Mounted { live, filesystem, notifier: _, guard, flags: _ } = self;
        async move {
            let result = match live {
                Live::Dev(served) => served.run().await.map_err(RunError::from),
                Live::Fuser(session) => session.run().await.map_err(RunError::Fuser),
            };
            if result.is_ok() {
                guard.0.gone.store(true, Ordering::Release);
            }
            filesystem.destroy();
            result
        }
    }

    /// Tells the kernel to drop what it caches. Clones stay usable while the mount is served.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    pub fn unmounter(&self) -> Unmounter {
        self.guard.clone()
    }

    /// Which transport is live, for logs and reports.
    pub fn transport(&self) -> &'static str {
        match self.live {
            Live::Dev(_) => "/dev/fuse (own loop)",
            Live::Fuser(_) => "/dev/fuse (fuser)",
        }
    }

    /// The flags agreed at INIT, as in [`crate::flags`].
    pub fn flags(&self) -> u64 {
        self.flags
    }
}
