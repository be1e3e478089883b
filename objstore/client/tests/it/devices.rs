//! The cluster over real files that share a device: how many flushes reach it.

use crate::mem_osd::MemOsd;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::disk::{Disk, File, Open, write_zeroes};
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_base::real::{RealDisk, runtime};
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Cluster, Config, Objects};
use holdfast_objstore_proto::shard::{Error, OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService};
use holdfast_objstore_proto::{Code, OsdId, StripeId};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps shards in memory for reads, and appends them to a file as an OSD would.
struct FileOsd {
    memory: Arc<MemOsd>,
    file: Arc<dyn File>,
    end: AtomicU64,
}

impl FileOsd {
    async fn new(disk: &RealDisk, dir: &Path, id: u16) -> Arc<FileOsd> {
        let file = disk.open(&dir.join(format!("osd.{id}")), Open::CreateNew).unwrap();
        write_zeroes(&*file, 0, 8 << 20).await.unwrap();
        file.flush_all().await.unwrap();
        let memory = MemOsd::new(id, file.domain().0);
        Arc::new(FileOsd { memory, file, end: AtomicU64::new(0) })
    }

    fn failed(&self, why: impl ToString) -> Error {
        Error::Down { osd: self.osd(), why: why.to_string() }
    }
}

impl ShardService for FileOsd {
    fn osd(&self) -> OsdId {
        self.memory.osd()
    }
    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let at = self.end.fetch_add(put.data.len() as u64, Ordering::Relaxed);
            self.file.write_at(at, vec![put.data.clone()]).await.map_err(|e| self.failed(e))?;
            self.memory.put(put).await
        })
    }
    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.file.flush().await.map_err(|e| self.failed(e)) })
    }
    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>> {
        self.memory.get(key, offset, len)
    }
    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        self.memory.head(key)
    }
    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        self.memory.delete(stripes)
    }
    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        self.memory.drop_shards(keys)
    }
    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        self.memory.list(after, limit)
    }
    fn space(&self) -> OsdSpace {
        self.memory.space()
    }
    fn failure(&self) -> Option<String> {
        self.memory.failure()
    }
    fn domain(&self) -> u64 {
        self.file.domain().0
    }
}

/// Flushes that reach the device for `stripes` writes and one flush, with `hands` requests in hand. `None` where files do not share
/// a flush (a temporary folder on tmpfs).
fn device_flushes(stripes: u64, hands: usize) -> Option<u64> {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::new();
    runtime::block_on(async {
        let mut osds = Vec::new();
        for id in 0..6 {
            osds.push(FileOsd::new(&disk, dir.path(), id).await);
        }
        if osds.windows(2).any(|w| w[0].domain() != w[1].domain()) {
            return None;
        }
        let services = osds.iter().map(|o| o.clone() as Arc<dyn ShardService>).collect();
        let cluster = Cluster::new(services, Budget::new(16 << 20), Config::default());
        let _hands: Vec<_> = (0..hands).map(|_| InHand::new()).collect();
        let mut written = Vec::new();
        for counter in 1..=stripes {
            written.push(cluster.write(stripe(counter, Code::new(4, 2), 70_000 + counter as u32)).await.unwrap());
        }
        let before = disk.metrics().flushes();
        let flushed = cluster.flush(written).await.unwrap();
        assert!(flushed.iter().all(|m| m.missing == 0));
        let count = disk.metrics().flushes() - before;
        for meta in &flushed {
            expect(&*cluster, meta, 0..meta.len).await;
        }
        Some(count)
    })
    .unwrap()
}

#[test]
fn six_osds_of_one_device_are_flushed_once() {
    for (stripes, hands) in [(1, 0), (1, 1), (1, 8), (5, 1), (5, 8)] {
        let Some(count) = device_flushes(stripes, hands) else { return };
        assert_eq!(count, 1, "{stripes} stripes with {hands} requests in hand");
    }
}
