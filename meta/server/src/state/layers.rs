//! Three layers seen as one ordered map: the active overlay over the sealed one over the durable rows.
//!
//! What always holds: a key is answered by the topmost layer that knows it. Scans merge lazily: no layer's range is collected.
//! What it leaves out: who may look when (`state`).

use super::overlay::{Overlay, Rows};
use super::staging::Staging;
use super::store::{Mark, Snapshot, SnapshotRange};
use bytes::Bytes;
use holdfast_meta_core::read::{self, Gathered, PackBounds, StagedBytes};
use holdfast_meta_core::{Kv, KvRead, StateError};
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::meta::MetaResult;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Layers {
    pub(super) active: Overlay,
    /// Being folded into the durable rows.
    pub(super) sealed: Option<Arc<Overlay>>,
    /// `None`: nothing was ever folded, or the state lives in memory only.
    pub(super) durable: Option<Snapshot>,
    pub(super) mark: Mark,
    /// Bytes of the stripes that the rows list as staged.
    pub(super) staging: Staging,
    /// Raised by every batch, also one without commands (its tail changes).
    pub(super) generation: u64,
}

impl Layers {
    /// Inline bytes of a stripe that is staged.
    pub(crate) fn staged(&self, id: StripeId) -> Option<StagedBytes> {
        match self.staging.get(id) {
            Some(bytes) => Some(StagedBytes::Kept(bytes)),
            None => self.staging.is_lost(id).then_some(StagedBytes::Lost),
        }
    }

    /// The oldest staged stripes of one bucket that can be packed.
    pub(crate) fn gather_staged(&self, bounds: PackBounds) -> Result<MetaResult<Option<Gathered>>, StateError> {
        let Some(oldest) = self.staging.hold() else { return Ok(Ok(None)) };
        read::gather_staged_from(self, bounds, oldest, &|id| self.staging.is_lost(id))
    }

    pub(super) fn overlay_bytes(&self) -> usize {
        self.active.bytes() + self.sealed.as_ref().map_or(0, |s| s.bytes())
    }
}

impl KvRead for Layers {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        if let Some(v) = self.active.get(key) {
            return Ok(v.clone());
        }
        if let Some(v) = self.sealed.as_ref().and_then(|s| s.get(key)) {
            return Ok(v.clone());
        }
        match &self.durable {
            Some(d) => d.get(key),
            None => Ok(None),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError> {
        if from >= to {
            return Ok(());
        }
        let mut overlays = [Some(self.active.range(from, to).peekable()), self.sealed.as_ref().map(|s| s.range(from, to).peekable())];
        let mut rows = self.durable.as_ref().map(|d| d.range(from, to)).transpose()?;
        loop {
            // The smallest key of the three heads, and the topmost layer that has it.
            let mut least: Option<&[u8]> = rows.as_ref().and_then(SnapshotRange::key);
            let mut top = 2;
            for i in [1, 0] {
                let Some(k) = overlays[i].as_mut().and_then(|o| o.peek().map(|(k, _)| k.as_slice())) else { continue };
                if least.is_none_or(|l| k <= l) {
                    (least, top) = (Some(k), i);
                }
            }
            let Some(key) = least else { return Ok(()) };
            if let (2, Some(durable)) = (top, &rows)
                && visit(key, durable.value()).is_break()
            {
                return Ok(());
            }
            if let (2, Some(durable)) = (top, &mut rows) {
                durable.advance()?;
                continue;
            }
            let (key, value) = overlays[top].as_mut().and_then(Iterator::next).expect("the head was peeked");
            for lower in overlays.iter_mut().skip(top + 1).flatten() {
                skip(lower, key);
            }
            if let Some(rows) = rows.as_mut().filter(|r| r.key() == Some(key)) {
                rows.advance()?;
            }
            if let Some(v) = value
                && visit(key, v).is_break()
            {
                return Ok(());
            }
        }
    }
}

/// Drops the head of `rows` when it is `key`: a layer above has answered it.
fn skip(rows: &mut Peekable<Rows<'_>>, key: &[u8]) {
    rows.next_if(|(k, _)| k.as_slice() == key);
}

impl Kv for Layers {
    fn put(&mut self, key: &[u8], value: Bytes) {
        self.active.set(key, Some(value));
    }
    fn delete(&mut self, key: &[u8]) {
        if self.sealed.is_none() && self.durable.is_none() {
            // With nothing below there is nothing to hide.
            self.active.forget(key);
        } else {
            self.active.set(key, None);
        }
    }
}
