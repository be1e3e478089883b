//! On which devices the metadata log is kept, and what `status` says of that.
//!
//! What always holds: folders on one device are one failure domain and get one copy between them; nothing is written to a folder that is
//! not there or not this cluster's.
//! What it leaves out: which copies count (`meta/log`).

use crate::layout::{self, Layout, Standing};
use holdfast_meta_log::raft::mirror::{Config, Folder, Place};
use holdfast_meta_log::{Devices, Mirror};
use holdfast_objstore_base::disk::Disk;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Set to 1 it makes each data folder count as a device of its own, so that a machine with one disk can try what several do. It makes
/// nothing safer: copies on one device are lost together.
const SEPARATE: &str = "HOLDFAST_TEST_FOLDERS_ARE_DEVICES";

/// How the log of this cluster is kept.
pub fn config(layout: &Layout, disk: &dyn Disk, accept_stale: bool) -> Config {
    let (present, kept) = (present(layout, disk), kept(layout));
    Config {
        dirs: layout.dirs.iter().map(|d| log_dir(d)).collect(),
        copies: layout.code.m as usize + 1,
        marks: layout.dirs.iter().map(|d| d.join(layout::FILE)).collect(),
        devices: Some(one_per_device(layout, present.iter().filter(|p| kept.contains(p)))),
        kept: Some(kept),
        present: Some(present),
        accept_stale,
        ..Config::default()
    }
}

/// What the log of a running cluster is told when its folders have changed. `renewed`: those that lie on another device than before, or were made anew.
pub fn devices(layout: &Layout, disk: &dyn Disk, renewed: Vec<Place>) -> Devices {
    let (present, kept) = (present(layout, disk), kept(layout));
    let folder = |(place, dir): (usize, &PathBuf)| Folder {
        dir: log_dir(dir),
        mark: Some(dir.join(layout::FILE)),
        present: present.contains(&(place as Place)),
    };
    let folders = layout.dirs.iter().enumerate().map(folder).collect();
    Devices { folders, devices: one_per_device(layout, present.iter().filter(|p| kept.contains(p))), kept, renewed }
}

/// Whether the metadata is kept on several devices: its log in copies, its state by snapshots in the pool.
pub fn several(layout: &Layout, disk: &dyn Disk) -> bool {
    layout.code.m > 0 && one_per_device(layout, present(layout, disk).iter()).len() > 1
}

fn log_dir(dir: &Path) -> PathBuf {
    dir.join("meta").join("wal")
}

/// Folders that are there and this cluster's.
fn present(layout: &Layout, disk: &dyn Disk) -> Vec<Place> {
    let is = |dir: &Path| layout.fresh || matches!(layout::read(disk, dir), Ok(Some(_)));
    layout.dirs.iter().enumerate().filter(|(_, d)| is(d)).map(|(i, _)| i as Place).collect()
}

/// Folders that stay in the cluster, there or not: those of the OSDs that stay, and the one that keeps the metadata's state.
fn kept(layout: &Layout) -> Vec<Place> {
    let stays = |index: &usize| {
        let osd = layout.places.iter().any(|p| p.dir == *index && p.life.state != Standing::Draining);
        osd || layout.dirs[*index] == layout.home()
    };
    (0..layout.dirs.len()).filter(stays).map(|i| i as Place).collect()
}

/// Of folders the first one on each device.
fn one_per_device<'a>(layout: &Layout, of: impl Iterator<Item = &'a Place>) -> Vec<Place> {
    let separate = std::env::var(SEPARATE).is_ok_and(|v| v == "1");
    let mut seen = BTreeSet::new();
    let first = |place: &&Place| separate || device(&layout.dirs[**place as usize]).is_none_or(|d| seen.insert(d));
    of.filter(first).copied().collect()
}

/// The device a folder lies on; a missing one lies where its nearest ancestor does.
fn device(dir: &Path) -> Option<u64> {
    dir.ancestors().find_map(|a| std::fs::metadata(a).ok()).map(|m| m.dev())
}

/// One sentence for each thing that is not as it should be.
pub fn reasons(mirrors: &[Mirror], notes: &[String]) -> Vec<String> {
    let mut reasons: Vec<String> = mirrors
        .iter()
        .filter(|m| matches!(m.role, "lost" | "late" | "filling"))
        .map(|m| {
            let why = m.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
            format!("the copy of the metadata log in {} is {}{why}", m.dir.display(), m.role)
        })
        .collect();
    reasons.extend(notes.iter().cloned());
    reasons
}

/// For `status`.
pub fn shown(mirrors: &[Mirror]) -> Value {
    let one = |m: &Mirror| json!({ "path": m.dir, "role": m.role, "lag_records": m.lag_records, "lag_bytes": m.lag_bytes, "why": m.why });
    mirrors.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_does_not_count_is_named_with_its_reason() {
        let mirror = |role, why: Option<&str>| Mirror {
            dir: "/d/meta/wal".into(),
            role,
            lag_records: 3,
            lag_bytes: 4,
            why: why.map(str::to_string),
        };
        let all = [mirror("copy", None), mirror("spare", None), mirror("lost", Some("a flush failed")), mirror("filling", None)];
        let said = reasons(&all, &["a note".into()]);
        assert_eq!(said.len(), 3);
        assert!(said[0].contains("/d/meta/wal") && said[0].contains("lost") && said[0].contains("a flush failed"), "{said:?}");
        assert_eq!(shown(&all)[0]["lag_records"], 3);
    }
}
