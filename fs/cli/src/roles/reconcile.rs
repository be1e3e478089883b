//! Reconciling over the metadata service (`objstore/repair` has the work itself).

use holdfast_meta_server::Service;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::shard::Stamp;
use holdfast_objstore_proto::{StripeId, StripeRange};
use holdfast_objstore_repair::Ranges;
use std::sync::Arc;

/// The metadata service, as reconciling sees it.
pub struct ServiceRanges(pub Arc<Service>);

impl Ranges for ServiceRanges {
    fn closed(&self) -> Result<(Stamp, Vec<StripeRange>), String> {
        self.0.closed_ranges().map_err(|e| e.to_string())
    }
    fn held_in(&self, range: StripeRange) -> Result<Vec<StripeId>, String> {
        self.0.held_in(range).map_err(|e| e.to_string())
    }
    fn more_closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.ranges_closed())
    }
    fn is_over(&self) -> bool {
        self.0.status().failed.is_some()
    }
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
    use holdfast_objstore_proto::shard::{Error, Hint, ShardHead, ShardKey, ShardPut, ShardService};
    use holdfast_objstore_proto::{Code, Codec, InodeId, OsdId, StripeMeta};
    use holdfast_objstore_repair::Reconciler;
    use holdfast_objstore_repair::reconcile::fence;
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
        osd.put(ShardPut { head, data, crcs, background: false }).await
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
        let reconciler = Reconciler::new(Arc::new(ServiceRanges(service.clone())));
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
        fence(&b, &ServiceRanges(service.clone())).await.unwrap();
        assert!(matches!(put(&b, &*meta, id(501)).await, Err(Error::Fenced { .. })));
        put(&b, &*other, theirs.first).await.unwrap();
        assert_eq!(reconciler.pass(&b).await.unwrap(), 7);
        assert_eq!((a.shards(), b.shards(), reconciler.progress().deleted), (2, 2, 14));
        assert_eq!((a.fences(), b.fences()), (1, 1));
        service.shutdown().await.unwrap();
    }
}
