//! The default binding: our own loop on `/dev/fuse`.
//!
//! What it is: one future, to be awaited on the data thread, that waits for the device, reads what is there, calls the
//! filesystem and writes the replies. What always holds: exactly one waiter on the device (two cost 25–35 % at depth one);
//! requests that are there together are all read before the first is handled, so that each knows by
//! `base::exec::in_hand` whether it is alone; an answer that is ready is written at once, without a task; no request is
//! read twice, and each is answered once. What it leaves out: deadlines (the filesystem's), and FUSE over io_uring.

mod fd;
pub(crate) mod init;
mod pending;
mod recv;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use fd::DevFd;
pub(crate) use init::{Agreed, InitError, negotiate};
pub(crate) use serve::Loop;
pub use serve::LoopError;
