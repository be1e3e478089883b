//! What lies on a block device, by the marks that filesystems and the like leave at known places.
//!
//! What always holds: only reads. What it leaves out: contents without a mark, of which nobody can tell whose they are.

use super::volume;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offset from the start, bytes found there, what that is.
const MARKS: &[(u64, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS filesystem"),
    (1024 + 56, &[0x53, 0xef], "an ext2, ext3 or ext4 filesystem"),
    (0x10000 + 64, b"_BHRfS_M", "a Btrfs filesystem"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS filesystem"),
    (4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a bcache or bcachefs device"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (54, b"FAT1", "a FAT filesystem"),
    (82, b"FAT32", "a FAT filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (0, b"hsqs", "a SquashFS filesystem"),
    (0, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS filesystem"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS filesystem"),
    (0x10034, b"ReIsEr", "a ReiserFS filesystem"),
    (0x8000, b"JFS1", "a JFS filesystem"),
    (0x10000, &[0x01, 0x16, 0x19, 0x70], "a GFS2 filesystem"),
    (4096 - 10, b"SWAPSPACE2", "swap space"),
    (4096 - 10, b"SWAP-SPACE", "swap space"),
    (16384 - 10, b"SWAPSPACE2", "swap space"),
    (65536 - 10, b"SWAPSPACE2", "swap space"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
    (0, b"bluestore block device", "a Ceph OSD"),
    (0, &[0xeb, 0x48, 0x90, b'Z', b'F', b'S'], "a ZFS pool"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
];

/// Bytes of the start that hold every mark above and ZFS's first label.
const HEAD_BYTES: usize = 256 << 10;
/// Bytes of the end that hold a GPT's copy and md superblocks of versions 0.90 and 1.0.
const TAIL_BYTES: u64 = 160 << 10;

/// What was found on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// No mark of anything known.
    Nothing,
    /// An OSD's volume with this id.
    Volume(u128),
    /// Something else: `an XFS filesystem`, say.
    Foreign(String),
}

/// Reads the marks of the device (or file) at `path`.
pub fn contents(path: &Path) -> io::Result<Contents> {
    let file = File::open(path)?;
    let bytes = super::device::bytes_of(&file).or_else(|_| file.metadata().map(|m| m.len()))?;
    let mut head = vec![0; HEAD_BYTES.min(bytes as usize)];
    file.read_exact_at(&mut head, 0)?;
    let start = bytes.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; (bytes - start) as usize];
    file.read_exact_at(&mut tail, start)?;
    Ok(judge(&head, &tail, bytes))
}

fn judge(head: &[u8], tail: &[u8], bytes: u64) -> Contents {
    if let Some(id) = volume::claimed_id(head) {
        return Contents::Volume(id);
    }
    let at = |offset: u64, mark: &[u8]| head.get(offset as usize..offset as usize + mark.len()) == Some(mark);
    if let Some((_, _, what)) = MARKS.iter().find(|(offset, mark, _)| at(*offset, mark)) {
        return Contents::Foreign((*what).into());
    }
    let base = bytes - tail.len() as u64;
    let in_tail = |offset: Option<u64>, mark: &[u8]| {
        let from = offset.and_then(|o| o.checked_sub(base)).map(|o| o as usize);
        from.is_some_and(|f| tail.get(f..f + mark.len()) == Some(mark))
    };
    if [512, 4096].iter().any(|b| in_tail(bytes.checked_sub(*b), b"EFI PART")) {
        return Contents::Foreign("a partition table (GPT, its copy at the end)".into());
    }
    // Version 1.0: at least 8 KiB from the end, on a 4 KiB border; 0.90: in the last whole 64 KiB but one.
    let md = [0xfc, 0x4e, 0x2b, 0xa9];
    let (v1, v0) = ((bytes & !4095).checked_sub(8192), (bytes & !65535).checked_sub(65536));
    if in_tail(v1, &md) || in_tail(v0, &md) {
        return Contents::Foreign("a member of an md array".into());
    }
    // ZFS: the uberblocks of the first label, little- or big-endian.
    let zfs = |m: [u8; 8]| (128 << 10..HEAD_BYTES as u64).step_by(1024).any(|o| at(o, &m));
    if zfs(0x00ba_b10cu64.to_le_bytes()) || zfs(0x00ba_b10cu64.to_be_bytes()) {
        return Contents::Foreign("a ZFS pool".into());
    }
    // Last: boot sectors of filesystems end like this too.
    let entries = head.get(446..510).unwrap_or_default().chunks(16);
    if at(510, &[0x55, 0xaa]) && entries.clone().all(|e| matches!(e[0], 0 | 0x80)) && entries.clone().any(|e| e[4] != 0) {
        return Contents::Foreign("a partition table (MBR)".into());
    }
    Contents::Nothing
}

/// For fuzzing: starts of devices.
#[cfg(feature = "fuzzing")]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let with = |offset: u64, mark: &[u8]| [&vec![0; offset as usize][..], mark].concat();
    MARKS.iter().filter(|m| m.0 < 8192).map(|(offset, mark, _)| with(*offset, mark)).collect()
}

/// The bytes as a device's start and end.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let _ = judge(bytes, bytes, bytes.len() as u64);
    let tail = &bytes[bytes.len() / 2..];
    let _ = judge(bytes, tail, bytes.len() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 4 << 20;

    fn device(marks: &[(u64, &[u8])]) -> Contents {
        let mut all = vec![0; BYTES as usize];
        for (offset, mark) in marks {
            all[*offset as usize..*offset as usize + mark.len()].copy_from_slice(mark);
        }
        judge(&all[..HEAD_BYTES], &all[(BYTES - TAIL_BYTES) as usize..], BYTES)
    }

    #[test]
    fn every_mark_is_found_and_named() {
        for (offset, mark, what) in MARKS {
            assert_eq!(device(&[(*offset, mark)]), Contents::Foreign((*what).into()), "{what} at {offset}");
        }
        let says = |c: Contents, word: &str| assert!(matches!(&c, Contents::Foreign(w) if w.contains(word)), "{c:?}");
        says(device(&[(BYTES - 512, b"EFI PART")]), "GPT");
        says(device(&[(BYTES - 8192, &[0xfc, 0x4e, 0x2b, 0xa9])]), "md");
        says(device(&[(BYTES - 65536, &[0xfc, 0x4e, 0x2b, 0xa9])]), "md");
        says(device(&[(132 << 10, &0x00ba_b10cu64.to_le_bytes())]), "ZFS");
        says(device(&[(446 + 4, &[0x83]), (510, &[0x55, 0xaa])]), "MBR");
    }

    #[test]
    fn nothing_is_found_where_there_is_nothing_known() {
        assert_eq!(device(&[]), Contents::Nothing);
        assert_eq!(device(&[(510, &[0x55, 0xaa])]), Contents::Nothing, "a boot sector without partitions is none");
        assert_eq!(device(&[(5000, b"just some bytes")]), Contents::Nothing);
        assert_eq!(judge(&[0; 512], &[0; 512], 512), Contents::Nothing, "a tiny device");
    }
}
