//! How the room of each filesystem is divided: first what metadata needs, then the OSDs on it.
//!
//! What always holds: the OSDs' part leaves room for the metadata's log at its largest, for its state to grow, and a margin, so that a
//! cluster that is full of data can still commit every delete.
//! What it leaves out: files of others on the same filesystem; for those the log has segments ready, and the state a ballast.

use crate::layout::Layout;
use anyhow::Context;
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::{Disk, DiskSpace};
use holdfast_objstore_base::real::RealDisk;
use holdfast_objstore_base::units::MIB;
use holdfast_objstore_proto::OsdId;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Segments are small on small devices, so that a few dead ones soon come back. A multiple of this many blocks holds the largest
/// shards of every code without a rest: one of 4 MiB takes 1026 with its head, four of 1 MiB take 1028.
const UNIT_BLOCKS: u64 = 1028;
/// Blocks of a segment that hold no record: two headers and the seal.
const FRAME_BLOCKS: u64 = 3;
const BLOCK: u64 = 4096;
/// Of such units, a segment has 1 to this many …
const UNITS_MAX: u64 = 16;
/// … and this many where it leaves segments enough: the more shards a segment holds, the less room is lost to rests that no shard fits in.
const UNITS_GOOD: u64 = 4;
/// A device is cut into about this many segments, and into half as many at least.
const SEGMENTS_PER_DEVICE: u64 = 64;
/// Of a filesystem, the part that is left to others and to the filesystem itself: one in this many.
const MARGIN_PARTS: u64 = 40;
/// Of a block device, the part that is left to checkpoints: one in this many.
const CHECKPOINT_PARTS: u64 = 20;
/// The part the metadata's state may come to: one in this many.
const STATE_PARTS: u64 = 50;

/// Bytes of a segment of an OSD that has `part` bytes.
pub fn segment_bytes(part: u64) -> u64 {
    let units_of = |segments: u64| part / segments / (UNIT_BLOCKS * BLOCK);
    let good = units_of(SEGMENTS_PER_DEVICE / 2).min(UNITS_GOOD);
    let units = units_of(SEGMENTS_PER_DEVICE).max(good).clamp(1, UNITS_MAX);
    (units * UNIT_BLOCKS + FRAME_BLOCKS) * BLOCK
}

/// The filesystem a path is on or will be on: its nearest ancestor that exists, and its number.
fn device(path: &Path) -> anyhow::Result<(u64, PathBuf)> {
    let found = path.ancestors().find_map(|a| std::fs::metadata(a).ok().map(|m| (m.dev(), a.to_path_buf())));
    found.with_context(|| format!("{} lies nowhere", path.display()))
}

fn space(disk: &dyn Disk, path: &Path) -> anyhow::Result<DiskSpace> {
    Ok(disk.space(&device(path)?.1)?)
}

/// The metadata's log, sized for the device it lies on.
pub fn log(layout: &Layout, disk: &dyn Disk, id: u128, create: bool) -> anyhow::Result<raft::Config> {
    Ok(raft::Config::new(id, create).sized(space(disk, &layout.meta_dir())?.total))
}

/// Bytes kept back for the metadata's state.
pub fn ballast_bytes(layout: &Layout, disk: &dyn Disk) -> anyhow::Result<u64> {
    Ok(ballast(space(disk, &layout.meta_dir())?.total))
}

fn ballast(total: u64) -> u64 {
    (total / 128).clamp(2 * MIB, 64 * MIB)
}

/// What metadata may come to on the filesystem of its folder.
fn metadata_bytes(total: u64) -> u64 {
    let log = raft::Config::new(0, false).sized(total).bytes_max();
    log + ballast(total) + (total / STATE_PARTS).max(4 * MIB)
}

/// Bytes each OSD may use: its part of what its filesystem has, for several may share one.
pub fn parts(layout: &Layout, disk: &RealDisk) -> anyhow::Result<HashMap<OsdId, u64>> {
    let mut by_device: HashMap<u64, (PathBuf, Vec<(OsdId, u64)>)> = HashMap::new();
    let mut parts = HashMap::new();
    for (id, path) in &layout.osds {
        if disk.is_device(path) {
            // All of it is this OSD's, but for what its checkpoints take.
            let total = disk.space(path).map_or(0, |s| s.total);
            parts.insert(*id, total - total / CHECKPOINT_PARTS);
            continue;
        }
        let (dev, at) = device(path)?;
        by_device.entry(dev).or_insert_with(|| (at, Vec::new())).1.push((*id, files_bytes(&path.join("log"))));
    }
    // The log may be kept on as many devices as may be lost, and one.
    let metas: Vec<(u64, u64)> = layout
        .dirs
        .iter()
        .filter(|d| !disk.is_device(d))
        .take(layout.code.m as usize + 1)
        .map(|d| Ok((device(d)?.0, files_bytes(&d.join("meta")) + files_bytes(&d.join("meta/wal")))))
        .collect::<anyhow::Result<_>>()?;
    for (dev, (at, osds)) in by_device {
        let space = disk.space(&at)?;
        let there = metas.iter().filter(|m| m.0 == dev).map(|m| m.1).max();
        let metadata = there.map_or(0, |there| metadata_bytes(space.total).saturating_sub(there));
        let kept = (space.total / MARGIN_PARTS + metadata).min(space.free / 2);
        let each = (space.free - kept + osds.iter().map(|o| o.1).sum::<u64>()) / osds.len() as u64;
        parts.extend(osds.iter().map(|o| (o.0, each.max(o.1))));
    }
    Ok(parts)
}

/// Bytes the files in a folder take now.
fn files_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|f| f.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_hold_whole_numbers_of_the_largest_shards_and_many_fit_a_device() {
        for part in [100 * MIB, 500 * MIB, 2048 * MIB, 1 << 40] {
            let blocks = segment_bytes(part) / BLOCK - FRAME_BLOCKS;
            assert!(blocks % UNIT_BLOCKS == 0 && blocks <= UNITS_MAX * UNIT_BLOCKS, "{blocks}");
            assert!(part / segment_bytes(part) >= 24, "{part}");
        }
    }

    #[test]
    fn metadata_leaves_most_of_a_small_device_to_data() {
        assert!(metadata_bytes(128 * MIB) <= 52 * MIB, "{}", metadata_bytes(128 * MIB));
        assert!(metadata_bytes(2048 * MIB) <= 200 * MIB, "{}", metadata_bytes(2048 * MIB));
        assert!(metadata_bytes(1 << 40) <= (1 << 40) / 40);
    }
}
