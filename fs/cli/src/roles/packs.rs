//! The packer's way to the object cluster, and what `status` says of it.

use bytes::Bytes;
use holdfast_meta_server::{PackStore, PackWrite, Room, Status};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_client::{Cluster, Objects, StripeWrite};
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::{Code, StripeMeta};
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;

pub struct Packs {
    pub objects: Arc<Cluster>,
    /// For what is left of a bucket that is gone.
    pub code: Code,
}

impl PackStore for Packs {
    fn write(&self, w: PackWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>, String>> {
        Box::pin(async move {
            let hint = Hint { bucket: w.bucket.0, ..Hint::default() };
            let PackWrite { id, code, data, session, epoch, .. } = w;
            let write = StripeWrite { id, code: code.unwrap_or(self.code), data, session, epoch, hint, background: true };
            let stripe = self.objects.write(write).await.map_err(|e| e.to_string())?;
            let stable = self.objects.flush(vec![stripe]).await.map_err(|e| e.to_string())?;
            stable.into_iter().next().ok_or_else(|| "a flush answered no stripe".to_string())
        })
    }

    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>, String>> {
        Box::pin(async move { self.objects.read(stripe, range).await.map_err(|e| e.to_string()) })
    }

    fn room(&self) -> Room {
        let space = self.objects.space(self.code);
        Room { total: space.total, free: space.free, own: space.free_own }
    }
}

/// Small writes that wait in the log and in memory, packs, and what is still to be packed or packed anew.
pub fn status(meta: &Status) -> Value {
    let s = &meta.stats;
    json!({
        "staged": s.staged, "staged_bytes": s.staged_bytes, "held_log_bytes": meta.held_bytes,
        "packs": s.packs, "pack_bytes": s.pack_bytes, "packed": s.packed, "packed_bytes": s.packed_bytes,
        "dead_bytes": s.pack_bytes.saturating_sub(s.packed_bytes), "sparse_packs": s.sparse, "dead_in_stripes": s.dead, "small_stripes": s.small,
    })
}
