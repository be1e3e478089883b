//! One live process per data folder.

use crate::layout::LOCK;
use anyhow::{Context, bail};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Held for the life of the process; the kernel drops it with the process, however that ends.
pub struct Lock {
    _file: File,
}

/// Locks a data folder, which must exist.
pub fn take(dir: &Path) -> anyhow::Result<Lock> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    // SAFETY: a plain call on a descriptor that lives for the call.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        bail!("{} is in use by a running holdfast process; stop that one first", dir.display());
    }
    Ok(Lock { _file: file })
}

/// Whether a live process holds the folder; for checks before anything is written.
pub fn is_held(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join(LOCK)) else { return false };
    // SAFETY: as above.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) != 0 }
}
