//! Small writes that travel in their Publish, and their bytes kept with the map while no OSD has them.
//!
//! What always holds: bytes kept for reading are counted, over all inodes, until the last place that shows them is gone; what waits for its
//! Publish is bounded for each inode.
//! What it leaves out: when a write goes this way for good (the metadata service packs it).

use crate::inode::State;
use crate::session::Session;
use crate::types::Result;
use crate::vfs::Vfs;
use bytes::{Bytes, BytesMut};
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::stripe::INLINE_BYTES_MAX;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All bytes of a stripe that no OSD has.
#[derive(Debug, Clone)]
pub struct Inlined {
    pub data: Bytes,
    /// `None` while they wait for their Publish.
    _kept: Option<Arc<Kept>>,
}

impl Inlined {
    /// To be published.
    pub fn sent(data: Bytes) -> Self {
        Self { data, _kept: None }
    }

    pub fn slice(&self, range: Range<u32>) -> Bytes {
        self.data.slice(range.start as usize..range.end as usize)
    }
}

/// Counts bytes kept with maps.
#[derive(Debug, Clone, Default)]
pub struct Keeper(Arc<AtomicUsize>);

#[derive(Debug)]
struct Kept {
    bytes: usize,
    keeper: Keeper,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Keeper {
    pub fn keep(&self, data: Bytes) -> Inlined {
        self.0.fetch_add(data.len(), Ordering::Relaxed);
        let kept = Kept { bytes: data.len(), keeper: self.clone() };
        Inlined { data, _kept: Some(Arc::new(kept)) }
    }

    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Vfs {
    /// Whether `bytes` more of an inode may travel in its next Publish, so that this costs no flush but the log's: nothing else of it waits,
    /// and the service has room.
    pub(crate) fn may_inline(&self, s: &Session, st: &State, bytes: usize) -> bool {
        let few = |waiting: usize| waiting + bytes <= INLINE_BYTES_MAX;
        bytes > 0 && st.unpublished.in_flight() == 0 && st.unpublished.inline_bytes().is_some_and(few) && s.meta.inline_room(bytes)
    }

    /// A stripe of `data` that is to travel in a Publish.
    pub(crate) async fn inline_stripe(&self, s: &Session, data: &[Bytes]) -> Result<(Arc<StripeMeta>, Inlined)> {
        let id = s.ids.stripe().await.map_err(|e| self.meta_error(s, e))?;
        let data = match data {
            [one] => one.clone(),
            many => {
                let mut all = BytesMut::with_capacity(many.iter().map(Bytes::len).sum());
                many.iter().for_each(|d| all.extend_from_slice(d));
                self.metrics().vfs_copied.inc_by(all.len() as u64);
                all.freeze()
            }
        };
        self.metrics().vfs_inline.inc_by(data.len() as u64);
        Ok((Arc::new(StripeMeta::bare(id, data.len() as u32)), Inlined::sent(data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bytes_are_counted_until_the_last_clone_is_gone() {
        let keeper = Keeper::default();
        let a = keeper.keep(Bytes::from_static(b"twelve bytes"));
        let b = a.clone();
        assert_eq!(keeper.bytes(), 12);
        drop(a);
        assert_eq!((keeper.bytes(), &b.slice(7..12)[..]), (12, &b"bytes"[..]));
        drop(b);
        assert_eq!(keeper.bytes(), 0);
    }
}
