//! A block device before anything is done to it: what it is, who uses it, and the calls only block devices know.
//!
//! What always holds: looking changes nothing; a device is opened for writing only with O_EXCL, which the kernel refuses while it
//! is mounted, is swapped to, is part of an array or a volume group, or is held by another process like this one.
//! What it leaves out: what lies on it ([`super::probe`], [`super::volume`]).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

// From <linux/fs.h>: _IO(0x12, n) and _IOR(0x12, n, size_t).
const BLKROGET: libc::c_ulong = 0x125e;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKPBSZGET: libc::c_ulong = 0x127b;
const BLKZEROOUT: libc::c_ulong = 0x127f;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

/// What a block device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    pub path: PathBuf,
    /// As the kernel calls it, for example `sda1`.
    pub name: String,
    pub bytes: u64,
    /// The least it can write, bytes.
    pub logical_block: u32,
    /// The least it can write without reading first, bytes.
    pub physical_block: u32,
    pub read_only: bool,
    /// Vendor's name, or `unknown`.
    pub model: String,
    /// Where it, or one of its partitions, is mounted.
    pub mounted: Option<PathBuf>,
    /// Names of its partitions.
    pub partitions: Vec<String>,
    /// Names of the devices made of it (an array, a volume group, an encrypted volume).
    pub holders: Vec<String>,
}

pub fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// Looks at the block device at `path`.
pub fn facts(path: &Path) -> io::Result<DeviceFacts> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.file_type().is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a block device"));
    }
    let number = |rdev: u64| format!("{}:{}", libc::major(rdev), libc::minor(rdev));
    let id = number(meta.rdev());
    let sys = PathBuf::from(format!("/sys/dev/block/{id}")).canonicalize().unwrap_or_default();
    let names = |dir: &Path| -> Vec<String> {
        let mut all: Vec<String> =
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        all.sort_unstable();
        all
    };
    let partitions: Vec<String> = names(&sys).into_iter().filter(|n| sys.join(n).join("partition").exists()).collect();
    let mut ids = vec![id];
    ids.extend(partitions.iter().filter_map(|p| Some(std::fs::read_to_string(sys.join(p).join("dev")).ok()?.trim().to_string())));
    let mounted = super::mounts()?.into_iter().find(|m| ids.contains(&m.device)).map(|m| m.at);
    let model = ["device/model", "../device/model", "device/name"].iter().find_map(|f| std::fs::read_to_string(sys.join(f)).ok());
    Ok(DeviceFacts {
        path: path.to_path_buf(),
        name: sys.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        bytes: bytes_of(&file)?,
        logical_block: get::<libc::c_int>(&file, BLKSSZGET)? as u32,
        physical_block: get::<libc::c_uint>(&file, BLKPBSZGET)?,
        read_only: get::<libc::c_int>(&file, BLKROGET)? != 0,
        model: model.map(|m| m.trim().to_string()).filter(|m| !m.is_empty()).unwrap_or_else(|| "unknown".into()),
        mounted,
        partitions,
        holders: names(&sys.join("holders")),
    })
}

/// All block devices of this machine, as paths below `/dev`.
pub fn all_devices() -> Vec<PathBuf> {
    let names = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = names.map(|e| Path::new("/dev").join(e.file_name())).filter(|p| is_block_device(p)).collect();
    all.sort_unstable();
    all
}

/// Opens for direct reading and writing, exclusively: `EBUSY` when anybody else uses it.
pub(super) fn open_exclusively(path: &Path) -> io::Result<File> {
    // O_EXCL without O_CREAT means this to block devices only.
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_EXCL).open(path)
}

/// Whether this process could have the device for itself now: `EBUSY` when not.
pub fn check_unused(path: &Path) -> io::Result<()> {
    open_exclusively(path).map(drop)
}

pub(super) fn bytes_of(file: &File) -> io::Result<u64> {
    get::<u64>(file, BLKGETSIZE64)
}

fn get<T: Default>(file: &File, request: libc::c_ulong) -> io::Result<T> {
    let mut value = T::default();
    // SAFETY: `value` is a live place of the size that this request writes.
    if unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut value) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

fn range(file: &File, request: libc::c_ulong, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: the request reads two u64, which live for the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), request as _, range.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a range read as zeroes, by the device's own means where it has them. Not stable until a flush.
pub(super) fn zero_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    range(file, BLKZEROOUT, offset, len)
}

/// Tells the device that nothing in a range is needed any more. What it then holds is undefined.
pub(super) fn discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
    range(file, BLKDISCARD, offset, len)
}
