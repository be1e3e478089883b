//! The folders copies may lie in, one in each data folder, by place. More come while the log is open; none changes its place.
//!
//! What always holds: nothing is written to a folder whose mark is not there at that moment: its device was taken away, and what is at that path now
//! is another's.

use super::{Config, Place};
use holdfast_objstore_base::disk::Disk;
use parking_lot::RwLock;
use std::path::PathBuf;

/// A folder for a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub dir: PathBuf,
    /// A file without which the folder is not there, or not this cluster's. `None`: it always is.
    pub mark: Option<PathBuf>,
    /// What whoever opened the log found.
    pub present: bool,
}

impl Folder {
    /// Whether something may be written to it now. Looks at the disk.
    pub fn is_there(&self, disk: &dyn Disk) -> bool {
        self.present && self.mark.as_ref().is_none_or(|m| disk.exists(m))
    }
}

#[derive(Debug, Default)]
pub struct Folders(RwLock<Vec<Folder>>);

impl Folders {
    /// As the configuration says; `dirs` where it says nothing.
    pub fn new(config: &Config, dirs: Vec<PathBuf>) -> Self {
        let dirs = if config.dirs.is_empty() { dirs } else { config.dirs.clone() };
        let folder = |(place, dir): (usize, PathBuf)| Folder {
            dir,
            mark: config.marks.get(place).cloned(),
            present: config.present.as_ref().is_none_or(|there| there.contains(&(place as Place))),
        };
        Self(RwLock::new(dirs.into_iter().enumerate().map(folder).collect()))
    }

    pub fn get(&self, place: Place) -> Option<Folder> {
        self.0.read().get(place as usize).cloned()
    }

    /// Of a place that is named: the folder, or an empty path where there is none.
    pub fn dir(&self, place: Place) -> PathBuf {
        self.get(place).map(|f| f.dir).unwrap_or_default()
    }

    pub fn all(&self) -> Vec<Folder> {
        self.0.read().clone()
    }

    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Takes in how they are now. What is known stays in its place.
    pub fn update(&self, now: Vec<Folder>) {
        let mut all = self.0.write();
        for (place, folder) in now.into_iter().enumerate() {
            match all.get_mut(place) {
                Some(known) => (known.present, known.mark) = (folder.present, folder.mark),
                None => all.push(folder),
            }
        }
    }

    /// The first one, to name the log by.
    pub fn first(&self) -> PathBuf {
        self.dir(0)
    }
}
