//! Rebuilding the index at a start.

use super::index::{Entry, Index};
use super::record::{self, KIND_COPY, KIND_DELETE, KIND_DROP, KIND_FENCE, KIND_SHARD};
use super::snapshot;
use crate::log::{Recovered, Visitor};
use bytes::Bytes;
use holdfast_objstore_proto::shard::TASK_SESSION;

/// Applies what the log holds, in order.
#[derive(Default)]
pub(super) struct Replay {
    pub index: Index,
    /// Bytes of the records read, with their headers.
    pub bytes: u64,
    /// Records that are none of an OSD's, though their checksums agree.
    pub unknown: u64,
}

impl Visitor for Replay {
    fn checkpoint(&mut self, _from_seq: u64, bytes: Bytes) -> Result<(), String> {
        self.index = snapshot::decode(&bytes).map_err(|bad| format!("the checkpoint of the index: {bad}"))?;
        Ok(())
    }

    fn record(&mut self, r: Recovered<'_>) -> Result<(), String> {
        self.bytes += r.location.stored_bytes();
        let at = r.location.position;
        match r.kind {
            KIND_SHARD | KIND_COPY => match (record::decode_shard(r.meta), Entry::new(&r.location)) {
                (Ok(head), Some(entry)) if r.kind == KIND_COPY || head.session == TASK_SESSION || !self.index.fenced(head.key.stripe) => {
                    self.index.insert(head.key.into(), entry);
                }
                (Ok(_), Some(_)) => {}
                _ => self.unknown += 1,
            },
            KIND_DELETE => match record::decode_delete(r.meta) {
                Ok(stripes) => stripes.into_iter().for_each(|s| self.index.delete(s, at)),
                Err(_) => self.unknown += 1,
            },
            KIND_DROP => match record::decode_drop(r.meta) {
                Ok(keys) => keys.into_iter().for_each(|k| self.index.drop_shard(k.into(), at)),
                Err(_) => self.unknown += 1,
            },
            KIND_FENCE => match record::decode_fence(r.meta) {
                Ok(range) => self.index.fence(range, at),
                Err(_) => self.unknown += 1,
            },
            _ => self.unknown += 1,
        }
        Ok(())
    }
}
