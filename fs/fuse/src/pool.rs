//! Aligned buffers that go round: lent out as [`Bytes`], back in the pool when the last slice is dropped.
//!
//! What always holds: at most `lent_max` buffers are out at once, and at most `kept_max` lie unused. Whoever gets none
//! copies instead, so the pool is never waited on.

use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Pool {
    free: Mutex<Vec<AlignedBuf>>,
    lent: AtomicUsize,
    bytes: usize,
    lent_max: usize,
    kept_max: usize,
}

impl Pool {
    /// Buffers of `bytes` each.
    pub fn new(bytes: usize, lent_max: usize, kept_max: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(Vec::new()), lent: AtomicUsize::new(0), bytes, lent_max, kept_max })
    }

    /// A buffer of the pool's size, with whatever bytes were last in it; `None` when too many are out.
    pub fn take(self: &Arc<Self>) -> Option<Lent> {
        if self.lent.fetch_add(1, Ordering::Relaxed) >= self.lent_max {
            self.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let free = self.free.lock().pop();
        let mut buf = free.unwrap_or_else(|| AlignedBuf::zeroed(self.bytes));
        buf.set_len(self.bytes);
        Some(Lent { buf: Some(buf), pool: self.clone() })
    }

    /// Buffers out now.
    #[cfg(test)]
    fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }
}

impl Lent {
    /// The buffer itself, to be moved through a call that hands it back to [`Lent::put_back`].
    pub fn take_out(&mut self) -> AlignedBuf {
        self.buf.take().expect(HELD)
    }

    pub fn put_back(&mut self, buf: AlignedBuf) {
        self.buf = Some(buf);
    }
}

/// A buffer on loan. If it was taken out and never put back, its place in the pool is free again all the same.
pub struct Lent {
    /// `None` only while it is taken out, or being given back.
    buf: Option<AlignedBuf>,
    pool: Arc<Pool>,
}

const HELD: &str = "a lent buffer is held until it is dropped";

impl Lent {
    /// As shared bytes; the loan ends with the last clone.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.lent.fetch_sub(1, Ordering::Relaxed);
        if let Some(buf) = self.buf.take() {
            let mut free = self.pool.free.lock();
            if free.len() < self.pool.kept_max {
                free.push(buf);
            }
        }
    }
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buf.as_ref().expect(HELD)
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.as_mut().expect(HELD)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round_and_the_pool_never_lends_more_than_it_may() {
        let p = Pool::new(8192, 2, 1);
        let mut a = p.take().expect("first");
        a[0] = 7;
        let at = a.as_ptr();
        let b = p.take().expect("second");
        assert!(p.take().is_none());
        let bytes = a.freeze();
        let tail = bytes.slice(4096..);
        drop(bytes);
        assert_eq!(p.lent(), 2, "a slice keeps the buffer");
        drop(tail);
        drop(b);
        assert_eq!((p.lent(), p.free.lock().len()), (0, 1));
        assert_eq!(p.take().expect("again").as_ptr(), at);
    }
}
