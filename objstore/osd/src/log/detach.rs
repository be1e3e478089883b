//! An operation that must be carried to its end whoever stops waiting for it.
//!
//! What always holds: dropped half way, it goes on in the runtime the log was opened in, not in the one of whoever dropped it: that one may
//! be ending. What it leaves out: a log whose own runtime ends; the operation's guard then takes it out of service.

use super::{Error, Result};
use holdfast_objstore_base::BoxFuture;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Runs where it is polled; dropped half way, it goes on in a task of its own.
pub(super) struct Detach<T: Send + 'static> {
    work: Option<BoxFuture<'static, Result<T>>>,
    runtime: Handle,
}

impl<T: Send + 'static> Detach<T> {
    pub fn new(runtime: &Handle, work: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), runtime: runtime.clone() }
    }
}

impl<T: Send + 'static> Future for Detach<T> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.work.as_mut() else {
            return Poll::Ready(Err(Error::Bug("polled after its end".into())));
        };
        let answer = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(answer)
    }
}

impl<T: Send + 'static> Drop for Detach<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}
