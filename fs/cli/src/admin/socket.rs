//! Where the socket is, also below folders whose path is longer than a socket address can be.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const NAME: &str = "admin.sock";

/// A path to the socket through an open folder, short whatever the folder's own path. Valid while the file is open.
fn short(dir: &Path) -> io::Result<(File, PathBuf)> {
    let folder = File::open(dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()));
    Ok((folder, path))
}

/// Listens in `dir`, replacing the socket of a former process (the caller holds the folder's lock).
pub fn bind(dir: &Path) -> io::Result<tokio::net::UnixListener> {
    let (_folder, path) = short(dir)?;
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = tokio::net::UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

pub async fn connect(dir: &Path) -> io::Result<tokio::net::UnixStream> {
    let (_folder, path) = short(dir)?;
    tokio::net::UnixStream::connect(path).await
}

pub fn remove(dir: &Path) {
    // Nothing depends on it: the next start replaces it.
    let _ = std::fs::remove_file(dir.join(NAME));
}
