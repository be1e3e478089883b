//! The first start: everything a cluster's folders hold, written so that a half-done format is recognised.

use super::storage;
use crate::layout::{Layout, State};
use crate::{credentials, devices};
use anyhow::Context;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::{self, RealDisk};

/// Formats OSDs, metadata and credentials. The cluster file says `formatting` until all of it is durable.
pub fn format(layout: &Layout, disk: &RealDisk) -> anyhow::Result<()> {
    layout.write(disk, State::Formatting)?;
    devices::format(layout, disk)?;
    storage::format(layout, disk)?;
    let mut random = [0; 60];
    real::random_bytes(&mut random);
    credentials::store(disk, &layout.credentials(), &credentials::generate(random))?;
    for dir in &layout.dirs {
        disk.sync_dir(dir)?;
        if let Some(parent) = dir.parent() {
            disk.sync_dir(parent).with_context(|| format!("cannot sync {}", parent.display()))?;
        }
    }
    layout.write(disk, State::Ready)
}
