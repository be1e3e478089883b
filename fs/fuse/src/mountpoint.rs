//! The mount point: what is there now, mounting on it, and taking the mount away.

use crate::options::MountOptions;
use holdfast_objstore_base::real::{MountLine, mounts};
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// The filesystem type in `/proc/mounts`.
pub const FS_TYPE: &str = "fuse.holdfast";
/// How long a mount that is already there may take to say whether it is alive.
const STAT_MAX: Duration = Duration::from_secs(5);

/// Why a mount failed; each is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("the mount point {} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("the mount point {} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    #[error("something is already mounted on {}", .0.display())]
    Busy(PathBuf),
    #[error("{} was left behind by another filesystem that died; unmount it first", .0.display())]
    Dead(PathBuf),
    #[error("/dev/fuse is missing: load the kernel module 'fuse', or give the container the device")]
    NoDevice,
    #[error("not permitted to mount on {}: mounting needs root (CAP_SYS_ADMIN)", .0.display())]
    NotPermitted(PathBuf),
    #[error("the kernel speaks FUSE {major}.{minor}; at least 7.31 is needed")]
    OldKernel { major: u32, minor: u32 },
    #[error("mounting on {} failed: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// How an unmount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used it: it is gone, everything it cached has been written.
    Clean,
    /// Files were open or directories in use: it is out of the tree and ends with its last user.
    Detached,
    /// There was nothing to unmount.
    Absent,
}

/// The mount on top at exactly this (canonical) path.
pub(crate) fn mounted_at(path: &Path) -> io::Result<Option<MountLine>> {
    Ok(mounts()?.into_iter().rfind(|m| m.at == path))
}

/// The absolute path of a mount point without touching what may be mounted on it.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let whole = parent.canonicalize()?.join(name);
            // A symbolic link is followed; a dead mount is not one, and cannot even be asked.
            match whole.symlink_metadata() {
                Ok(m) if m.file_type().is_symlink() => whole.canonicalize(),
                _ => Ok(whole),
            }
        }
        _ => path.canonicalize(),
    }
}

/// `stat`, given up on after a while: a live mount whose daemon hangs would never answer.
fn stat_errno(path: &Path) -> i32 {
    let (tx, rx) = mpsc::channel();
    let path = path.to_path_buf();
    let asked = std::thread::Builder::new().name("fuse-stat".into()).spawn(move || {
        let errno = std::fs::metadata(path).err().and_then(|e| e.raw_os_error()).unwrap_or(0);
        // The asker may have given up.
        let _ = tx.send(errno);
    });
    match asked {
        Ok(_) => rx.recv_timeout(STAT_MAX).unwrap_or(0),
        Err(_) => 0,
    }
}

/// Checks that `path` can be mounted on, and clears away a mount of ours whose daemon died. The canonical path.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    let io = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(path.into()),
        io::ErrorKind::NotADirectory => MountError::NotDirectory(path.into()),
        io::ErrorKind::PermissionDenied => MountError::NotPermitted(path.into()),
        _ => MountError::Io { path: path.into(), error },
    };
    let real = canonical(path).map_err(io)?;
    while let Some(there) = mounted_at(&real).map_err(io)? {
        if stat_errno(&real) != libc::ENOTCONN {
            return Err(MountError::Busy(real));
        }
        if there.fs_type != FS_TYPE {
            return Err(MountError::Dead(real));
        }
        umount2(&real, libc::MNT_DETACH).map_err(io)?;
        tracing::warn!(mountpoint = %real.display(), "cleared away a mount whose daemon had died");
    }
    if !std::fs::metadata(&real).map_err(io)?.is_dir() {
        return Err(MountError::NotDirectory(real));
    }
    Ok(real)
}

/// Whether a mount on `path` can be tried: what [`crate::mount`] would refuse before it asks the kernel is refused here. A mount of ours
/// whose daemon died is cleared away.
pub fn check_mountpoint(path: &Path) -> Result<(), MountError> {
    let real = prepare(path)?;
    crate::mount::open_device(&real, false).map(drop)
}

fn cstring(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// mount(2) with an opened `/dev/fuse`. The kernel queues INIT on it and returns.
pub(crate) fn mount(fd: RawFd, path: &Path, o: &MountOptions) -> Result<(), MountError> {
    let mut flags = 0;
    for (on, bit) in [
        (o.read_only, libc::MS_RDONLY),
        (!o.suid, libc::MS_NOSUID),
        (!o.dev, libc::MS_NODEV),
        (!o.exec, libc::MS_NOEXEC),
        (!o.atime, libc::MS_NOATIME),
    ] {
        if on {
            flags |= bit;
        }
    }
    // SAFETY: these calls only read ids of this process.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mut data = format!("fd={fd},rootmode={:o},user_id={uid},group_id={gid}", libc::S_IFDIR);
    if o.allow_other {
        data.push_str(",allow_other");
    }
    if o.default_permissions {
        data.push_str(",default_permissions");
    }
    let call = || -> io::Result<()> {
        let (source, target) = (cstring(o.fsname.as_bytes())?, cstring(path.as_os_str().as_bytes())?);
        let (kind, data) = (cstring(FS_TYPE.as_bytes())?, cstring(data.as_bytes())?);
        // SAFETY: all five are strings ended by a zero byte that outlive the call.
        let rc = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    call().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => MountError::NotPermitted(path.into()),
        Some(libc::EBUSY) => MountError::Busy(path.into()),
        Some(libc::ENODEV) => MountError::NoDevice,
        _ => MountError::Io { path: path.into(), error },
    })
}

pub(crate) fn umount2(path: &Path, flags: i32) -> io::Result<()> {
    let target = cstring(path.as_os_str().as_bytes())?;
    // SAFETY: a string ended by a zero byte that outlives the call.
    let rc = unsafe { libc::umount2(target.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unmounts in order; detaches when the mount is in use. The kernel first writes what it holds dirty, which the mount's own loop
/// must still serve: never call this on the loop's thread.
pub(crate) fn unmount(path: &Path) -> io::Result<Unmounted> {
    match umount2(path, 0) {
        Ok(()) => Ok(Unmounted::Clean),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(Unmounted::Absent),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            umount2(path, libc::MNT_DETACH)?;
            Ok(Unmounted::Detached)
        }
        Err(e) => Err(e),
    }
}

/// Ends the connection at once and takes the mount out of the tree; waits for nobody.
pub(crate) fn abort(path: &Path) -> io::Result<()> {
    umount2(path, libc::MNT_FORCE | libc::MNT_DETACH)
}

/// Writes the kernel's read-ahead for the mount, which INIT can only lower.
pub(crate) fn set_read_ahead(path: &Path, bytes: u32) -> io::Result<()> {
    let line = mounted_at(path)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    std::fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", line.device), (bytes / 1024).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_mount_point_and_a_file_are_refused_with_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let missing = prepare(&dir.path().join("nowhere")).unwrap_err();
        assert!(missing.to_string().contains("does not exist"), "{missing}");
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        assert!(matches!(prepare(&file).unwrap_err(), MountError::NotDirectory(_)));
        assert!(matches!(prepare(&file.join("below")).unwrap_err(), MountError::NotDirectory(_)));
        assert!(matches!(prepare(Path::new("/proc")).unwrap_err(), MountError::Busy(_)));
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(prepare(dir.path()).unwrap(), real);
    }
}
