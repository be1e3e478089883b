//! Space comes back: when nothing refers to anything any more, the OSDs hold nothing.

use crate::cluster::Running;
use holdfast_meta_client::Meta;
use holdfast_objstore_proto::meta::Command;
use holdfast_objstore_proto::shard::ShardService;

/// What still holds something though every file is gone; `None`: nothing does.
pub fn held(running: &Running) -> Option<String> {
    let status = running.service.status();
    // The bucket's root and the clients' folder.
    if status.stats.inodes > 2 || status.stats.stripes > 0 || status.orphans_queued > 0 {
        return Some(format!("metadata holds {:?}, {} orphans queued", status.stats, status.orphans_queued));
    }
    let holding = running.osds.iter().filter(|o| o.failure().is_none() && o.shards() > 0);
    let held: Vec<String> = holding.map(|o| format!("{} holds {} shards", o.osd(), o.shards())).collect();
    (!held.is_empty()).then(|| held.join(", "))
}

/// Gives up the uploads that nobody will complete any more.
pub async fn give_up_uploads(meta: &dyn Meta) -> Result<(), String> {
    for bucket in meta.buckets().await.map_err(|e| e.to_string())? {
        for u in meta.uploads(bucket.id, Default::default(), None, 1000).await.map_err(|e| e.to_string())? {
            let command = Command::AbortUpload { bucket: bucket.id, upload: u.id };
            meta.submit(command).await.map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Deletes what nothing refers to, as the pass after each start does.
pub async fn reconcile(running: &Running, meta: &dyn Meta) -> Result<(), String> {
    for osd in running.osds.iter().filter(|o| o.failure().is_none()) {
        let mut after = None;
        loop {
            let page = osd.list(after, 256).await.map_err(|e| e.to_string())?;
            let Some(last) = page.last() else { break };
            after = Some(*last);
            let mut ids: Vec<_> = page.iter().map(|k| k.stripe).collect();
            ids.dedup();
            let live = meta.stripes_live(ids.clone()).await.map_err(|e| e.to_string())?;
            let dead: Vec<_> = ids.into_iter().zip(live).filter(|(_, l)| !l).map(|(id, _)| id).collect();
            osd.delete(dead).await.map_err(|e| e.to_string())?;
        }
        osd.flush().await.map_err(|e| e.to_string())?;
    }
    Ok(())
}
