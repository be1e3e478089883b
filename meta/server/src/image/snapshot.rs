//! Cutting a durable commit into the parts of a snapshot: of all rows, or of those that changed.
//!
//! What always holds: every part is of the same commit, whole for itself (head, blocks, end), and fits into a stripe.
//! What it leaves out: inline bytes, which the log keeps; where parts go.

use super::format::{Block, Head};
use crate::state::{Snapshot, mark_plain_thread};
use holdfast_meta_core::StateError;
use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;

/// Rows of about so many bytes go into one block.
const BLOCK_BYTES: usize = 256 << 10;
/// A block's head, and a row's.
const BLOCK_HEAD: usize = 20;
const ROW_HEAD: usize = 8;

/// A snapshot being cut. Its calls block on the state's file: they belong on a thread that runs nothing else.
pub(crate) struct Parts {
    head: Head,
    rows: Snapshot,
    what: What,
    made: u64,
}

enum What {
    /// All rows from a key on.
    All(Vec<u8>),
    Changed(std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>),
    Nothing,
}

/// One part on its way.
struct Part {
    bytes: Vec<u8>,
    block: Block,
    number: u64,
}

impl Part {
    /// Whether a row of so many bytes still fits, with the end.
    fn fits(&self, row: usize) -> bool {
        self.bytes.len() + self.block.bytes() + row + ROW_HEAD + 2 * BLOCK_HEAD <= STRIPE_BYTES_MAX as usize
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.block.push(key, value),
            None => self.block.push_removed(key),
        }
        if self.block.bytes() >= BLOCK_BYTES {
            self.seal();
        }
    }

    fn seal(&mut self) {
        self.bytes.extend(std::mem::take(&mut self.block).encode(self.number));
        self.number += 1;
    }

    fn end(mut self) -> Vec<u8> {
        if self.block.bytes() > 0 {
            self.seal();
        }
        self.seal();
        self.bytes
    }
}

fn too_large(key: &[u8]) -> StateError {
    StateError(format!("a row of the state does not fit into a stripe (its key begins with {:02x?})", &key[..key.len().min(8)]))
}

impl Parts {
    /// Of all rows.
    pub(crate) fn all(head: Head, rows: Snapshot) -> Self {
        Self { head, rows, what: What::All(Vec::new()), made: 0 }
    }

    /// Of the rows of these keys, as they are in the commit.
    pub(crate) fn changed(head: Head, rows: Snapshot, keys: Vec<Vec<u8>>) -> Self {
        Self { head, rows, what: What::Changed(keys.into_iter().peekable()), made: 0 }
    }

    /// The next part; `None` after the last. There is one at least, which says up to where the snapshot reaches.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, StateError> {
        mark_plain_thread();
        let mut part = Part { bytes: self.head.encode(), block: Block::default(), number: 0 };
        let empty = part.bytes.len();
        match &mut self.what {
            What::All(from) => {
                let mut range = self.rows.range(from, &[0xff])?;
                let mut more = false;
                while let Some(key) = range.key() {
                    if !part.fits(key.len() + range.value().len()) {
                        more = true;
                        *from = key.to_vec();
                        break;
                    }
                    part.push(key, Some(range.value()));
                    range.advance()?;
                }
                if !more {
                    drop(range);
                    self.what = What::Nothing;
                } else if part.bytes.len() == empty && part.block.bytes() == 0 {
                    return Err(too_large(from));
                }
            }
            What::Changed(keys) => {
                while let Some(key) = keys.peek() {
                    let value = self.rows.get(key)?;
                    if !part.fits(key.len() + value.as_ref().map_or(0, |v| v.len())) {
                        if part.bytes.len() == empty && part.block.bytes() == 0 {
                            return Err(too_large(key));
                        }
                        break;
                    }
                    part.push(key, value.as_deref());
                    keys.next();
                }
                if keys.peek().is_none() {
                    self.what = What::Nothing;
                }
            }
            What::Nothing if self.made > 0 => return Ok(None),
            What::Nothing => {}
        }
        self.made += 1;
        Ok(Some(part.end()))
    }
}
