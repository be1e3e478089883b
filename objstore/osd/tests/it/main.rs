//! An OSD on the machine's own disk.

use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::{block_crcs, crc32c};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::RealDisk;
use holdfast_objstore_base::real::runtime::block_on;
use holdfast_objstore_osd::{Config, FormatOptions, Osd};
use holdfast_objstore_proto::shard::{Error, Hint, ShardHead, ShardKey, ShardPut, ShardService};
use holdfast_objstore_proto::{Code, Codec, OsdId, SessionEpoch, SessionId, StripeId};
use std::sync::Arc;

fn shard(n: u64, blocks: usize) -> ShardPut {
    let mut b = AlignedBuf::zeroed(blocks * 4096);
    for (i, run) in b.chunks_mut(512).enumerate() {
        run[..8].copy_from_slice(&(n * 1000 + i as u64).to_le_bytes());
    }
    let data: Bytes = b.freeze();
    let head = ShardHead {
        key: ShardKey { stripe: StripeId { incarnation: 1, group: 0, counter: n }, shard: 0 },
        codec: Codec::Replica,
        code: Code::new(1, 0),
        stripe_len: data.len() as u32,
        digest: crc32c(&data) as u64,
        session: SessionId(1),
        epoch: SessionEpoch(1),
        hint: Hint::default(),
    };
    ShardPut { head, crcs: block_crcs(&data).into(), data, background: false }
}

#[test]
fn shards_on_a_real_disk_survive_restarts_deletes_and_recycling() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("osd.0");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let options = FormatOptions { segment_bytes: 1 << 20, ..FormatOptions::new(7, OsdId(0), 0x1357, 1) };
    Osd::format(&*disk, &folder, options).unwrap();
    let config = Config { capacity_bytes: Some(24 << 20), checkpoint_bytes: 4 << 20, ..Config::default() };
    let held = |n: u64| n >= 300 && !n.is_multiple_of(3);
    block_on(async {
        let (osd, _) = Osd::open(disk.clone(), &folder, config.clone()).await.unwrap();
        for first in (0..400u64).step_by(8) {
            let puts = (first..first + 8).map(|n| osd.put(shard(n, 1 + n as usize % 40)));
            for put in futures::future::join_all(puts).await {
                put.unwrap();
            }
            osd.flush().await.unwrap();
            let dead = (first.saturating_sub(100)..first).filter(|n| !held(*n));
            osd.delete(dead.map(|counter| StripeId { incarnation: 1, group: 0, counter }).collect()).await.unwrap();
        }
        osd.delete((392..400).filter(|n| !held(*n)).map(|counter| StripeId { incarnation: 1, group: 0, counter }).collect()).await.unwrap();
        osd.flush().await.unwrap();
        assert!(osd.metrics().log.segments_recycled.get() > 0);
        // No close: the next start reads the tail.
    })
    .unwrap();
    for round in 0..2 {
        block_on(async {
            let (osd, start) = Osd::open(disk.clone(), &folder, config.clone()).await.unwrap();
            assert!(start.recovery.faults.is_empty() && start.recovery.torn.is_none(), "{start:?}");
            for n in 0..400 {
                let want = shard(n, 1 + n as usize % 40);
                match osd.get(want.head.key, 0, want.data.len() as u32).await {
                    Ok(read) => assert!(held(n) && read.data == want.data && read.head == want.head, "round {round}, {n}"),
                    Err(Error::NotFound { .. }) => assert!(!held(n), "round {round}, {n}"),
                    Err(e) => panic!("{e}"),
                }
            }
            osd.close().await.unwrap();
        })
        .unwrap();
    }
}
