//! Reconciling: what an OSD holds against what metadata knows, range by range. The backstop for whatever was written and never published,
//! missed deletes, and OSDs that were out of contact.
//!
//! What always holds. Only ranges that no session may publish any more are looked at; each is fenced at the OSD before its live ids are
//! asked for, so nothing can arrive behind the look. An OSD is given all fences before it serves. Ids of an earlier incarnation of the
//! metadata (there was a restore) are never deleted: those that nothing refers to are counted for the operator.
//! A pass goes on where it stopped when an OSD failed or the process was busy; one follows each end of a session, and one an hour.
//! What it leaves out: reading shards (scrub does, and calls [`range`] for what it walks over).

use holdfast_meta_server::Service;
use holdfast_objstore_proto::shard::{Error, ShardKey, ShardService};
use holdfast_objstore_proto::{OsdId, StripeId, StripeRange};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Shards looked at in one step; between steps other work runs.
const PAGE: usize = 512;
/// Between two passes when no session ends.
const EVERY: Duration = Duration::from_secs(3600);
/// After a pass that an OSD or the service cut short.
const AGAIN: Duration = Duration::from_secs(30);
/// Lists made anew when an OSD has seen a newer one.
const TRIES_MAX: u32 = 3;

/// Raises at one OSD the fence of every range that is closed. To be called before it serves, also when it comes back or is new.
pub async fn fence(osd: &dyn ShardService, service: &Service) -> anyhow::Result<()> {
    let (_, ranges) = service.closed_ranges()?;
    Ok(osd.fence(ranges).await?)
}

/// Reconciles one range of stripe ids at one OSD: fences it, and drops every stripe of it that the OSD holds and metadata does not know.
/// Answers how many were dropped, durably. `range` must be closed (part of one of [`Service::closed_ranges`]) and should hold no more
/// ids than fit in memory as a list; it may be repeated at any time. For scrub, which walks over a device's shards anyway.
pub async fn range(osd: &dyn ShardService, service: &Service, range: StripeRange) -> anyhow::Result<u64> {
    for _ in 1..TRIES_MAX {
        match range_once(osd, service, range).await? {
            Err(Error::Stale { .. }) => {}
            done => return Ok(done?),
        }
    }
    Ok(range_once(osd, service, range).await??)
}

async fn range_once(osd: &dyn ShardService, service: &Service, range: StripeRange) -> anyhow::Result<Result<u64, Error>> {
    osd.fence(vec![range]).await?;
    let (stamp, _) = service.closed_ranges()?;
    let live = service.held_in(range)?;
    Ok(osd.retire(range, live, stamp).await)
}

/// How far reconciling is, for `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Whole passes over all OSDs since the start.
    pub passes: u64,
    /// Stripes deleted that nothing referred to.
    pub deleted: u64,
    /// Shards of an earlier incarnation that nothing refers to, in the last pass. They are kept.
    pub unconfirmed: u64,
    pub running: bool,
}

/// The background pass.
pub struct Reconciler {
    service: Arc<Service>,
    progress: Mutex<Progress>,
    /// Where a pass that was cut short goes on, by OSD: behind this key.
    cursors: Mutex<BTreeMap<OsdId, ShardKey>>,
}

impl Reconciler {
    pub fn new(service: Arc<Service>) -> Arc<Self> {
        Arc::new(Self { service, progress: Mutex::default(), cursors: Mutex::default() })
    }

    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Passes over the OSDs that `osds` answers, again and again; ends when the service does.
    pub async fn run(self: Arc<Self>, osds: impl Fn() -> Vec<Arc<dyn ShardService>>) {
        loop {
            self.progress.lock().running = true;
            let mut whole = true;
            for osd in osds().into_iter().filter(|o| o.failure().is_none()) {
                if let Err(e) = self.pass(&*osd).await {
                    whole = false;
                    if self.service.status().failed.is_some() {
                        tracing::debug!("reconcile was cut short");
                        return;
                    }
                    tracing::warn!(osd = %osd.osd(), "reconcile was cut short and will go on: {e:#}");
                }
            }
            {
                let mut p = self.progress.lock();
                p.running = false;
                p.passes += whole as u64;
            }
            let pause = if whole { EVERY } else { AGAIN };
            tokio::select! {
                () = self.service.ranges_closed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One pass over one OSD, from where the last one stopped.
    pub async fn pass(&self, osd: &dyn ShardService) -> anyhow::Result<u64> {
        fence(osd, &self.service).await?;
        let (stamp, closed) = self.service.closed_ranges()?;
        let mut after = self.cursors.lock().get(&osd.osd()).copied();
        let (mut deleted, mut unconfirmed) = (0, 0);
        loop {
            let page = osd.list(after, PAGE).await?;
            let (Some(first), Some(last)) = (page.first().map(|k| k.stripe), page.last()) else { break };
            let all = between(first, last.stripe);
            if (first.incarnation, first.group) != (last.stripe.incarnation, last.stripe.group) || first.incarnation != stamp.incarnation {
                unconfirmed += self.unreferenced(&page, stamp.incarnation)?;
            }
            for r in closed.iter().filter_map(|r| overlap(*r, all)) {
                deleted += range(osd, &self.service, r).await?;
            }
            after = Some(*last);
            self.cursors.lock().insert(osd.osd(), *last);
            tokio::task::yield_now().await;
        }
        self.cursors.lock().remove(&osd.osd());
        let mut p = self.progress.lock();
        p.deleted += deleted;
        p.unconfirmed = unconfirmed;
        drop(p);
        if deleted > 0 {
            tracing::info!(osd = %osd.osd(), stripes = deleted, "reconcile deleted what nothing refers to");
        }
        Ok(deleted)
    }

    /// Shards of other incarnations that metadata does not know.
    fn unreferenced(&self, page: &[ShardKey], incarnation: u32) -> anyhow::Result<u64> {
        let mut n = 0;
        for key in page.iter().filter(|k| k.stripe.incarnation != incarnation) {
            n += self.service.held_in(StripeRange { first: key.stripe, count: 1 })?.is_empty() as u64;
        }
        Ok(n)
    }
}

/// The ids from `first` to `last`, of the last one's incarnation.
fn between(first: StripeId, last: StripeId) -> StripeRange {
    let first = if (first.incarnation, first.group) == (last.incarnation, last.group) { first } else { StripeId { counter: 0, ..last } };
    StripeRange { first, count: last.counter - first.counter + 1 }
}

fn overlap(a: StripeRange, b: StripeRange) -> Option<StripeRange> {
    if (a.first.incarnation, a.first.group) != (b.first.incarnation, b.first.group) {
        return None;
    }
    let from = a.first.counter.max(b.first.counter);
    let to = a.first.counter.saturating_add(a.count).min(b.first.counter.saturating_add(b.count));
    (from < to).then(|| StripeRange { first: StripeId { counter: from, ..a.first }, count: to - from })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use holdfast_meta_client::{Meta, MetaService, NoEvents};
    use holdfast_objstore_base::buf::AlignedBuf;
    use holdfast_objstore_base::checksum::block_crcs;
    use holdfast_objstore_base::sim::SimDisk;
    use holdfast_objstore_osd::{Config, FormatOptions, Osd};
    use holdfast_objstore_proto::meta::{Command, Extent, Kind, Owner, Publish, Reply, Shape};
    use holdfast_objstore_proto::shard::{Hint, ShardHead, ShardPut};
    use holdfast_objstore_proto::{Code, Codec, InodeId, StripeMeta};
    use std::path::Path;

    async fn osd(n: u16) -> Osd {
        let disk = SimDisk::new(n as u64);
        let dir = Path::new("/osd");
        let options = FormatOptions { segment_bytes: 1 << 20, ..FormatOptions::new(1, OsdId(n), n as u128, 1) };
        Osd::format(&disk, dir, options).unwrap();
        Osd::open(Arc::new(disk), dir, Config { capacity_bytes: Some(32 << 20), ..Config::default() }).await.unwrap().0
    }

    async fn put(osd: &Osd, meta: &dyn Meta, stripe: StripeId) -> Result<(), Error> {
        let data = AlignedBuf::zeroed(4096).freeze();
        let (session, epoch) = meta.session();
        let head = ShardHead {
            key: ShardKey { stripe, shard: 0 },
            codec: Codec::Replica,
            code: Code::new(1, 0),
            stripe_len: 4096,
            digest: 7,
            session,
            epoch,
            hint: Hint::default(),
        };
        let crcs: Arc<[u32]> = block_crcs(&data).into();
        osd.put(ShardPut { head, data, crcs }).await
    }

    /// A file of one block on `stripe`.
    async fn publish(meta: &dyn Meta, root: InodeId, name: &'static str, stripe: StripeId, osd: OsdId) {
        let Reply::Inodes(inodes) = meta.submit(Command::GrantInodes { count: 1 }).await.unwrap() else { panic!() };
        let ino = inodes.first;
        let owner = Owner { uid: 0, gid: 0 };
        let name = Bytes::from_static(name.as_bytes());
        meta.submit(Command::Create { dir: root, name, ino, kind: Kind::File, mode: 0o644, owner, rdev: 0, target: Bytes::new() })
            .await
            .unwrap();
        let osds = [osd].into_iter().collect();
        let record = StripeMeta { id: stripe, codec: Codec::Replica, code: Code::new(1, 0), len: 4096, digest: 7, osds, missing: 0 };
        let extents = vec![Extent { offset: 0, len: 4096, stripe, stripe_offset: 0 }];
        let p = Publish {
            ino,
            number: 1,
            extents,
            stripes: vec![Arc::new(record)],
            inline: Vec::new(),
            size: 4096,
            mtime: 1,
            ctime: 1,
            clear_suid: false,
        };
        meta.submit(Command::Publish(p)).await.unwrap();
    }

    #[tokio::test]
    async fn an_ended_session_leaves_nothing_unpublished_and_nothing_of_it_arrives_later_wherever_it_was_out_of_contact() {
        let service = Service::in_memory();
        let meta = service.connect("one", false, Arc::new(NoEvents)).await.unwrap();
        let bucket = Command::CreateBucket {
            name: Bytes::from_static(b"home"),
            shape: Shape::Tree,
            code: Code::new(1, 0),
            owner: Owner { uid: 0, gid: 0 },
            mode: 0o755,
        };
        let Reply::Bucket(bucket) = meta.submit(bucket).await.unwrap() else { panic!() };
        let (a, b) = (osd(0).await, osd(1).await);
        let Reply::Stripes(granted) = meta.submit(Command::GrantStripes { count: 1000 }).await.unwrap() else { panic!() };
        let id = |n| StripeId { counter: granted.first.counter + n, ..granted.first };
        for n in 0..8 {
            put(&a, &*meta, id(n)).await.unwrap();
            put(&b, &*meta, id(n)).await.unwrap();
        }
        publish(&*meta, bucket.root, "kept", id(3), OsdId(0)).await;
        let reconciler = Reconciler::new(service.clone());
        // While its session lives, an id may still be published.
        assert_eq!(reconciler.pass(&a).await.unwrap(), 0);
        assert_eq!(a.shards(), 8);
        meta.close_session().await;
        // `b` is out of contact now.
        assert_eq!(reconciler.pass(&a).await.unwrap(), 7);
        assert_eq!(a.shards(), 1);
        assert!(matches!(put(&a, &*meta, id(500)).await, Err(Error::Fenced { .. })), "a late arrival");
        // Another session goes on with ids of its own.
        let other = service.connect("two", false, Arc::new(NoEvents)).await.unwrap();
        let Reply::Stripes(theirs) = other.submit(Command::GrantStripes { count: 10 }).await.unwrap() else { panic!() };
        put(&a, &*other, theirs.first).await.unwrap();
        // `b` fetches fences before it serves, and is reconciled after.
        fence(&b, &service).await.unwrap();
        assert!(matches!(put(&b, &*meta, id(501)).await, Err(Error::Fenced { .. })));
        put(&b, &*other, theirs.first).await.unwrap();
        assert_eq!(reconciler.pass(&b).await.unwrap(), 7);
        assert_eq!((a.shards(), b.shards(), reconciler.progress().deleted), (2, 2, 14));
        assert_eq!((a.fences(), b.fences()), (1, 1));
        service.shutdown().await.unwrap();
    }

    #[test]
    fn ranges_overlap_only_within_one_incarnation() {
        let id = |incarnation, counter| StripeId { incarnation, group: 0, counter };
        let r = |i, first, count| StripeRange { first: id(i, first), count };
        assert_eq!(overlap(r(1, 10, 10), r(1, 15, 100)), Some(r(1, 15, 5)));
        assert_eq!(overlap(r(1, 10, 10), r(1, 20, 5)), None);
        assert_eq!(overlap(r(1, 10, 10), r(2, 10, 10)), None);
        assert_eq!(between(id(1, 9), id(2, 4)), r(2, 0, 5));
        assert_eq!(between(id(2, 3), id(2, 4)), r(2, 3, 2));
    }
}
