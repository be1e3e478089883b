//! The loop itself.

use super::fd::{DevFd, Wrote};
use super::pending::{Done, Pending};
use super::recv::{Got, Receiver};
use crate::decode::{Body, DecodeError, Request};
use crate::encode::Frame;
use crate::filesystem::{Answer, Context, Filesystem, Forget};
use crate::op::Op;
use crate::reply::Reply;
use holdfast_objstore_base::exec::InHand;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Requests read before the first of them is handled. More would only make the first one wait.
const BATCH_MAX: usize = 64;
/// Batches handled one after the other, without waiting, before the runtime gets a turn for its other tasks.
const ROUNDS_MAX: usize = 4;
/// The end of the mount is an error on the device, not something to read.
const WATCH: Interest = Interest::READABLE.add(Interest::ERROR);
/// How long answers still under way are waited for when the mount is over.
const DRAIN_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    #[error("/dev/fuse cannot be watched: {0}")]
    Watch(io::Error),
    #[error("reading from /dev/fuse failed: {0}")]
    Read(io::Error),
}

/// An initialised connection, ready to be served.
pub(crate) struct Loop {
    pub fd: Arc<DevFd>,
    pub filesystem: Arc<dyn Filesystem>,
    pub max_write: u32,
}

/// Lets `AsyncFd` watch a descriptor that is shared.
struct Watched(Arc<DevFd>);

impl std::os::fd::AsRawFd for Watched {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// What waits for its turn, in the order it was read.
enum Taken {
    Op(Context, Op, InHand),
    Forget(SmallVec<[Forget; 4]>),
    /// Of the request with this number.
    Interrupt(u64),
}

/// Whether the mount goes on.
#[derive(PartialEq, Eq)]
enum Mount {
    Live,
    Over,
}

impl Loop {
    /// Serves until the mount is over. Must run inside a tokio runtime with I/O enabled.
    pub async fn run(self) -> Result<(), LoopError> {
        let Loop { fd, filesystem, max_write } = self;
        // SAFETY: `Watched` holds the device open for as long as it is watched, and always names the same descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(Watched(fd.clone()), WATCH) }
            .map_err(|e| LoopError::Watch(io::Error::other(e.to_string())))?;
        let mut s = Serving {
            fd: &fd,
            filesystem: &*filesystem,
            receiver: Receiver::new(max_write),
            pending: Pending::new(),
            batch: Vec::with_capacity(BATCH_MAX),
        };
        let result = s.serve(&watched).await;
        let drained = tokio::time::timeout(DRAIN_MAX, poll_fn(|cx| s.drain(cx))).await;
        if drained.is_err() {
            tracing::warn!(requests = s.pending.len(), "the mount is over; requests that never ended are dropped");
        }
        result
    }
}

struct Serving<'a> {
    fd: &'a DevFd,
    filesystem: &'a dyn Filesystem,
    receiver: Receiver,
    pending: Pending<'a>,
    batch: Vec<Taken>,
}

impl Serving<'_> {
    /// Answers what is done, reads and handles what is there, until the mount is over.
    async fn serve(&mut self, watched: &AsyncFd<Watched>) -> Result<(), LoopError> {
        let mut rounds = 0;
        loop {
            let mut guard = {
                let mut ready = pin!(watched.ready(WATCH));
                poll_fn(|cx| {
                    let fd = self.fd;
                    self.pending.ready(cx, |done| answer(fd, done));
                    let poll = ready.as_mut().poll(cx);
                    rounds = if poll.is_pending() { 0 } else { rounds + 1 };
                    poll
                })
                .await
                .map_err(LoopError::Watch)?
            };
            if self.fill(&mut guard).map_err(LoopError::Read)? == Mount::Over {
                return Ok(());
            }
            drop(guard);
            self.handle_batch();
            if rounds >= ROUNDS_MAX {
                rounds = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads requests into the batch until there are no more or it is full.
    fn fill(&mut self, guard: &mut tokio::io::unix::AsyncFdReadyGuard<'_, Watched>) -> io::Result<Mount> {
        while self.batch.len() < BATCH_MAX {
            match self.receiver.next(self.fd) {
                Got::Request(request) => {
                    if self.take(request) == Mount::Over {
                        return Ok(Mount::Over);
                    }
                }
                Got::Again => {}
                Got::Empty => {
                    guard.clear_ready();
                    break;
                }
                Got::Ended => return Ok(Mount::Over),
                Got::Failed(e) => return Err(e),
            }
        }
        Ok(Mount::Live)
    }

    /// Sorts out one request: operations join the batch, the rest is done here.
    fn take(&mut self, request: Result<Request, DecodeError>) -> Mount {
        let Request { context, body } = match request {
            Ok(r) => r,
            Err(e) => {
                tracing::error!(error = %e, "malformed FUSE request");
                if let DecodeError::Malformed { unique, .. } = e {
                    send(self.fd, &Frame::error(unique, libc::EIO), unique);
                }
                return Mount::Live;
            }
        };
        match body {
            Body::Op(op, _) => self.batch.push(Taken::Op(context, op, InHand::new())),
            Body::Forget(items) => self.batch.push(Taken::Forget(items)),
            Body::Interrupt(unique) => self.batch.push(Taken::Interrupt(unique)),
            Body::Destroy => {
                send(self.fd, &Frame::new(context.unique, Reply::Empty), context.unique);
                return Mount::Over;
            }
            Body::Unknown(opcode) => {
                tracing::debug!(opcode, "FUSE operation that is not served");
                send(self.fd, &Frame::error(context.unique, libc::ENOSYS), context.unique);
            }
        }
        Mount::Live
    }

    fn handle_batch(&mut self) {
        for taken in self.batch.drain(..) {
            let (context, op, hand) = match taken {
                Taken::Op(context, op, hand) => (context, op, hand),
                Taken::Forget(items) => {
                    self.filesystem.forget(&items);
                    continue;
                }
                Taken::Interrupt(unique) => {
                    // Answered meanwhile, most likely: there is nothing to interrupt then.
                    if self.pending.contains(unique) {
                        self.filesystem.interrupted(unique);
                    }
                    continue;
                }
            };
            let unique = context.unique;
            let done = match self.filesystem.handle(context, op) {
                Answer::Ready(reply) => Some(Done { unique, reply, hand }),
                Answer::Later(future) => self.pending.start(unique, future, hand),
            };
            if let Some(done) = done {
                answer(self.fd, done);
            }
        }
    }

    /// Lets what is under way end, without answering anybody.
    fn drain(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        self.batch.clear();
        self.pending.ready(cx, drop);
        if self.pending.len() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn answer(fd: &DevFd, done: Done) {
    let Done { unique, reply, hand } = done;
    send(fd, &Frame::new(unique, reply), unique);
    drop(hand);
}

/// Sends a reply; one that the kernel refuses becomes EIO, so that nobody waits for ever.
fn send(fd: &DevFd, frame: &Frame, unique: u64) {
    if let Wrote::Refused(errno) = fd.send(frame) {
        let error = io::Error::from_raw_os_error(errno);
        tracing::error!(unique, bytes = frame.len(), %error, "the kernel refused a FUSE reply");
        fd.send(&Frame::error(unique, libc::EIO));
    }
}
