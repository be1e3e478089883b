//! Space comes back: when nothing refers to anything any more, the OSDs hold nothing and no queue waits.

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
    let queues = running.repair.progress();
    if !queues.settled() {
        return Some(format!(
            "repair is {}: {} stripes queued, {} wait, {} lost",
            queues.state, queues.queued, queues.waiting, queues.lost
        ));
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
