//! A bounds-checked reader over one request.

use bytes::Bytes;
use std::ops::Range;
use zerocopy::FromBytes;

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next structure, copied out (so alignment does not matter).
    pub fn take<T: FromBytes>(&mut self) -> Result<T, &'static str> {
        let (value, _) = T::read_from_prefix(&self.bytes[self.at..]).map_err(|_| "it ends too early")?;
        self.at += size_of::<T>();
        Ok(value)
    }

    /// Takes `len` bytes off the end of what is to be read.
    pub fn drop_tail(&mut self, len: usize) -> Result<(), &'static str> {
        if len > self.left() {
            return Err("its extensions are longer than it is");
        }
        self.bytes = &self.bytes[..self.bytes.len() - len];
        Ok(())
    }

    /// The next string, up to its zero byte; never empty.
    fn text(&mut self) -> Result<&'a [u8], &'static str> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| *b == 0).ok_or("a string has no end")?;
        if end == 0 {
            return Err("a string is empty");
        }
        self.at += end + 1;
        Ok(&rest[..end])
    }

    /// The next string, as something to keep.
    pub fn string(&mut self) -> Result<Bytes, &'static str> {
        Ok(Bytes::copy_from_slice(self.text()?))
    }

    /// The next string, which must be a file name.
    pub fn name(&mut self) -> Result<Bytes, &'static str> {
        let name = self.text()?;
        if name.contains(&b'/') {
            return Err("a name holds a slash");
        }
        Ok(Bytes::copy_from_slice(name))
    }

    /// The place of the next `len` bytes in the request.
    pub fn range(&mut self, len: usize) -> Result<Range<usize>, &'static str> {
        if len > self.left() {
            return Err("its payload is shorter than it says");
        }
        let range = self.at..self.at + len;
        self.at += len;
        Ok(range)
    }

    /// The next `len` bytes, copied.
    pub fn copy(&mut self, len: usize) -> Result<Bytes, &'static str> {
        let range = self.range(len)?;
        Ok(Bytes::copy_from_slice(&self.bytes[range]))
    }
}
