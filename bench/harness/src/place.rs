//! Where the rungs keep their files: a hidden folder beside the data, and one inside the mount.
//!
//! What always holds: both are gone afterwards, also after an error; nothing else is ever removed. What a killed run
//! left behind is cleared by the next one. Nothing is removed through a mounted filesystem but by its own mount.
//! What it leaves out: mounting.

use crate::machine;
use anyhow::{Context, bail, ensure};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = ".holdfast-bench.";
const MIB: u64 = 1 << 20;
/// A smaller file measures caches and luck.
const FILE_BYTES_MIN: u64 = 64 * MIB;

/// Bytes of the file: large enough to outgrow the host's cache a little, or small enough to be quick.
pub fn file_bytes_wanted(quick: bool) -> u64 {
    if quick { 256 * MIB } else { 4096 * MIB }
}

/// Folders of one run, removed when dropped.
pub struct Scratch {
    /// The raw rung's file, and what the passthrough serves.
    pub raw: PathBuf,
    /// Empty; the passthrough is mounted here.
    pub pass: PathBuf,
    /// Job files and fio's reports.
    pub work: PathBuf,
    /// The mount rung's file.
    pub mount: PathBuf,
}

impl Scratch {
    /// Makes the folders: three in a hidden one in `beside`, one in `mount`.
    pub fn make(beside: &Path, mount: &Path) -> anyhow::Result<Scratch> {
        sweep(beside);
        sweep(mount);
        let name = format!("{PREFIX}{}", std::process::id());
        let (root, mount) = (beside.join(&name), mount.join(&name));
        let scratch = Scratch { raw: root.join("raw"), pass: root.join("pass"), work: root.join("work"), mount };
        for dir in [&root, &scratch.raw, &scratch.pass, &scratch.work, &scratch.mount] {
            std::fs::create_dir(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.mount);
        if let Some(root) = self.raw.parent() {
            clear(root);
        }
    }
}

/// Removes the folder `Scratch` made beside the data. `pass` is only removed when empty: never through a mount.
fn clear(root: &Path) {
    for dir in ["raw", "work"] {
        let _ = std::fs::remove_dir_all(root.join(dir));
    }
    let pass = root.join("pass");
    if std::fs::remove_dir(&pass).is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound) {
        unmount_dead(&pass);
        let _ = std::fs::remove_dir(&pass);
    }
    let _ = std::fs::remove_dir(root);
}

/// A killed run leaves its passthrough mounted with nobody to answer: detach it, as root or as the user who mounted it.
fn unmount_dead(pass: &Path) {
    let Ok(name) = std::ffi::CString::new(pass.as_os_str().as_bytes()) else { return };
    // SAFETY: the pointer is valid for the call; only a folder of our own naming is ever given.
    if unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) } != 0 {
        let quiet = std::process::Stdio::null;
        let mut command = std::process::Command::new("fusermount3");
        let _ = command.args(["-u", "-z"]).arg(pass).stdout(quiet()).stderr(quiet()).status();
    }
}

/// Clears what runs that no longer live left in `dir`: a name of ours, its process gone.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        let dead = pid.is_some_and(|pid| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists());
        // Never through a link: in a folder others write to it could lead anywhere.
        if dead && entry.file_type().is_ok_and(|t| t.is_dir()) {
            clear(&entry.path());
            // What is in a mount has no folders below it but files of fio.
            for file in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let ours = file.file_name().to_string_lossy().starts_with("holdfast-fio");
                if ours {
                    let _ = std::fs::remove_file(file.path());
                }
            }
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The folder for the raw rung: `raw_dir`, or the one that holds `data`. It must be on the device of `data`.
pub fn beside(data: &Path, raw_dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    let data = data.canonicalize().with_context(|| format!("cannot find the data folder {}", data.display()))?;
    let dir = match raw_dir {
        Some(dir) => dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?,
        None => data.parent().context("the data folder has no folder above it")?.to_path_buf(),
    };
    let device = |path: &Path| Ok::<_, std::io::Error>(path.metadata()?.dev());
    ensure!(
        device(&data)? == device(&dir)?,
        "{} is not on the device of {}: the raw rung must run on the same one, so keep the data in a subfolder of its filesystem",
        dir.display(),
        data.display()
    );
    Ok(dir)
}

/// Refuses a folder that only looks like a mount: its figures would be the device's own.
pub fn check_mounted(mount: &Path) -> anyhow::Result<()> {
    let found = machine::mount_of(mount)?;
    let here = mount.canonicalize()? == found.at;
    if !here || !found.fstype.starts_with("fuse") {
        bail!("{} is not a mount point of Holdfast: start 'holdfast up DIR --mount {0}' first", mount.display());
    }
    Ok(())
}

/// The size all rungs use: the wanted one, halved until it fits twice beside the data and four times in the mount
/// (a log keeps what was overwritten until a whole segment is dead).
pub fn file_bytes(wanted: u64, free_beside: u64, free_mount: u64) -> anyhow::Result<u64> {
    let mut bytes = wanted;
    while bytes * 2 > free_beside || bytes * 4 > free_mount {
        bytes /= 2;
        ensure!(
            bytes >= FILE_BYTES_MIN,
            "too little room to measure: {} MiB free beside the data, {} MiB in the mount; at least {} and {} are needed",
            free_beside / MIB,
            free_mount / MIB,
            2 * FILE_BYTES_MIN / MIB,
            4 * FILE_BYTES_MIN / MIB
        );
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_leaves_nothing_behind_and_clears_after_the_killed() {
        let (beside, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // No process has this number: it is above the kernel's limit.
        let dead = format!("{PREFIX}99999999");
        for dir in ["raw", "pass", "work"] {
            std::fs::create_dir_all(beside.path().join(&dead).join(dir)).unwrap();
        }
        std::fs::create_dir(mount.path().join(&dead)).unwrap();
        std::fs::write(mount.path().join(&dead).join("holdfast-fio.0"), "x").unwrap();
        // Neither is this ours: init lives, and the other has another name.
        std::fs::create_dir(beside.path().join(format!("{PREFIX}1"))).unwrap();
        std::fs::create_dir(mount.path().join("user")).unwrap();

        let scratch = Scratch::make(beside.path(), mount.path()).unwrap();
        std::fs::write(scratch.raw.join("holdfast-fio.dat"), "x").unwrap();
        std::fs::write(scratch.mount.join("holdfast-fio.dat"), "x").unwrap();
        drop(scratch);
        let names = |dir: &Path| -> Vec<String> {
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(beside.path()), [format!("{PREFIX}1")]);
        assert_eq!(names(mount.path()), ["user"]);
    }

    #[test]
    fn the_file_shrinks_to_what_fits_and_no_further() {
        let gib = 1024 * MIB;
        assert_eq!(file_bytes(4 * gib, 100 * gib, 100 * gib).unwrap(), 4 * gib);
        assert_eq!(file_bytes(4 * gib, 3 * gib, 100 * gib).unwrap(), gib);
        assert_eq!(file_bytes(4 * gib, 100 * gib, 3 * gib).unwrap(), gib / 2);
        let error = file_bytes(gib, 100 * MIB, gib).unwrap_err().to_string();
        assert!(error.contains("100 MiB free beside the data"), "{error}");
    }

    #[test]
    fn a_plain_folder_is_not_taken_for_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        let error = check_mounted(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is not a mount point of Holdfast"), "{error}");
        assert!(check_mounted(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn raw_lies_beside_the_data_on_its_device() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        assert_eq!(beside(&data, None).unwrap(), dir.path().canonicalize().unwrap());
        let error = beside(&data, Some(Path::new("/proc"))).unwrap_err().to_string();
        assert!(error.contains("not on the device"), "{error}");
    }
}
