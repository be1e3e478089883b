//! What the tests of the log share: a rig over the simulated disk.

mod appending;
mod crash;
mod decoders;
mod recovery;
mod room;

use super::*;
use crate::log::format::head::Head;
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, File, Open};
use holdfast_objstore_base::sim::{Options, SimDisk};
use holdfast_objstore_base::units::BLOCK;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const ID: u128 = 0x1234_5678_9abc_def0_1122_3344_5566_7788;
pub const SEGMENT: u64 = 64 << 10;
pub const BLOCKS: u32 = 16;

pub fn dir() -> PathBuf {
    PathBuf::from("/log")
}

pub fn config() -> Config {
    Config {
        segment_bytes: SEGMENT,
        segments_max: 64,
        segments_reserve: 2,
        cache_bytes: 64 << 10,
        blocking: Blocking::Here,
        ..Config::osd()
    }
}

/// A formatted log on a simulated disk whose calls do not overlap.
pub fn rig() -> SimDisk {
    let disk = SimDisk::with(1, Options { overlap: false, ..Options::default() });
    Log::format(&disk, &dir(), ID, &config()).unwrap();
    disk
}

/// What a visitor saw.
#[derive(Default, Debug)]
pub struct Seen {
    pub checkpoint: Option<(u64, Bytes)>,
    pub records: Vec<(u8, u64, Bytes, Location)>,
}

impl Visitor for Seen {
    fn checkpoint(&mut self, from_seq: u64, bytes: Bytes) -> std::result::Result<(), String> {
        assert!(self.checkpoint.is_none() && self.records.is_empty());
        self.checkpoint = Some((from_seq, bytes));
        Ok(())
    }
    fn record(&mut self, r: Recovered<'_>) -> std::result::Result<(), String> {
        if let Some(last) = self.records.last() {
            assert!(last.1 < r.seq && last.3.position < r.location.position, "out of order");
        }
        self.records.push((r.kind, r.seq, Bytes::copy_from_slice(r.meta), r.location));
        Ok(())
    }
}

impl Seen {
    pub fn metas(&self) -> Vec<String> {
        self.records.iter().map(|r| String::from_utf8(r.2.to_vec()).unwrap()).collect()
    }
}

pub async fn open_with(disk: &SimDisk, config: Config) -> Result<(Log, Recovery, Seen)> {
    let mut seen = Seen::default();
    let (log, recovery) = Log::open(Arc::new(disk.clone()), &dir(), config, &mut seen).await?;
    Ok((log, recovery, seen))
}

pub async fn open(disk: &SimDisk) -> (Log, Recovery, Seen) {
    open_with(disk, config()).await.unwrap()
}

pub async fn put(log: &Log, meta: &str, payload_bytes: usize) -> Appended {
    log.append(Append::new(1, meta.to_string()).payload(payload(meta, payload_bytes))).await.unwrap()
}

/// Bytes that depend on the record's meta.
pub fn payload(meta: &str, bytes: usize) -> Bytes {
    let seed = meta.bytes().fold(7u8, |a, b| a.wrapping_mul(31).wrapping_add(b));
    let mut data = vec![seed; bytes];
    for (i, run) in data.chunks_mut(512).enumerate() {
        run[0] = i as u8;
    }
    AlignedBuf::copy_of(&data).freeze()
}

/// Several records, each of one block, so that record n of them lies at block 2 + n.
pub async fn put_small(log: &Log, names: &[&str]) -> Vec<Appended> {
    let mut out = Vec::new();
    for n in names {
        out.push(put(log, n, 0).await);
    }
    out
}

pub fn segment_file(disk: &SimDisk, number: u32) -> Arc<dyn File> {
    disk.open(&path(number), Open::Existing).unwrap()
}

pub fn path(number: u32) -> PathBuf {
    dir().join(super::segment::file_name(number))
}

pub async fn read_block(disk: &SimDisk, number: u32, block: u32) -> AlignedBuf {
    let file = segment_file(disk, number);
    file.read_at(block as u64 * BLOCK as u64, AlignedBuf::zeroed(BLOCK)).await.unwrap()
}

/// Overwrites one block, as stable bytes.
pub async fn write_block(disk: &SimDisk, number: u32, block: u32, bytes: &[u8]) {
    let mut b = AlignedBuf::zeroed(BLOCK);
    b[..bytes.len()].copy_from_slice(bytes);
    let file = segment_file(disk, number);
    file.write_at(block as u64 * BLOCK as u64, vec![b.freeze()]).await.unwrap();
    file.flush().await.unwrap();
}

/// Writes a whole head where it says it lies.
pub async fn write_head(disk: &SimDisk, number: u32, head: &Head) {
    write_block(disk, number, head.location.position.block, &head.encode(ID)).await;
}

/// A head without payload.
pub fn head(life: u32, block: u32, epoch: u64, seq: u64, durable: u64, meta: &str) -> Head {
    Head {
        kind: 1,
        epoch,
        seq,
        durable,
        location: Location { position: Position { life, block }, head_blocks: 1, payload_bytes: 0 },
        meta: Bytes::copy_from_slice(meta.as_bytes()),
        crcs: Arc::new([]),
    }
}

/// The number of the file that has this life.
pub fn number_of_life(log: &Log, life: u32) -> u32 {
    log.segments().iter().find(|s| s.life == life).unwrap().number
}

pub fn exists(disk: &SimDisk, p: &Path) -> bool {
    disk.exists(p)
}
