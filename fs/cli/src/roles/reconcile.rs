//! Deletes shards that nothing refers to: what was written and never published before a crash, what a delete missed.
//!
//! What always holds: a shard is deleted only when metadata, asked after the shard was seen, says that no map refers to its
//! stripe and that no living session may still publish it. One pass after each start, page by page, in the background.

use holdfast_meta_client::Meta;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::shard::ShardService;
use std::sync::Arc;

/// Shards looked at in one step; between steps other work runs.
const PAGE: usize = 512;

pub async fn pass(osds: Vec<Arc<dyn ShardService>>, meta: Arc<dyn Meta>) -> anyhow::Result<u64> {
    let mut deleted = 0;
    for osd in osds {
        let mut after = None;
        loop {
            let page = osd.list(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(*last);
            let mut ids: Vec<StripeId> = page.iter().map(|k| k.stripe).collect();
            ids.dedup();
            let live = meta.stripes_live(ids.clone()).await?;
            let dead: Vec<StripeId> = ids.into_iter().zip(live).filter(|(_, l)| !l).map(|(id, _)| id).collect();
            if !dead.is_empty() {
                deleted += dead.len() as u64;
                osd.delete(dead).await?;
            }
            tokio::task::yield_now().await;
        }
        osd.flush().await?;
    }
    Ok(deleted)
}
