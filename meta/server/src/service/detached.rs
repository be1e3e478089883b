//! A future that goes on when its caller loses interest.
//!
//! What always holds: a command that was begun is seen through to its answer, so that its marks, its number and what it
//! orphaned are looked after, also when the client went away meanwhile.
//! What it leaves out: bounds; a session's window of numbers bounds its commands.

use holdfast_objstore_base::BoxFuture;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

pub(crate) struct Detached<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    ready: Option<T>,
    runtime: Handle,
}

impl<T: Send + Unpin + 'static> Detached<T> {
    /// Begins `work` at once: what it does before its first wait is done in the order of these calls.
    pub(crate) fn begin(runtime: Handle, mut work: BoxFuture<'static, T>) -> Self {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Self { work: None, ready: Some(value), runtime },
            Poll::Pending => Self { work: Some(work), ready: None, runtime },
        }
    }
}

impl<T: Send + Unpin + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = self.ready.take() {
            return Poll::Ready(value);
        }
        let work = self.work.as_mut().expect("not polled after it is ready");
        let value = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(value)
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_goes_on_when_its_caller_lets_go() {
        let (go, gone) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let work = Detached::begin(
            Handle::current(),
            Box::pin(async move {
                let _ = gone.await;
                let _ = tell.send(7);
            }),
        );
        drop(work);
        go.send(()).expect("waited for");
        assert_eq!(told.await, Ok(7));
    }
}
