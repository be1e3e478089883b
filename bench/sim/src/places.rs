//! What the cluster knows of its OSDs from start to start, as the cluster file of `holdfast up` does: which there are and how they stand,
//! and what was seen of each log: one that shows less is a copy of a former time, and is not believed.
//!
//! What it leaves out: copies of the file on other devices than the one that is never hurt.

use crate::devices::{Devices, folder};
use crate::plan::META_DEVICE;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_osd::{Osd, log};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How an OSD stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    #[default]
    In,
    /// It is being made.
    Forming,
    /// It is being emptied.
    Draining,
}

/// What is known of one OSD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    pub log_id: u128,
    /// The epoch of its log's newest open, and its newest record known to be stable.
    pub opened: u64,
    pub stable: u64,
    pub standing: Standing,
}

/// Known OSDs by number.
pub type Places = BTreeMap<u16, Place>;

fn file() -> PathBuf {
    folder(META_DEVICE).join("places")
}

fn encode(places: &Places) -> String {
    places.iter().map(|(id, p)| format!("{id} {} {} {} {:?}\n", p.log_id, p.opened, p.stable, p.standing)).collect()
}

fn decode(text: &str) -> Option<Places> {
    let line = |l: &str| {
        let words: Vec<&str> = l.split(' ').collect();
        let [id, log_id, opened, stable, standing] = words[..] else { return None };
        let standing = [Standing::In, Standing::Forming, Standing::Draining].into_iter().find(|s| format!("{s:?}") == standing)?;
        let place = Place { log_id: log_id.parse().ok()?, opened: opened.parse().ok()?, stable: stable.parse().ok()?, standing };
        Some((id.parse().ok()?, place))
    };
    text.lines().map(line).collect()
}

/// What is known.
pub fn load(disk: &Devices) -> Places {
    let bytes = disk.read_small(&file()).ok().flatten().unwrap_or_default();
    decode(&String::from_utf8_lossy(&bytes)).expect("only this wrote it, on a device that is not hurt")
}

/// Changes it, durably.
pub fn change<T>(disk: &Devices, change: impl FnOnce(&mut Places) -> T) -> Result<T, String> {
    let mut places = load(disk);
    let answer = change(&mut places);
    disk.write_small(&file(), encode(&places).as_bytes(), 0o644).map_err(|e| e.to_string())?;
    Ok(answer)
}

/// Writes down what is known of each OSD in service. Once it is open, what was being made is made.
pub fn remember<'a>(disk: &Devices, osds: impl Iterator<Item = &'a Osd>) -> Result<(), String> {
    change(disk, |places| {
        for osd in osds {
            let ((opened, stable), superblock) = (osd.reached(), osd.superblock());
            let Some(place) = places.get_mut(&superblock.osd.0) else { continue };
            let standing = if place.standing == Standing::Forming { Standing::In } else { place.standing };
            *place = Place { log_id: superblock.log_id, opened, stable, standing };
        }
    })
}

/// Refuses a log that is not the one known, or was opened before the known one was. It must not be opened: that makes it look newer.
pub fn went_back(disk: &dyn Disk, log_dir: &Path, log_id: u128, known: &Place) -> Result<(), String> {
    if log_id != known.log_id {
        return Err("stale: it was replaced by another since".into());
    }
    match log::identity(disk, log_dir) {
        Ok(root) if root.epoch < known.opened => {
            Err(format!("stale: it was opened {} times, and the cluster opened it {} times", root.epoch, known.opened))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_survives_both_ways() {
        let place = |n, standing| Place { log_id: u128::MAX - n as u128, opened: n, stable: 7 * n, standing };
        let all = Places::from([(0, place(1, Standing::In)), (3, place(2, Standing::Draining)), (9, place(3, Standing::Forming))]);
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(decode("1 2 x 3 In"), None);
    }
}
