//! What the tests of the service share.

mod cleaning;
mod deletes;
mod dumps;
mod faults;
mod model;
mod protocol;

use super::*;
use crate::log::{Blocking, Recovery};
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::{block_crcs, crc32c};
use holdfast_objstore_base::dump::Line;
use holdfast_objstore_base::sim::{Options, SimDisk};
use holdfast_objstore_proto::shard::{Error, Hint, ShardHead, ShardKey, ShardPut, ShardService};
use holdfast_objstore_proto::{Code, Codec, InodeId, OsdId, SessionEpoch, SessionId, StripeId};
use std::path::PathBuf;
use std::sync::Arc;

pub const CLUSTER: u128 = 42;
pub const SEGMENT: u64 = 64 << 10;

pub fn dir() -> PathBuf {
    PathBuf::from("/osd.3")
}

pub fn options() -> FormatOptions {
    FormatOptions { segment_bytes: SEGMENT, ..FormatOptions::new(CLUSTER, OsdId(3), 0xabcdef, 1) }
}

pub fn config() -> Config {
    Config { capacity_bytes: Some(40 * SEGMENT), checkpoint_bytes: 4 * SEGMENT, blocking: Blocking::Here, ..Config::default() }
}

pub fn rig() -> SimDisk {
    let disk = SimDisk::with(1, Options { overlap: false, ..Options::default() });
    Osd::format(&disk, &dir(), options()).unwrap();
    disk
}

pub async fn open(disk: &SimDisk) -> Osd {
    open_with(disk, config()).await.0
}

pub async fn open_with(disk: &SimDisk, config: Config) -> (Osd, Recovery) {
    let (osd, start) = Osd::open(Arc::new(disk.clone()), &dir(), config).await.unwrap();
    (osd, start.recovery)
}

pub fn stripe(counter: u64) -> StripeId {
    StripeId { incarnation: 1, group: 0, counter }
}

pub fn key(counter: u64) -> ShardKey {
    ShardKey { stripe: stripe(counter), shard: (counter % 6) as u8 }
}

/// The bytes of a shard: they depend on key and version.
pub fn data(key: ShardKey, version: u64, blocks: usize) -> Bytes {
    let mut b = AlignedBuf::zeroed(blocks * 4096);
    for (i, run) in b.chunks_mut(1024).enumerate() {
        run[..8].copy_from_slice(&key.stripe.counter.to_le_bytes());
        run[8..16].copy_from_slice(&version.to_le_bytes());
        run[16] = i as u8;
    }
    b.freeze()
}

pub fn shard(key: ShardKey, version: u64, blocks: usize) -> ShardPut {
    let data = data(key, version, blocks);
    let crcs: Arc<[u32]> = block_crcs(&data).into();
    let head = ShardHead {
        key,
        codec: Codec::Gf8Cauchy,
        code: Code::new(4, 2),
        stripe_len: blocks as u32 * 4096 * 4,
        digest: version << 32 | crc32c(&data) as u64,
        session: SessionId(5),
        epoch: SessionEpoch(6),
        hint: Hint { bucket: 7, inode: InodeId(8), chunk: 9 },
    };
    ShardPut { head, data, crcs, background: false }
}

pub async fn put(osd: &Osd, counter: u64, blocks: usize) {
    osd.put(shard(key(counter), 0, blocks)).await.unwrap();
}

pub async fn has(osd: &Osd, counter: u64, blocks: usize) -> bool {
    match osd.get(key(counter), 0, blocks as u32 * 4096).await {
        Ok(read) => {
            assert_eq!(read.data, data(key(counter), 0, blocks));
            true
        }
        Err(Error::NotFound { .. }) => false,
        Err(e) => panic!("{e}"),
    }
}

/// Lets background work come to its end.
pub async fn settle(osd: &Osd) {
    osd.0.keep_house().await.unwrap();
    osd.0.log.close().await.unwrap();
}

/// What a dump tells.
pub async fn told(disk: &SimDisk) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut sink = |line: Line| {
        lines.push(line);
        Ok(())
    };
    dump(disk, &dir(), &mut sink).await.unwrap();
    lines
}

pub fn segment_path(number: u32) -> PathBuf {
    dir().join("log").join(format!("{number:08}.segment"))
}
