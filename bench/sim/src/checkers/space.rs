//! Space comes back: when nothing refers to anything any more, the OSDs hold nothing and no queue waits.

use crate::cluster::Running;
use holdfast_meta_client::Meta;
use holdfast_objstore_proto::meta::Command;
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_proto::{OsdId, StripeId};
use std::collections::BTreeMap;

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
    let osds = running.osds.lock().clone();
    let holding = osds.iter().filter(|o| o.failure().is_none() && o.shards() > 0);
    let held: Vec<String> = holding.map(|o| format!("{} holds {} shards", o.osd(), o.shards())).collect();
    (!held.is_empty()).then(|| held.join(", "))
}

/// A shard that an OSD holds though no record names it there and nobody may publish it any more; or deleting that is not done.
/// For a moment when no client has anything under way. `closed`: looks only at ids that no session may publish any more, which
/// reconciling looks after; others, as of a pack that was deleted before its last shard came, the next walk finds.
pub async fn orphan(running: &Running, closed: bool) -> Option<String> {
    if running.service.returning() > 0 {
        return Some(format!("{} stripes and inodes wait to be deleted", running.service.returning()));
    }
    let service = &running.service;
    let Ok((_, ranges)) = service.closed_ranges() else { return None };
    // One that was given up is looked at again when it is back.
    let serving = running.services.lock().clone();
    for osd in serving.iter().filter(|o| o.failure().is_none()) {
        let Ok(held) = osd.list(None, usize::MAX).await else { continue };
        let ids: Vec<StripeId> = held.iter().map(|k| k.stripe).collect();
        let Ok(live) = service.stripes_live(&ids) else { return None };
        for (key, live) in held.iter().zip(live) {
            if closed && !ranges.iter().any(|r| r.contains(key.stripe)) {
                continue;
            }
            if !live {
                return Some(format!("{} holds shard {key}, which nothing refers to", osd.osd()));
            }
            if let Ok(Some(record)) = service.stripe(key.stripe)
                && record.osds.get(key.shard as usize) != Some(&osd.osd())
            {
                return Some(format!("{} holds shard {key}, which its record looks for elsewhere: {record:?}", osd.osd()));
            }
        }
    }
    None
}

/// An OSD, of those that were never hurt, that has much less free than it had when it was new.
pub fn not_returned(running: &Running, fresh: &BTreeMap<OsdId, u64>, slack: u64) -> Option<String> {
    running.osds.lock().iter().find_map(|o| {
        let (free, had) = (o.space().free, *fresh.get(&o.osd())?);
        (free + slack < had).then(|| format!("{} has {free} bytes free and nothing in it, and had {had} when it was new", o.osd()))
    })
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
