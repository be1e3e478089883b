//! Mount options, as `mount(8)` hands them over with `-o`.

use holdfast_objstore_base::units::{KIB, MIB, parse_size};
use std::path::PathBuf;

/// Which code talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// Our own loop on `/dev/fuse`.
    Dev,
    /// The `fuser` crate.
    Fuser,
}

/// How and where to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    pub mountpoint: PathBuf,
    /// What `df` and `/proc/mounts` show as the device.
    pub fsname: String,
    pub binding: Binding,
    pub read_only: bool,
    /// Users other than the mounting one may enter.
    pub allow_other: bool,
    /// The kernel checks permissions by mode, owner and group.
    pub default_permissions: bool,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
    pub atime: bool,
    /// Bytes of the largest WRITE and READ: 128 KiB to 1 MiB, whole pages.
    pub max_write: u32,
    /// Bytes the kernel reads ahead in its page cache.
    pub read_ahead: u32,
    /// Asynchronous requests in flight at once.
    pub max_background: u16,
    /// Worker threads of the `fuser` binding.
    pub threads: u16,
}

/// The range of `max_write`, bytes.
pub const MAX_WRITE_RANGE: std::ops::RangeInclusive<u32> = (128 * KIB as u32)..=(MIB as u32);

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            mountpoint: PathBuf::new(),
            fsname: "holdfast".into(),
            binding: Binding::Dev,
            read_only: false,
            allow_other: true,
            default_permissions: true,
            suid: false,
            dev: false,
            exec: true,
            atime: true,
            max_write: MIB as u32,
            read_ahead: MIB as u32,
            max_background: 128,
            threads: 4,
        }
    }
}

impl MountOptions {
    /// The defaults, at `mountpoint`.
    pub fn at(mountpoint: impl Into<PathBuf>) -> Self {
        Self { mountpoint: mountpoint.into(), ..Self::default() }
    }
}

/// Parses a comma-separated option string over the defaults. The error is a sentence for the user.
pub fn parse_options(text: &str) -> Result<MountOptions, String> {
    let mut o = MountOptions::default();
    for option in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        let (key, value) = match option.split_once('=') {
            Some((k, v)) => (k, Some(v)),
            None => (option, None),
        };
        match value {
            None => set_flag(&mut o, key)?,
            Some(value) => set_value(&mut o, key, value)?,
        }
    }
    Ok(o)
}

fn set_flag(o: &mut MountOptions, key: &str) -> Result<(), String> {
    match key {
        "rw" => o.read_only = false,
        "ro" => o.read_only = true,
        "dev" => o.dev = true,
        "nodev" => o.dev = false,
        "suid" => o.suid = true,
        "nosuid" => o.suid = false,
        "exec" => o.exec = true,
        "noexec" => o.exec = false,
        "atime" => o.atime = true,
        "noatime" => o.atime = false,
        "allow_other" => o.allow_other = true,
        "default_permissions" => o.default_permissions = true,
        "defaults" | "_netdev" => {}
        x if x.starts_with("x-") => {}
        _ => return Err(format!("unknown mount option '{key}'")),
    }
    Ok(())
}

fn set_value(o: &mut MountOptions, key: &str, value: &str) -> Result<(), String> {
    match key {
        "fsname" => {
            if value.is_empty() {
                return Err("mount option 'fsname' needs a name".into());
            }
            o.fsname = value.into();
        }
        "binding" => {
            o.binding = match value {
                "dev" => Binding::Dev,
                "fuser" => Binding::Fuser,
                _ => return Err(format!("mount option 'binding' is 'dev' or 'fuser', not '{value}'")),
            }
        }
        "max_write" => {
            let n = size(key, value)?;
            if !MAX_WRITE_RANGE.contains(&n) || !n.is_multiple_of(4096) {
                return Err(format!("mount option 'max_write' is from 128K to 1M in whole pages, not '{value}'"));
            }
            o.max_write = n;
        }
        "read_ahead" => o.read_ahead = size(key, value)?,
        "max_background" => o.max_background = count(key, value)?,
        "threads" => {
            o.threads = count(key, value)?;
            if o.threads > 64 {
                return Err(format!("mount option 'threads' is from 1 to 64, not '{value}'"));
            }
        }
        x if x.starts_with("x-") => {}
        _ => return Err(format!("unknown mount option '{key}'")),
    }
    Ok(())
}

fn size(key: &str, value: &str) -> Result<u32, String> {
    let n = parse_size(value).map_err(|e| format!("mount option '{key}': {e}"))?;
    u32::try_from(n).map_err(|_| format!("mount option '{key}': '{value}' is too large"))
}

fn count(key: &str, value: &str) -> Result<u16, String> {
    match value.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(format!("mount option '{key}' needs a number from 1 to 65535, not '{value}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mount_8_passes_is_taken_and_what_is_unknown_is_refused() {
        let o = parse_options(
            "rw,nosuid,nodev,noexec,noatime,_netdev,defaults,x-systemd.automount,x-a=b,binding=fuser,max_write=256K,threads=8",
        )
        .unwrap();
        assert_eq!((o.binding, o.max_write, o.threads), (Binding::Fuser, 256 << 10, 8));
        assert!(!o.read_only && !o.suid && !o.dev && !o.exec && !o.atime);
        let o = parse_options("ro,suid,dev,fsname=cluster,read_ahead=4M").unwrap();
        assert!(o.read_only && o.suid && o.dev && o.fsname == "cluster" && o.read_ahead == 4 << 20);
        assert_eq!(parse_options("").unwrap(), MountOptions::default());
        for bad in [
            "frobnicate",
            "ro=1",
            "binding=libfuse",
            "max_write=4K",
            "max_write=2M",
            "max_write=130000",
            "threads=0",
            "max_background=x",
            "fsname=",
            "a=b",
        ] {
            assert!(parse_options(bad).is_err(), "{bad}");
        }
    }
}
