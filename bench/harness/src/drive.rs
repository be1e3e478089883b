//! The block device below a path, in one line.
//!
//! What always holds: it is only described, never opened.

use crate::machine::{self, read};
use anyhow::Context;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// For example `vda, 252 GiB, ssd, scheduler mq-deadline, write-back cache`.
pub fn describe(path: &Path) -> anyhow::Result<String> {
    let device = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?.dev();
    let link = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let Ok(mut sys) = Path::new(&link).canonicalize() else {
        // Not one device (overlay, btrfs, zfs): name what is mounted.
        let mount = machine::mount_of(path)?;
        return Ok(format!("{} ({})", mount.source, mount.fstype));
    };
    let name = sys.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if sys.join("partition").exists() {
        sys.pop();
    }
    let mut parts = vec![name];
    let model = read(sys.join("device/model"));
    if model != "unknown" {
        parts.push(model);
    }
    if let Ok(sectors) = read(sys.join("size")).parse::<u64>() {
        parts.push(format!("{} GiB", sectors / 2 / (1 << 20)));
    }
    parts.push(if read(sys.join("queue/rotational")) == "1" { "rotating" } else { "not rotating" }.into());
    let schedulers = read(sys.join("queue/scheduler"));
    if let Some(live) = schedulers.split(['[', ']']).nth(1) {
        parts.push(format!("scheduler {live}"));
    }
    parts.push(format!("{} cache", read(sys.join("queue/write_cache"))));
    Ok(parts.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_path_has_a_drive() {
        assert!(!super::describe(std::path::Path::new("/")).unwrap().is_empty());
        assert!(super::describe(std::path::Path::new("/no/such")).is_err());
    }
}
