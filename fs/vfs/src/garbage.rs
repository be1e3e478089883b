//! Stripes that no map refers to and no Publish will name: deleted in the background.
//!
//! What always holds: only a stripe that was never named, or whose naming was refused for good, comes here; its readers have a while to finish.
//! What it leaves out: shards of writes that were dropped half way, and what does not fit here: reconciliation finds those.

use crate::vfs::Vfs;
use holdfast_objstore_proto::StripeMeta;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::Instant;

/// Stripes waiting at most.
const STRIPES_MAX: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Garbage {
    queue: VecDeque<(Instant, Vec<Arc<StripeMeta>>)>,
    stripes: usize,
}

/// Stripes that are written and not named yet: dropped, they are garbage.
pub(crate) struct Unnamed<'a> {
    pub vfs: &'a Vfs,
    pub stripes: Vec<Arc<StripeMeta>>,
}

impl Unnamed<'_> {
    /// A command that names them is on its way: what becomes of it may stay unknown.
    pub fn named(&mut self) -> Vec<Arc<StripeMeta>> {
        std::mem::take(&mut self.stripes)
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        self.vfs.bury(self.named());
    }
}

impl Vfs {
    /// Deletes stripes after the grace. Never blocks.
    pub(crate) fn bury(&self, mut stripes: Vec<Arc<StripeMeta>>) {
        // What never had shards leaves none.
        stripes.retain(|s| !s.is_bare());
        if stripes.is_empty() {
            return;
        }
        self.metrics().vfs_stripes_superseded.inc_by(stripes.len() as u64);
        let due = Instant::now() + self.config.delete_grace;
        {
            let mut garbage = self.garbage.lock();
            if garbage.stripes + stripes.len() > STRIPES_MAX {
                tracing::warn!(stripes = stripes.len(), "too much garbage at once: left to reconciliation");
                return;
            }
            garbage.stripes += stripes.len();
            garbage.queue.push_back((due, stripes));
        }
        let me = self.me.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep_until(due).await;
            if let Some(me) = me.upgrade() {
                me.delete_buried(false).await;
            }
        });
    }

    /// Deletes what is due, or all. A failure leaves garbage that reconciliation finds.
    pub(crate) async fn delete_buried(&self, all: bool) {
        let mut batch = Vec::new();
        {
            let mut garbage = self.garbage.lock();
            let now = Instant::now();
            while let Some((_, stripes)) = garbage.queue.pop_front_if(|(due, _)| all || *due <= now) {
                garbage.stripes -= stripes.len();
                batch.extend(stripes);
            }
        }
        if batch.is_empty() {
            return;
        }
        if let Err(e) = self.objects.delete(batch).await {
            tracing::warn!(error = %e, "superseded stripes are not deleted");
        }
    }
}
