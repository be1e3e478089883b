//! The system calls, with owned descriptors and errors as values.

use crate::op::Time;
use crate::reply::Attr;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn cstring(path: &Path) -> io::Result<CString> {
    name(path.as_os_str().as_bytes())
}

pub fn name(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// -1 becomes the error it stands for.
pub fn check(rc: i64) -> io::Result<i64> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

pub fn open_at(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: `path` is a C string.
    let fd = check(i64::from(unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) }))? as RawFd;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens what an `O_PATH` descriptor names.
pub fn reopen(fd: RawFd, flags: i32) -> io::Result<OwnedFd> {
    open_at(libc::AT_FDCWD, &proc_path(fd), flags & !libc::O_NOFOLLOW, 0)
}

/// The path through which a descriptor's file can be named.
pub fn proc_path(fd: RawFd) -> CString {
    CString::new(format!("/proc/self/fd/{fd}")).expect("no zero byte in it")
}

/// The attributes of an open (or `O_PATH`) file.
pub fn stat(fd: RawFd) -> io::Result<libc::stat> {
    // SAFETY: plain data, for which zero is a valid value.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: an empty C string and a valid place for the answer.
    check(i64::from(unsafe { libc::fstatat(fd, c"".as_ptr(), &mut st, libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) }))?;
    Ok(st)
}

pub fn attr(st: &libc::stat) -> Attr {
    let time = |secs, nanos: i64| Time { secs, nanos: nanos as u32 };
    Attr {
        ino: st.st_ino,
        size: st.st_size as u64,
        blocks: st.st_blocks as u64,
        atime: time(st.st_atime, st.st_atime_nsec),
        mtime: time(st.st_mtime, st.st_mtime_nsec),
        ctime: time(st.st_ctime, st.st_ctime_nsec),
        mode: st.st_mode,
        nlink: st.st_nlink as u32,
        uid: st.st_uid,
        gid: st.st_gid,
        rdev: st.st_rdev as u32,
        blksize: st.st_blksize as u32,
    }
}

pub fn pread(fd: RawFd, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    // SAFETY: `buf` is valid for writes of its length.
    check(unsafe { libc::pread(fd, buf.as_mut_ptr().cast(), buf.len(), offset as i64) } as i64).map(|n| n as usize)
}

/// Writes all of `data`.
pub fn pwrite(fd: RawFd, data: &[u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < data.len() {
        let rest = &data[done..];
        // SAFETY: `rest` is valid for reads of its length.
        match check(unsafe { libc::pwrite(fd, rest.as_ptr().cast(), rest.len(), (offset + done as u64) as i64) } as i64) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Ok(n) => done += n as usize,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

pub fn sync(fd: RawFd, data_only: bool) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let rc = unsafe { if data_only { libc::fdatasync(fd) } else { libc::fsync(fd) } };
    check(i64::from(rc)).map(drop)
}

/// Lets this process open as many files as it may.
pub fn raise_open_files() {
    // SAFETY: plain data, for which zero is a valid value.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer, and a limit that was just read.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    if !raised {
        tracing::warn!("the limit of open files could not be raised");
    }
}

/// Fills `buf` with directory records from the descriptor's position on.
pub fn getdents(fd: &OwnedFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` is valid for writes of its length.
    let n = unsafe { libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buf.as_mut_ptr(), buf.len()) };
    check(n).map(|n| n as usize)
}
