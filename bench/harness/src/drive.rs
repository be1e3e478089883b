//! The block device below a path, in one line.
//!
//! What always holds: it is only described, never opened.

use crate::machine::{self, read};
use anyhow::Context;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// For example `vda, 252 GiB, ssd, scheduler mq-deadline, write-back cache`.
pub fn describe(path: &Path) -> anyhow::Result<String> {
    let meta = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    // A path may be the device itself.
    let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
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
    parts.push(kind(&sys, &read(sys.join("queue/rotational"))).into());
    let schedulers = read(sys.join("queue/scheduler"));
    if let Some(live) = schedulers.split(['[', ']']).nth(1) {
        parts.push(format!("scheduler {live}"));
    }
    parts.push(format!("{} cache", read(sys.join("queue/write_cache"))));
    Ok(parts.join(", "))
}

/// What turns, or does not. A paravirtual disk's flag says nothing of what lies behind it.
fn kind(sys: &Path, rotational: &str) -> &'static str {
    let on = |name: &str| sys.components().any(|c| c.as_os_str().to_string_lossy().starts_with(name));
    match rotational {
        _ if on("virtio") => "virtual (virtio)",
        _ if on("vbd-") => "virtual (xen)",
        _ if on("loop") => "a file (loop)",
        "1" => "rotating",
        _ => "not rotating",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_virtual_disk_is_not_said_to_turn() {
        let kind = |sys: &str, rotational| super::kind(std::path::Path::new(sys), rotational);
        assert_eq!(kind("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda", "1"), "virtual (virtio)");
        assert_eq!(kind("/sys/devices/virtual/block/loop3", "1"), "a file (loop)");
        assert_eq!(kind("/sys/devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda", "1"), "rotating");
        assert_eq!(kind("/sys/devices/pci0000:00/nvme/nvme0/nvme0n1", "0"), "not rotating");
    }

    #[test]
    fn a_block_device_is_described_itself() {
        // Loop devices may come and go meanwhile; a machine without any device has nothing to describe.
        let all = holdfast_objstore_base::real::device::all_devices();
        if let Some(device) = all.iter().find(|d| !d.to_string_lossy().contains("loop")) {
            let said = super::describe(device).unwrap();
            assert!(said.starts_with(&*device.file_name().unwrap().to_string_lossy()), "{said}");
        }
    }

    #[test]
    fn any_path_has_a_drive() {
        assert!(!super::describe(std::path::Path::new("/")).unwrap().is_empty());
        assert!(super::describe(std::path::Path::new("/no/such")).is_err());
    }
}
