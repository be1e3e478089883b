//! The kernel's mount table, read in one place.
//!
//! What always holds: a line that is not understood is left out; escapes are undone.
//! What it leaves out: mounting, and what a filesystem's options mean.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLine {
    /// `major:minor` of the filesystem's device, the name of its bdi.
    pub device: String,
    /// Where it is mounted.
    pub at: PathBuf,
    pub fs_type: String,
    /// What is mounted: a device in most cases.
    pub source: PathBuf,
    /// Options of the filesystem itself, separated by commas.
    pub super_options: String,
}

/// All mounts this process sees, in the order of the table: of two at one place the later hides the earlier.
pub fn mounts() -> std::io::Result<Vec<MountLine>> {
    Ok(parse_mounts(&String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo")?)))
}

/// `36 35 98:0 /root /at options … - fstype source superoptions`, with optional fields before the dash.
pub fn parse_mounts(mountinfo: &str) -> Vec<MountLine> {
    let line = |l: &str| {
        let (left, right) = l.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let device = left.next()?.to_string();
        let at = unescape(left.nth(1)?);
        let mut right = right.split(' ');
        let fs_type = right.next()?.to_string();
        let source = unescape(right.next()?);
        Some(MountLine { device, at, fs_type, source, super_options: right.next().unwrap_or_default().to_string() })
    };
    mountinfo.lines().filter_map(line).collect()
}

/// The table writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| first == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_escapes_and_nonsense_is_left_out() {
        let text = "36 35 0:52 / /mnt/a\\040b rw,noatime master:1 - fuse.holdfast holdfast:/d\\134 rw,user_id=0\n\
            40 1 8:1 / / rw - ext4 /dev/sda1 rw,discard\nnonsense\n\n1 2 3 - x\n";
        let m = parse_mounts(text);
        assert_eq!(m.len(), 2);
        let want = MountLine {
            device: "0:52".into(),
            at: "/mnt/a b".into(),
            fs_type: "fuse.holdfast".into(),
            source: "holdfast:/d\\".into(),
            super_options: "rw,user_id=0".into(),
        };
        assert_eq!(m[0], want);
        assert_eq!((m[1].fs_type.as_str(), m[1].super_options.as_str()), ("ext4", "rw,discard"));
        assert_eq!(unescape(r"\0"), PathBuf::from(r"\0"));
        assert_eq!(unescape(r"/a\"), PathBuf::from(r"/a\"));
    }

    #[test]
    fn this_process_has_a_root() {
        assert!(mounts().unwrap().iter().any(|m| m.at == std::path::Path::new("/")));
    }
}
