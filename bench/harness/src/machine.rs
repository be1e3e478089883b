//! What machine this is: kernel, processor, memory, and the mounts below a path.
//!
//! What always holds: what cannot be found out is called `unknown`, never guessed.

use anyhow::Context;
use holdfast_objstore_base::real::{MountLine, mounts};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub fn kernel() -> String {
    let release = read("/proc/sys/kernel/osrelease");
    format!("Linux {release} {}", std::env::consts::ARCH)
}

/// Model name and what it is called on other architectures.
pub fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    field("model name").or_else(|| field("Model")).or_else(|| field("CPU part")).unwrap_or_else(|| "unknown".into())
}

pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

pub fn memory_bytes() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = info.lines().find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.unwrap_or(0u64) << 10
}

/// One line of a small file, or `unknown`.
pub fn read(path: impl AsRef<Path>) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { "unknown".into() } else { line.to_string() }
}

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    pub fstype: String,
    pub source: String,
}

/// The filesystem that holds `path` (which must exist).
pub fn mount_of(path: &Path) -> anyhow::Result<Mount> {
    let real = path.canonicalize().with_context(|| format!("cannot look at {}", path.display()))?;
    let all = mounts().context("cannot read the mount table")?;
    covering(all, &real).with_context(|| format!("{} is on no mounted filesystem", real.display()))
}

fn covering(mounts: Vec<MountLine>, path: &Path) -> Option<Mount> {
    let over = mounts.into_iter().filter(|m| path.starts_with(&m.at));
    // Of mounts at the same place the last hides the others; `max_by_key` returns the last of equals.
    let m = over.max_by_key(|m| m.at.components().count())?;
    Some(Mount { at: m.at, fstype: m.fs_type, source: m.source.to_string_lossy().into_owned() })
}

/// Bytes an ordinary user may still write below `path`.
pub fn free_bytes(path: &Path) -> anyhow::Result<u64> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
    // SAFETY: all zeroes is a valid statvfs, which the call then fills in.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    let result = unsafe { libc::statvfs(name.as_ptr(), &mut stat) };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("cannot look at {}", path.display()));
    }
    Ok(stat.f_bavail as u64 * stat.f_frsize as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_base::real::parse_mounts;

    const INFO: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 22 0:25 / /srv rw - tmpfs tmpfs rw\n\
        40 30 0:40 / /srv/my\\040mount rw,nosuid - fuse.holdfast holdfast rw,user_id=0\n";

    #[test]
    fn the_mount_of_a_path_is_the_deepest_that_covers_it() {
        let at = |p: &str| covering(parse_mounts(INFO), Path::new(p)).unwrap();
        assert_eq!((at("/home/x").fstype.as_str(), at("/srv/x").fstype.as_str()), ("ext4", "tmpfs"));
        assert_eq!(at("/srv/my mount/a").fstype, "fuse.holdfast");
        assert_eq!(at("/srvx").at, Path::new("/"));
    }

    #[test]
    fn this_machine_can_be_described() {
        assert!(kernel().starts_with("Linux ") && cores() > 0 && memory_bytes() > 1 << 20);
        assert!(free_bytes(Path::new("/")).is_ok());
        assert!(!mount_of(Path::new("/proc/self")).unwrap().fstype.is_empty());
    }
}
