//! An operation that must be carried to its end whoever stops waiting for it.

use super::{Error, Result};
use holdfast_objstore_base::BoxFuture;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Runs where it is polled; dropped half way, it goes on in a task of its own.
pub(super) struct Detach<T: Send + 'static>(Option<BoxFuture<'static, Result<T>>>);

impl<T: Send + 'static> Detach<T> {
    pub fn new(work: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Detach<T> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.0.as_mut() else {
            return Poll::Ready(Err(Error::Bug("polled after its end".into())));
        };
        let answer = std::task::ready!(work.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(answer)
    }
}

impl<T: Send + 'static> Drop for Detach<T> {
    fn drop(&mut self) {
        // Without a runtime the work is dropped instead, and its own guard takes the log out of service.
        if let (Some(work), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}
