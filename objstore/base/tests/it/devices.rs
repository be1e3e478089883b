//! Volumes on block devices: loop devices made by root, one for each test, gone at its end.

use crate::conformance::{block, read, suite};
use holdfast_objstore_base::disk::{Disk, Open, write_zeroes};
use holdfast_objstore_base::real::device;
use holdfast_objstore_base::real::probe::{Contents, contents};
use holdfast_objstore_base::real::{DeviceError, RealDisk, runtime};
use holdfast_objstore_base::units::{BLOCK, MIB};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A loop device over a sparse file.
struct Loop {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Loop {
    /// `None`, said aloud, where loop devices cannot be made: without root, or in a container without them.
    fn new(bytes: u64) -> Option<Loop> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
        let image = dir.path().join("image");
        std::fs::File::create(&image).and_then(|f| f.set_len(bytes)).expect("makes the image");
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&image).output();
        match made {
            Ok(o) if o.status.success() => {
                let path = PathBuf::from(String::from_utf8_lossy(&o.stdout).trim());
                Some(Loop { dir, path })
            }
            other => {
                eprintln!("skipped: no loop device can be made here: {other:?}");
                None
            }
        }
    }
    /// The file behind it, for damage. Its bytes are the device's when nobody has it open.
    fn image(&self) -> std::fs::File {
        std::fs::OpenOptions::new().read(true).write(true).open(self.dir.path().join("image")).expect("opens")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

#[test]
fn a_volume_keeps_the_promises_of_a_disk() {
    let Some(device) = Loop::new(128 * MIB) else { return };
    let disk = RealDisk::new();
    disk.format_device(&device.path, 7).expect("formats");
    runtime::block_on(suite(Arc::new(disk.clone()), &device.path)).expect("runs");
    assert!(disk.metrics().ring_ops() > 0 && disk.metrics().blocking_ops() > 0);
    assert!(!disk.exists(Path::new("/dev/other")) && disk.exists(Path::new("/proc")), "other paths go where they went");
}

#[test]
fn what_a_volume_made_stable_is_there_when_it_is_opened_again() {
    let Some(device) = Loop::new(128 * MIB) else { return };
    let at = |name: &str| device.path.join(name);
    let made = RealDisk::new();
    made.format_device(&device.path, 7).expect("formats");
    runtime::block_on(async {
        made.create_dir_all(&at("log")).expect("makes a folder");
        made.write_small(&at("superblock"), b"mine", 0o644).expect("writes");
        let f = made.open(&at("log/a"), Open::Create).expect("makes a file");
        let g = made.open(&at("log/b"), Open::Create).expect("makes a file");
        assert_eq!(f.domain(), g.domain(), "one device is one flush domain");
        // In turns, so that neither lies in one piece.
        for i in 1..=6 {
            f.set_len(i * MIB).expect("grows");
            g.set_len(i * MIB).expect("grows");
        }
        let parts = || (0..512).map(|i| block(i as u8)).collect::<Vec<_>>();
        f.write_at(MIB - 8 * BLOCK as u64, parts()).await.expect("writes over borders");
        f.flush().await.expect("flushes");
        assert_eq!(read(&*g, 0, 6 * 256).await, vec![0; 6 << 20], "growth reads as zeroes");
        let unsynced = made.open(&at("log/c"), Open::CreateNew).expect("makes a file");
        unsynced.set_len(MIB).expect("grows");
        let space = made.space(&device.path).expect("tells");
        assert_eq!(space.total - space.free, 13 * MIB);
    })
    .expect("runs");
    assert!(matches!(RealDisk::new().attach_device(&device.path), Err(DeviceError::InUse(_))), "one process at a time");
    drop(made);

    let again = RealDisk::new();
    assert_eq!(again.attach_device(&device.path).expect("opens"), 7);
    assert_eq!(contents(&device.path).expect("reads"), Contents::Volume(7));
    assert_eq!(again.list(&device.path).expect("lists"), ["log", "superblock"]);
    assert_eq!(again.read_small(&at("superblock")).expect("reads"), Some(b"mine".to_vec()));
    runtime::block_on(async {
        let f = again.open(&at("log/a"), Open::Existing).expect("is there");
        let got = read(&*f, MIB - 8 * BLOCK as u64, 512).await;
        assert!(got.chunks(BLOCK).enumerate().all(|(i, b)| b.iter().all(|x| *x == i as u8)));
        // Freed units come back only after the change is stable, and as zeroes.
        let before = again.space(&device.path).expect("tells").free;
        again.remove(&at("log/a")).expect("removes");
        assert_eq!(again.space(&device.path).expect("tells").free, before);
        again.sync_dir(&at("log")).expect("syncs");
        assert_eq!(again.space(&device.path).expect("tells").free, before + 6 * MIB);
        assert!(f.len().is_err_and(|e| e.is_not_found()));
        let h = again.open(&at("log/d"), Open::Create).expect("makes a file");
        h.set_len(6 * MIB).expect("grows");
        assert_eq!(read(&*h, 0, 6 * 256).await, vec![0; 6 << 20]);
    })
    .expect("runs");
}

#[test]
fn a_torn_directory_leaves_the_one_before_it() {
    let Some(device) = Loop::new(64 * MIB) else { return };
    let disk = RealDisk::new();
    disk.format_device(&device.path, 9).expect("formats");
    for text in ["one", "two", "three"] {
        disk.write_small(&device.path.join("f"), text.as_bytes(), 0o644).expect("writes");
    }
    drop(disk);
    // Generation 1 was the format's; the fourth lies in slot 0.
    let scratch = std::fs::OpenOptions::new().write(true).open(&device.path).expect("opens");
    scratch.write_all_at(&[0x5a; 100], MIB + 20).expect("damages");
    scratch.sync_all().expect("syncs");
    drop(scratch);
    let disk = RealDisk::new();
    disk.attach_device(&device.path).expect("opens");
    assert_eq!(disk.read_small(&device.path.join("f")).expect("reads"), Some(b"two".to_vec()));
    // And the next one goes over the damaged slot, not over the good one.
    disk.write_small(&device.path.join("f"), b"four", 0o644).expect("writes");
    drop(disk);
    let disk = RealDisk::new();
    disk.attach_device(&device.path).expect("opens");
    assert_eq!(disk.read_small(&device.path.join("f")).expect("reads"), Some(b"four".to_vec()));
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let Some(device) = Loop::new(64 * MIB) else { return };
    let disk = RealDisk::new();
    disk.format_device(&device.path, 9).expect("formats");
    let free = disk.space(&device.path).expect("tells").free;
    let f = disk.open(&device.path.join("f"), Open::Create).expect("makes a file");
    assert!(f.set_len(free + MIB).is_err_and(|e| e.is_no_space()));
    f.set_len(free).expect("takes all there is");
    runtime::block_on(async {
        assert!(f.write_at(free, vec![block(1)]).await.is_err_and(|e| e.is_no_space()));
        write_zeroes(&*f, 0, MIB).await.expect("writes");
        f.flush_all().await.expect("flushes");
    })
    .expect("runs");
    assert!(disk.write_small(&device.path.join("big"), &[0; 100 << 10], 0o644).is_err());
}

#[test]
fn devices_that_cannot_serve_are_refused() {
    let Some(small) = Loop::new(8 * MIB) else { return };
    assert!(matches!(RealDisk::new().format_device(&small.path, 1), Err(DeviceError::TooSmall { .. })));
    assert!(matches!(RealDisk::new().attach_device(&small.path), Err(DeviceError::NotAVolume(_))));
    let facts = device::facts(&small.path).expect("is a block device");
    assert_eq!((facts.bytes, facts.mounted, facts.read_only), (8 * MIB, None, false));
    assert!(device::facts(Path::new("/dev/null")).is_err() && !device::is_block_device(Path::new("/dev/null")));
    let cut = Loop::new(128 * MIB).expect("another");
    RealDisk::new().format_device(&cut.path, 1).expect("formats");
    cut.image().set_len(100 * MIB).expect("cuts");
    Command::new("losetup").arg("-c").arg(&cut.path).status().expect("tells the kernel");
    assert!(matches!(RealDisk::new().attach_device(&cut.path), Err(DeviceError::Shrunk { .. })));
}
