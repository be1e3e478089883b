//! Which files of the machine share a flush.
//!
//! What always holds: files share a domain only where one fdatasync provably flushes the whole device: ext4 or xfs with
//! barriers on, without data journalling or a second device, opened for direct I/O. Everything else is a domain per file.

use super::MountLine;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

const EXT4_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;

/// The device number to share flushes by, or `None` for a domain per file.
pub(super) fn shared_device(file: &File) -> Option<u64> {
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return None;
    }
    let mut fs: libc::statfs = {
        // SAFETY: statfs is plain data; zero is a valid value of it.
        unsafe { std::mem::zeroed() }
    };
    // SAFETY: the descriptor is open and `fs` is a valid place for the answer.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut fs) } != 0 {
        return None;
    }
    if !matches!(fs.f_type as i64, EXT4_MAGIC | XFS_MAGIC) {
        return None;
    }
    let mounts = super::mounts().ok()?;
    flushes_whole_device(&mounts, meta.dev()).then_some(meta.dev())
}

/// Whether every mount of `dev` is ext4 or xfs with options under which one file's fdatasync flushes all.
fn flushes_whole_device(mounts: &[MountLine], dev: u64) -> bool {
    let wanted = format!("{}:{}", libc::major(dev), libc::minor(dev));
    let mut seen = false;
    for mount in mounts.iter().filter(|m| m.device == wanted) {
        let unfit =
            |o: &str| matches!(o, "nobarrier" | "barrier=0" | "data=journal") || o.starts_with("logdev=") || o.starts_with("rtdev=");
        if !matches!(mount.fs_type.as_str(), "ext4" | "xfs") || mount.super_options.split(',').any(unfit) {
            return false;
        }
        seen = true;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard";

    #[test]
    fn only_ext4_and_xfs_with_barriers_share_a_flush() {
        let dev = libc::makedev(254, 0);
        let fit = |text: &str, dev| flushes_whole_device(&super::super::parse_mounts(text), dev);
        assert!(fit(LINE, dev));
        assert!(fit(&LINE.replace("ext4", "xfs"), dev));
        for bad in ["nobarrier", "barrier=0", "data=journal", "logdev=/dev/vdb"] {
            assert!(!fit(&format!("{LINE},{bad}"), dev), "{bad}");
        }
        assert!(!fit(&LINE.replace("ext4", "btrfs"), dev));
        assert!(!fit(LINE, libc::makedev(254, 1)), "an unknown device is not shared");
        assert!(!fit(&format!("{LINE}\n{LINE},nobarrier"), dev), "one unfit mount decides");
    }
}
