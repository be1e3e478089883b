//! A value that tasks wait for, and who waits is woken in the order in which he came.
//!
//! What always holds: whoever asked for a change before it was made is woken by it.
//! What it leaves out: a history; who looks late sees the newest value only. (tokio's `watch` spreads its waiters over several queues
//! at random, so that two runs of one simulation would part.)

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug, Default)]
pub struct Told<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Told<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    /// Changes the value and wakes everyone who waits.
    pub fn tell<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock());
        self.changed.notify_waiters();
        result
    }

    /// The value now.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.value.lock().clone()
    }

    /// Completes with the next change after this call. Take it first, then look, then wait.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until `look` finds something.
    pub async fn until<R>(&self, mut look: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            let changed = self.changed();
            if let Some(found) = look(&self.value.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn those_who_wait_hear_in_the_order_they_came() {
        let told = Told::new(0);
        let heard = Mutex::new(Vec::new());
        let mut all: Vec<_> = (0..5)
            .map(|n| {
                let (told, heard) = (&told, &heard);
                Box::pin(async move {
                    told.until(|v| (*v == 7).then_some(())).await;
                    heard.lock().push(n);
                })
            })
            .collect();
        assert!(all.iter_mut().all(|w| w.as_mut().now_or_never().is_none()));
        told.tell(|v| *v = 6);
        assert!(all.iter_mut().all(|w| w.as_mut().now_or_never().is_none()));
        told.tell(|v| *v = 7);
        all.iter_mut().for_each(|w| assert!(w.as_mut().now_or_never().is_some()));
        assert_eq!((told.get(), &*heard.lock()), (7, &vec![0, 1, 2, 3, 4]));
    }
}
