//! What a folder of the metadata service says of itself: `meta.super`, drawn in `docs/formats/state.md`.
//!
//! ```text
//!  0  8  magic "HFSTMETA"
//!  8  4  version, little-endian (1)
//! 12  4  condition, little-endian: 1 being formatted, 2 ready, 3 ready and from before (restored from an image, or with a log that may not
//!        be the newest), not yet confirmed, 4 being rebuilt from a snapshot in the pool, 5 as 3, and 6 as 2, with an incarnation to raise
//! 16 16  cluster id
//! 32 28  zero
//! 60  4  CRC-32C of bytes 0 to 59, little-endian
//! ```
//! Valid: 64 bytes, magic, checksum. The reader looks at the version before anything that follows it, and refuses a newer one.
//!
//! What always holds: it is `ready` only when everything in the folder is there durably.
//! What it leaves out: making the rest (`format`), and who uses the folder (the caller's lock file).

use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::disk::{Disk, DiskError};
use std::path::{Path, PathBuf};

const NAME: &str = "meta.super";
const MAGIC: &[u8; 8] = b"HFSTMETA";
const VERSION: u32 = 1;
const LEN: usize = 64;
const FORMATTING: u32 = 1;
const READY: u32 = 2;
const RESTORED: u32 = 3;
const REBUILDING: u32 = 4;
const RESTORED_TO_RAISE: u32 = 5;
const READY_TO_RAISE: u32 = 6;

/// The cluster a folder belongs to.
pub type ClusterId = [u8; 16];

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing, or no folder: it may be formatted.
    Nothing,
    /// Of this cluster, whole.
    Ready(ClusterId),
    /// Formatting began and did not end.
    HalfFormatted(ClusterId),
    /// Of this cluster; its state is being rebuilt from a snapshot, which did not end.
    HalfRebuilt(ClusterId),
    /// Written by a newer program.
    Newer { version: u32 },
    /// Other files (one of them is named), without a superblock.
    Foreign(String),
    /// The superblock cannot be what this program wrote.
    Damaged(String),
}

fn encode(cluster: ClusterId, condition: u32) -> [u8; LEN] {
    let mut b = [0; LEN];
    b[..8].copy_from_slice(MAGIC);
    b[8..12].copy_from_slice(&VERSION.to_le_bytes());
    b[12..16].copy_from_slice(&condition.to_le_bytes());
    b[16..32].copy_from_slice(&cluster);
    let crc = crc32c(&b[..60]);
    b[60..].copy_from_slice(&crc.to_le_bytes());
    b
}

fn word(b: &[u8; LEN], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn decode(bytes: &[u8]) -> Found {
    let damaged = |why: &str| Found::Damaged(why.to_owned());
    if bytes.len() < 12 || &bytes[..8] != MAGIC {
        return damaged("it does not begin as one");
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    if version > VERSION {
        return Found::Newer { version };
    }
    let Ok(b) = <&[u8; LEN]>::try_from(bytes) else { return damaged("wrong length") };
    if word(b, 60) != crc32c(&b[..60]) {
        return damaged("wrong checksum");
    }
    let cluster = b[16..32].try_into().expect("16 bytes");
    match (version, word(b, 12)) {
        (VERSION, FORMATTING) => Found::HalfFormatted(cluster),
        (VERSION, READY | RESTORED | READY_TO_RAISE | RESTORED_TO_RAISE) => Found::Ready(cluster),
        (VERSION, REBUILDING) => Found::HalfRebuilt(cluster),
        _ => damaged("unknown version or condition"),
    }
}

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Looks at a folder without changing it.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<Found, DiskError> {
    if let Some(bytes) = disk.read_small(&dir.join(NAME))? {
        return Ok(decode(&bytes));
    }
    if !disk.exists(dir) {
        return Ok(Found::Nothing);
    }
    Ok(match disk.list(dir)?.into_iter().next() {
        None => Found::Nothing,
        Some(name) => Found::Foreign(name),
    })
}

/// Where the durable state lies in a folder.
pub(crate) fn state_path(dir: &Path) -> PathBuf {
    dir.join("state.redb")
}

/// Where the log lies in a folder.
pub(crate) fn wal_path(dir: &Path) -> PathBuf {
    dir.join("wal")
}

/// Says that formatting a folder has begun; first in it.
pub(crate) fn write_begun(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> Result<(), DiskError> {
    disk.write_small(&dir.join(NAME), &encode(cluster, FORMATTING), 0o600)
}

/// Says that all of it is there; last in it.
pub(crate) fn write_ready(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> Result<(), DiskError> {
    disk.write_small(&dir.join(NAME), &encode(cluster, READY), 0o600)
}

/// Says that all of it is there, from an image: until an operator confirms, what the state does not know must not be deleted.
pub(crate) fn write_restored(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> Result<(), DiskError> {
    disk.write_small(&dir.join(NAME), &encode(cluster, RESTORED), 0o600)
}

/// Says that the state is being rebuilt from a snapshot; what the folder held of it is void.
pub(crate) fn write_rebuilding(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> Result<(), DiskError> {
    disk.write_small(&dir.join(NAME), &encode(cluster, REBUILDING), 0o600)
}

/// Whether a folder lacks the state: its device was made anew, or the state is being rebuilt there. Never when there is a state that
/// cannot be used for another reason.
pub fn is_lost(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    Ok(match inspect(disk, dir)? {
        Found::Nothing | Found::HalfRebuilt(_) => true,
        Found::Ready(_) | Found::Foreign(_) => !disk.exists(&state_path(dir)) && only_log(disk, dir)?,
        Found::HalfFormatted(_) | Found::Newer { .. } | Found::Damaged(_) => false,
    })
}

/// Whether there is a file with a state in a folder.
pub fn has_state(disk: &dyn Disk, dir: &Path) -> bool {
    disk.exists(&state_path(dir))
}

/// Whether a folder holds nothing but a copy of the log and what says of itself what it is.
fn only_log(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    Ok(disk.list(dir)?.iter().all(|name| name == "wal" || name.starts_with(NAME) || name.starts_with("ballast.")))
}

/// The condition of a folder that is whole.
fn condition(disk: &dyn Disk, dir: &Path) -> Result<Option<u32>, DiskError> {
    let Some(bytes) = disk.read_small(&dir.join(NAME))? else { return Ok(None) };
    let whole = <&[u8; LEN]>::try_from(&bytes[..]).ok().filter(|b| matches!(decode(&b[..]), Found::Ready(_)));
    Ok(whole.map(|b| word(b, 12)))
}

/// Whether the state is one from before (it was restored from an image, or a log was taken that may not be the newest), and no operator has
/// confirmed it yet.
pub fn is_restored(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    Ok(condition(disk, dir)?.is_some_and(|c| matches!(c, RESTORED | RESTORED_TO_RAISE)))
}

/// Whether the incarnation is to be raised before anybody is served.
pub(crate) fn is_to_raise(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    Ok(condition(disk, dir)?.is_some_and(|c| matches!(c, READY_TO_RAISE | RESTORED_TO_RAISE)))
}

/// Says that the log lacks commands that were answered, or may: the incarnation is to be raised, and where it may be more than the last
/// moment (`before`), an operator is to confirm.
pub(crate) fn write_to_raise(disk: &dyn Disk, dir: &Path, cluster: ClusterId, before: bool) -> Result<(), DiskError> {
    let restored = before || is_restored(disk, dir)?;
    disk.write_small(&dir.join(NAME), &encode(cluster, if restored { RESTORED_TO_RAISE } else { READY_TO_RAISE }), 0o600)
}

/// Says that the incarnation has been raised.
pub(crate) fn write_raised(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> Result<(), DiskError> {
    let restored = is_restored(disk, dir)?;
    disk.write_small(&dir.join(NAME), &encode(cluster, if restored { RESTORED } else { READY }), 0o600)
}

/// An operator confirms what was restored: from now on what the state does not know may be deleted.
pub fn confirm(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> Result<(), DiskError> {
    write_ready(disk, dir, cluster)
}

/// Samples for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    [FORMATTING, READY, RESTORED, REBUILDING, RESTORED_TO_RAISE, READY_TO_RAISE]
        .map(|condition| encode([7; 16], condition).to_vec())
        .to_vec()
}

/// The bytes as they are, and with a right checksum.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    sealed.resize(LEN, 0);
    let crc = crc32c(&sealed[..60]);
    sealed[60..].copy_from_slice(&crc.to_le_bytes());
    for b in [bytes, &sealed] {
        match decode(b) {
            Found::Ready(id) => assert_eq!(decode(&encode(id, READY)), Found::Ready(id)),
            Found::HalfFormatted(id) => assert_eq!(decode(&encode(id, FORMATTING)), Found::HalfFormatted(id)),
            Found::HalfRebuilt(id) => assert_eq!(decode(&encode(id, REBUILDING)), Found::HalfRebuilt(id)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_says_what_the_folder_is() {
        let id = [7; 16];
        assert_eq!(decode(&encode(id, READY)), Found::Ready(id));
        assert_eq!(decode(&encode(id, RESTORED)), Found::Ready(id));
        assert_eq!(decode(&encode(id, FORMATTING)), Found::HalfFormatted(id));
        let mut newer = encode(id, READY);
        newer[8] = 9;
        assert_eq!(decode(&newer[..40]), Found::Newer { version: 9 });
        for at in 0..LEN {
            for bit in 0..8 {
                let mut b = encode(id, READY);
                b[at] ^= 1 << bit;
                assert!(!matches!(decode(&b), Found::Ready(_) | Found::HalfFormatted(_)), "byte {at} bit {bit}");
            }
        }
        for len in 0..LEN {
            assert!(matches!(decode(&encode(id, READY)[..len]), Found::Damaged(_)));
        }
    }
}
