//! Which files of the machine share a flush.
//!
//! What always holds: files share a domain only where one fdatasync provably flushes the whole device: ext4 or xfs with
//! barriers on, without data journalling or a second device, opened for direct I/O. Everything else is a domain per file.

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
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    flushes_whole_device(&mounts, meta.dev()).then_some(meta.dev())
}

/// Reads mountinfo: whether every mount of `dev` is ext4 or xfs with options under which one file's fdatasync flushes all.
fn flushes_whole_device(mounts: &str, dev: u64) -> bool {
    let wanted = format!("{}:{}", libc::major(dev), libc::minor(dev));
    let mut seen = false;
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        if fields.nth(2) != Some(wanted.as_str()) {
            continue;
        }
        let Some((_, tail)) = line.split_once(" - ") else { return false };
        let mut tail = tail.split(' ');
        let (kind, options) = (tail.next().unwrap_or(""), tail.nth(1).unwrap_or(""));
        let unfit =
            |o: &str| matches!(o, "nobarrier" | "barrier=0" | "data=journal") || o.starts_with("logdev=") || o.starts_with("rtdev=");
        if !matches!(kind, "ext4" | "xfs") || options.split(',').any(unfit) {
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
        assert!(flushes_whole_device(LINE, dev));
        assert!(flushes_whole_device(&LINE.replace("ext4", "xfs"), dev));
        for bad in ["nobarrier", "barrier=0", "data=journal", "logdev=/dev/vdb"] {
            assert!(!flushes_whole_device(&format!("{LINE},{bad}"), dev), "{bad}");
        }
        assert!(!flushes_whole_device(&LINE.replace("ext4", "btrfs"), dev));
        assert!(!flushes_whole_device(LINE, libc::makedev(254, 1)), "an unknown device is not shared");
        assert!(!flushes_whole_device(&format!("{LINE}\n{LINE},nobarrier"), dev), "one unfit mount decides");
    }
}
