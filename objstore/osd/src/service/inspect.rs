//! What a folder is, without changing it: so that a start can refuse with one sentence.

use super::superblock::{self, Superblock};
use crate::log::format::Bad;
use holdfast_objstore_base::disk::{self, Disk};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::OsdId;
use std::path::Path;

/// What was found in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspect {
    /// Missing, or without any file.
    Empty,
    /// It holds something that is not an OSD's; the first name.
    Foreign(String),
    /// A format did not end. It holds no data.
    HalfFormatted,
    /// Written by a newer program, of this format version.
    NewerFormat(u32),
    /// An OSD's folder whose superblock is not readable: why.
    Damaged(String),
    Osd(Superblock),
}

impl Inspect {
    /// The OSD and the cluster it belongs to, when it is a whole one.
    pub fn identity(&self) -> Option<(u128, OsdId)> {
        match self {
            Inspect::Osd(s) => Some((s.cluster, s.osd)),
            _ => None,
        }
    }
}

/// Looks at `dir`. Errors are the device's.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> disk::Result<Inspect> {
    if !disk.exists(dir) {
        return Ok(Inspect::Empty);
    }
    let names = disk.list(dir)?;
    let ours = |n: &String| n.starts_with(superblock::FILE) || n == superblock::LOG_DIR;
    if let Some(foreign) = names.iter().find(|n| !ours(n) && *n != "lost+found") {
        return Ok(Inspect::Foreign(foreign.clone()));
    }
    let Some(bytes) = disk.read_small(&dir.join(superblock::FILE))? else {
        // The superblock comes first and goes last; a log without one was not made by a format.
        return Ok(if names.iter().any(|n| n == superblock::LOG_DIR) {
            Inspect::Damaged("it has no superblock".into())
        } else {
            Inspect::Empty
        });
    };
    Ok(match Superblock::decode(&bytes) {
        Ok(s) if s.whole => Inspect::Osd(s),
        Ok(_) => {
            failpoint::reached("osd.half_formatted");
            Inspect::HalfFormatted
        }
        Err(Bad::Newer(v)) => Inspect::NewerFormat(v),
        Err(bad) => {
            failpoint::reached("osd.superblock_damaged");
            Inspect::Damaged(format!("its superblock: {bad}"))
        }
    })
}
