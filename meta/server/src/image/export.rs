//! Making an image of a running state, block by block.
//!
//! What always holds: every block is of the same commit; writers go on meanwhile.

use super::format::{Block, Head, staged_key};
use crate::state::{Snapshot, mark_plain_thread};
use bytes::Bytes;
use holdfast_meta_core::{KvRead, StateError, check};
use holdfast_objstore_proto::meta::Inline;
use std::ops::ControlFlow;

/// Rows of about so many bytes go into one block: few enough to hold in memory, enough to be worth a call.
const BLOCK_BYTES: usize = 1 << 20;

/// An image being made. Its calls block on the state's file: they belong on a thread that runs nothing else.
pub struct Export {
    head: Head,
    rows: Snapshot,
    /// Inline bytes that no pack has, in the end.
    staged: std::vec::IntoIter<Inline>,
    /// The key to go on at.
    from: Vec<u8>,
    number: u64,
    counted: u64,
    ended: bool,
}

impl Export {
    pub(crate) fn new(head: Head, rows: Snapshot, staged: Vec<Inline>) -> Self {
        Self { head, rows, staged: staged.into_iter(), from: Vec::new(), number: 0, counted: 0, ended: false }
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The first bytes of the image.
    pub fn start(&self) -> Vec<u8> {
        self.head.encode()
    }

    /// Rows handed out so far.
    pub fn rows(&self) -> u64 {
        self.counted
    }

    /// The next bytes of the image; `None` after its end.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, StateError> {
        if self.ended {
            return Ok(None);
        }
        mark_plain_thread();
        let mut block = Block::default();
        let mut range = self.rows.range(&self.from, &[0xff])?;
        while let Some(key) = range.key() {
            if block.bytes() >= BLOCK_BYTES {
                break;
            }
            block.push(key, range.value());
            self.counted += 1;
            self.from.clear();
            self.from.extend_from_slice(key);
            self.from.push(0);
            range.advance()?;
        }
        while block.bytes() < BLOCK_BYTES
            && let Some(inline) = self.staged.next()
        {
            block.push(&staged_key(inline.stripe), &inline.data);
        }
        self.ended = block.bytes() == 0;
        self.number += 1;
        Ok(Some(block.encode(self.number - 1)))
    }

    /// Reads all of it and says where it contradicts itself, a sentence each.
    pub fn check(&self) -> Vec<String> {
        mark_plain_thread();
        check(&Rows(&self.rows))
    }
}

/// A snapshot, for those who read keys.
pub(crate) struct Rows<'a>(pub &'a Snapshot);

impl KvRead for Rows<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        self.0.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError> {
        if from >= to {
            return Ok(());
        }
        let mut range = self.0.range(from, to)?;
        while let Some(key) = range.key() {
            if visit(key, range.value()).is_break() {
                break;
            }
            range.advance()?;
        }
        Ok(())
    }
}
