//! The second binding: the `fuser` crate.
//!
//! What it is: fuser's callbacks turned into [`Op`]s and our [`crate::Reply`]s into its replies. It keeps the seam honest and is the
//! comparison. What always holds: a callback polls its operation once on fuser's worker; one that has to wait moves to a
//! task of the runtime that awaits [`Session::run`], and frees the worker. What it leaves out, because fuser hides it: lock kinds,
//! interrupts, kill-suid flags (so HANDLE_KILLPRIV_V2 is not asked for), the epoch notification, cached absent names,
//! zero-copy payloads.

mod calls;
mod replies;

use crate::filesystem::{Answer, Context, Filesystem, KernelInfo};
use crate::flags;
use crate::notify::{Message, Writer};
use crate::op::Op;
use crate::options::MountOptions;
use ::fuser as lib;
use holdfast_objstore_base::exec::InHand;
use replies::Answered;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::task::{self, Waker};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Flags whose arguments fuser does not hand on.
const HIDDEN: u64 = flags::HANDLE_KILLPRIV_V2;

/// What fuser calls.
struct Adapter {
    filesystem: Arc<dyn Filesystem>,
    /// Set before fuser's threads start.
    runtime: Arc<OnceLock<Handle>>,
    agreed: Arc<OnceLock<u64>>,
    max_write: u32,
    max_background: u16,
}

impl Adapter {
    fn init(&self, config: &mut lib::KernelConfig) {
        let lib::Version(major, minor) = config.kernel_abi();
        let kernel = KernelInfo { major, minor, flags: config.capabilities().bits(), max_readahead: 0 };
        let want = self.filesystem.init(&kernel).flags & kernel.flags & !HIDDEN & !flags::INIT_EXT;
        // All are on offer, so none of these can be refused; limits beyond fuser's are clamped by it.
        let _ = config.add_capabilities(lib::InitFlags::from_bits_retain(want));
        let _ = config.set_max_write(self.max_write);
        let _ = config.set_max_background(self.max_background);
        let _ = self.agreed.set(want);
    }

    /// Polls the operation here; lets a task end it if it has to wait.
    fn drive<R: Answered>(&self, request: &lib::Request, op: Op, reply: R) {
        let context = Context { uid: request.uid(), gid: request.gid(), pid: request.pid(), unique: request.unique().0 };
        let Some(runtime) = self.runtime.get() else { return reply.answer(crate::Reply::Err(libc::EIO)) };
        let filesystem = self.filesystem.clone();
        let mut work = Box::pin(async move {
            let answer = match filesystem.handle(context, op) {
                Answer::Ready(r) => r,
                Answer::Later(f) => f.await,
            };
            reply.answer(answer);
        });
        let _inside = runtime.enter();
        let hand = InHand::new();
        // Polled again by the task at once, so this waker is never missed.
        let first = work.as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
        drop(hand);
        if first.is_pending() {
            runtime.spawn(work);
        }
    }
}

/// An initialised connection, ready to be served.
pub(crate) struct Session {
    session: lib::Session<Adapter>,
    runtime: Arc<OnceLock<Handle>>,
}

impl Session {
    /// Agrees with the kernel over an opened and mounted (blocking) device. Also the flags agreed.
    pub fn start(fd: OwnedFd, filesystem: Arc<dyn Filesystem>, o: &MountOptions) -> io::Result<(Self, u64)> {
        let (runtime, agreed) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let adapter = Adapter {
            filesystem,
            runtime: runtime.clone(),
            agreed: agreed.clone(),
            max_write: o.max_write,
            max_background: o.max_background,
        };
        let mut config = lib::Config::default();
        config.n_threads = Some(usize::from(o.threads.max(1)));
        let session = lib::Session::from_fd(adapter, fd, lib::SessionACL::All, config)?;
        let flags = agreed.get().copied().unwrap_or(0);
        Ok((Self { session, runtime }, flags))
    }

    pub fn notify_writer(&self) -> Writer {
        let n = self.session.notifier();
        Box::new(move |m| match m {
            Message::Inode { node, offset, len } => n.inval_inode(lib::INodeNo(node.0), *offset, *len),
            Message::Entry { parent, name } => n.inval_entry(lib::INodeNo(parent.0), OsStr::from_bytes(name)),
            Message::Epoch => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        })
    }

    /// Serves on fuser's threads until the mount is over.
    pub async fn run(self) -> io::Result<()> {
        let Session { session, runtime } = self;
        // Set once: a session runs once.
        let _ = runtime.set(Handle::current());
        let (tx, rx) = oneshot::channel();
        std::thread::Builder::new().name("fuser".into()).spawn(move || {
            // Whoever ran it may have stopped waiting; the mount is aborted then.
            let _ = tx.send(session.run());
        })?;
        rx.await.unwrap_or_else(|_| Err(io::Error::other("its threads ended early")))
    }
}
