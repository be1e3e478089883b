//! Block-aligned memory, so that a payload goes from the kernel to a device without a copy.

use crate::units::BLOCK;
use bytes::Bytes;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// An owned, writable run of memory whose address and capacity are multiples of [`BLOCK`].
///
/// `len` is what `Deref` shows; the capacity is `len` rounded up to a block, and is all initialised.
pub struct AlignedBuf {
    ptr: std::ptr::NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: the memory is owned exclusively by this value, like a Vec's.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, BLOCK).expect("capacity fits isize")
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let capacity = len.div_ceil(BLOCK).max(1) * BLOCK;
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = std::ptr::NonNull::new(raw) else { handle_alloc_error(layout) };
        Self { ptr, len, capacity }
    }

    /// A copy of `data`; the padding up to the capacity is zero.
    pub fn copy_of(data: &[u8]) -> Self {
        let capacity = data.len().div_ceil(BLOCK).max(1) * BLOCK;
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc(layout) };
        let Some(ptr) = std::ptr::NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: `raw` is valid for `capacity` bytes and does not overlap `data`.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), raw, data.len());
            std::ptr::write_bytes(raw.add(data.len()), 0, capacity - data.len());
        }
        Self { ptr, len: data.len(), capacity }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shows `len` bytes; `len` must not exceed the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity);
        self.len = len;
    }

    /// The whole capacity, padding included.
    pub fn padded(&self) -> &[u8] {
        // SAFETY: `capacity` bytes are allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.capacity) }
    }

    pub fn padded_mut(&mut self) -> &mut [u8] {
        // SAFETY: `capacity` bytes are allocated, initialised and exclusively ours.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.capacity) }
    }

    /// Freezes into shared bytes without a copy; slices of it that start on a block stay aligned.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated by `alloc*` with this very layout.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.padded()[..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.padded_mut()[..len]
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Whether `data` may be handed to a direct-I/O call as it is: address and length are whole blocks.
pub fn is_aligned(data: &[u8]) -> bool {
    (data.as_ptr() as usize).is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_padded_with_zeroes_and_freeze_without_moving() {
        let b = AlignedBuf::copy_of(&[7u8; 5000]);
        assert_eq!((b.len(), b.capacity()), (5000, 8192));
        assert!(b.padded()[5000..].iter().all(|x| *x == 0));
        let p = b.as_ptr();
        let f = b.freeze();
        assert_eq!((f.as_ptr(), p as usize % BLOCK), (p, 0));
    }
}
