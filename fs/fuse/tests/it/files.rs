//! File operations through a mount.

use crate::rig::{BINDINGS, Rig, can_mount};
use holdfast_fs_fuse::null::Null;
use holdfast_fs_fuse::passthrough::Passthrough;
use holdfast_fs_fuse::{Answer, Binding, Context, Filesystem, Forget, Op, flags};
use holdfast_objstore_base::buf::AlignedBuf;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn pass(binding: Binding) -> (Rig, tempfile::TempDir) {
    let back = tempfile::tempdir().unwrap();
    let fs = Passthrough::new(back.path().into()).unwrap();
    (Rig::start(binding, Arc::new(fs)), back)
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

/// A shared, writable mapping of a file's first bytes.
struct Mapping(*mut libc::c_void, usize);

impl Mapping {
    fn new(f: &File, len: usize) -> Self {
        use std::os::fd::AsRawFd;
        // SAFETY: a fresh mapping of an open file.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, f.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at, len)
    }
    #[expect(clippy::mut_from_ref, reason = "shared memory is what is being tested")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped for as long as this value lives; used by one thread.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), self.1) }
    }
    fn sync(&self) {
        // SAFETY: the whole mapping.
        assert_eq!(unsafe { libc::msync(self.0, self.1, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody else's.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// What any POSIX filesystem does.
pub fn exercise(m: PathBuf) {
    // Names.
    fs::create_dir(m.join("d")).unwrap();
    assert_eq!(fs::create_dir(m.join("d")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::write(m.join("d/a"), b"hello").unwrap();
    assert_eq!(fs::read(m.join("d/a")).unwrap(), b"hello");
    assert_eq!(fs::metadata(m.join("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(fs::remove_dir(m.join("d")).is_err(), "not empty");
    fs::rename(m.join("d/a"), m.join("b")).unwrap();
    assert!(!m.join("d/a").exists());
    fs::hard_link(m.join("b"), m.join("d/c")).unwrap();
    assert_eq!(fs::metadata(m.join("b")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(m.join("b")).unwrap().ino(), fs::metadata(m.join("d/c")).unwrap().ino());
    symlink("b", m.join("s")).unwrap();
    assert_eq!(fs::read_link(m.join("s")).unwrap(), Path::new("b"));
    assert_eq!(fs::read(m.join("s")).unwrap(), b"hello");

    // Attributes.
    fs::set_permissions(m.join("b"), fs::Permissions::from_mode(0o640)).unwrap();
    let f = OpenOptions::new().read(true).write(true).open(m.join("b")).unwrap();
    f.set_len(3).unwrap();
    let when = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 123_000_000);
    f.set_times(fs::FileTimes::new().set_modified(when)).unwrap();
    let meta = f.metadata().unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o7777, meta.modified().unwrap()), (3, 0o640, when));

    // Data: ends, holes, append, truncate, unlinked while open.
    f.write_all_at(b"end", 100_000).unwrap();
    let mut hole = [1u8; 10];
    f.read_exact_at(&mut hole, 50_000).unwrap();
    assert_eq!((hole, f.metadata().unwrap().len()), ([0; 10], 100_003));
    f.sync_data().unwrap();
    let mut app = OpenOptions::new().append(true).open(m.join("b")).unwrap();
    app.write_all(b"+1").unwrap();
    assert_eq!(f.metadata().unwrap().len(), 100_005);
    assert_eq!(f.read_at(&mut [0; 100], 100_005).unwrap(), 0);
    File::create(m.join("b")).unwrap();
    assert_eq!(fs::metadata(m.join("b")).unwrap().len(), 0);
    let big = pattern(5 << 20, 3);
    fs::write(m.join("big"), &big).unwrap();
    assert!(fs::read(m.join("big")).unwrap() == big, "5 MiB come back as they went");
    let mut open = File::open(m.join("big")).unwrap();
    fs::remove_file(m.join("big")).unwrap();
    open.seek(SeekFrom::Start(1 << 20)).unwrap();
    let mut tail = Vec::new();
    open.read_to_end(&mut tail).unwrap();
    assert!(tail == big[1 << 20..], "an unlinked file stays readable while it is open");

    // A shared mapping: what is stored in memory comes back through read(2), and the reverse.
    let f = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(m.join("map")).unwrap();
    f.set_len(3 * 4096 + 10).unwrap();
    let map = Mapping::new(&f, 3 * 4096 + 10);
    map.bytes()[4090..4100].copy_from_slice(b"0123456789");
    map.bytes()[3 * 4096 + 9] = b'!';
    map.sync();
    let (mut back, mut last) = ([0; 10], [0; 2]);
    f.read_exact_at(&mut back, 4090).unwrap();
    assert_eq!((&back, f.read_at(&mut last, 3 * 4096 + 9).unwrap(), last[0]), (b"0123456789", 1, b'!'));
    f.write_all_at(b"written", 100).unwrap();
    assert_eq!(&map.bytes()[100..107], b"written");
    drop((map, f));
    fs::remove_file(m.join("map")).unwrap();

    // Directories: more names than one buffer takes.
    fs::create_dir(m.join("many")).unwrap();
    for i in 0..1500 {
        File::create(m.join(format!("many/a-file-with-a-rather-long-name-{i}"))).unwrap();
    }
    assert_eq!(names(&m.join("many")).len(), 1500);
    fs::remove_dir_all(m.join("many")).unwrap();
    assert_eq!(names(&m), BTreeSet::from(["b".into(), "d".into(), "s".into()]));
    File::open(&m).unwrap().sync_all().unwrap();
}

#[test]
fn passthrough_does_file_operations_with_both_bindings() {
    for binding in BINDINGS {
        if !can_mount() {
            return;
        }
        let (rig, back) = pass(binding);
        rig.watched(exercise);
        assert_eq!(fs::read(back.path().join("d/c")).unwrap(), b"", "it is the backing directory's file");
        rig.end();
    }
}

#[test]
fn null_keeps_names_and_sizes_with_both_bindings() {
    for binding in BINDINGS {
        if !can_mount() {
            return;
        }
        let rig = Rig::start(binding, Arc::new(Null::new()));
        rig.watched(|m| {
            fs::create_dir(m.join("d")).unwrap();
            let f = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(m.join("d/f")).unwrap();
            f.write_all_at(&[7; 10_000], 2_000_000).unwrap();
            assert_eq!(f.metadata().unwrap().len(), 2_010_000);
            drop(f);
            let data = fs::read(m.join("d/f")).unwrap();
            assert_eq!((data.len(), data[0]), (2_010_000, 0));
            fs::rename(m.join("d/f"), m.join("g")).unwrap();
            for i in 0..700 {
                File::create(m.join(format!("d/{i}"))).unwrap();
            }
            assert_eq!(names(&m.join("d")).len(), 700);
            for i in 0..700 {
                fs::remove_file(m.join(format!("d/{i}"))).unwrap();
            }
            fs::remove_dir(m.join("d")).unwrap();
            assert_eq!(names(&m), BTreeSet::from(["g".into()]));
        });
        rig.end();
    }
}

#[test]
fn a_tree_survives_tar_and_git_through_passthrough() {
    if !can_mount() {
        return;
    }
    let (rig, _back) = pass(Binding::Dev);
    rig.watched(|m| {
        let run = |dir: &Path, cmd: &str| {
            let out = Command::new("sh").args(["-ec", cmd]).current_dir(dir).env("HOME", dir).env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
            assert!(out.status.success(), "{cmd}: {}", String::from_utf8_lossy(&out.stderr));
        };
        let src = tempfile::tempdir().unwrap();
        run(src.path(), "for d in 1 2 3 4 5; do mkdir -p a/$d; for f in 1 2 3 4 5 6 7 8 9 10; do seq 1 $((d * f * 50)) > a/$d/$f; done; done; ln -s 1/1 a/link; tar cf src.tar a");
        let tar = src.path().join("src.tar");
        run(&m, &format!("tar xf {}", tar.display()));
        run(&m, &format!("diff -r --no-dereference a {}", src.path().join("a").display()));
        let have_git = Command::new("git").arg("--version").output().is_ok_and(|o| o.status.success());
        if have_git {
            run(&m, "git -c init.defaultBranch=main init -q r && cp -r a r/ && cd r && git add . && git -c user.name=t -c user.email=t@t commit -qm one && git clone -q . ../c && git -C ../c fsck --strict && diff -r a ../c/a");
        } else {
            eprintln!("git is missing: only tar was tried");
        }
        run(&m, "rm -rf a r c && test -z \"$(ls -A)\"");
    });
    rig.end();
}

/// Notes whether large writes arrive where a device could take them.
struct Spy {
    inner: Passthrough,
    aligned: AtomicUsize,
    crooked: AtomicUsize,
}

impl Filesystem for Spy {
    fn handle(&self, c: Context, op: Op) -> Answer<'_> {
        if let Op::Write(w) = &op {
            let at = w.data.as_ptr() as usize;
            let counter = if at.is_multiple_of(4096) { &self.aligned } else { &self.crooked };
            counter.fetch_add(w.data.len(), Ordering::Relaxed);
        }
        self.inner.handle(c, op)
    }
    fn forget(&self, items: &[Forget]) {
        self.inner.forget(items);
    }
}

/// A temporary directory on a filesystem that takes O_DIRECT, if there is one.
fn direct_dir() -> Option<tempfile::TempDir> {
    for base in [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")] {
        let Ok(dir) = tempfile::tempdir_in(base) else { continue };
        let probe = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT).open(dir.path().join("probe"));
        if probe.is_ok() {
            fs::remove_file(dir.path().join("probe")).unwrap();
            return Some(dir);
        }
    }
    eprintln!("SKIPPED: no filesystem here takes O_DIRECT");
    None
}

#[test]
fn direct_writes_of_a_mebibyte_arrive_whole_and_aligned_and_read_back() {
    for binding in BINDINGS {
        let (true, Some(back)) = (can_mount(), direct_dir()) else { return };
        let inner = Passthrough::new(back.path().into()).unwrap();
        let spy = Arc::new(Spy { inner, aligned: AtomicUsize::new(0), crooked: AtomicUsize::new(0) });
        let rig = Rig::start(binding, spy.clone());
        rig.watched(|m| {
            let open = || {
                OpenOptions::new()
                    .create(true)
                    .truncate(false)
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_DIRECT)
                    .open(m.join("f"))
                    .unwrap()
            };
            let data = AlignedBuf::copy_of(&pattern(4 << 20, 9));
            let f = open();
            for i in 0..4usize {
                assert_eq!(f.write_at(&data[i << 20..(i + 1) << 20], (i as u64) << 20).unwrap(), 1 << 20);
            }
            f.write_all_at(&data[..4096], 4 << 20).unwrap();
            f.sync_data().unwrap();
            let mut back = AlignedBuf::zeroed(8 << 20);
            let n = open().read_at(&mut back, 0).unwrap();
            assert_eq!(n, (4 << 20) + 4096);
            assert!(back[..4 << 20] == data[..] && back[4 << 20..n] == data[..4096]);
        });
        assert_eq!((spy.aligned.load(Ordering::Relaxed), spy.crooked.load(Ordering::Relaxed)), ((4 << 20) + 4096, 0));
        if binding == Binding::Dev {
            assert_eq!(rig.flags & flags::HANDLE_KILLPRIV_V2, flags::HANDLE_KILLPRIV_V2);
        }
        rig.end();
    }
}

#[test]
fn many_direct_callers_at_once_get_their_own_bytes() {
    for binding in BINDINGS {
        let (true, Some(back)) = (can_mount(), direct_dir()) else { return };
        let rig = Rig::start(binding, Arc::new(Passthrough::new(back.path().into()).unwrap()));
        rig.watched(|m| {
            File::create(m.join("f")).unwrap().set_len(16 << 20).unwrap();
            std::thread::scope(|s| {
                for t in 0..16u8 {
                    let path = m.join("f");
                    s.spawn(move || {
                        let f = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
                        let (data, mut back) = (AlignedBuf::copy_of(&pattern(64 << 10, t)), AlignedBuf::zeroed(64 << 10));
                        for i in 0..16u64 {
                            let at = (i * 16 + u64::from(t)) * (64 << 10);
                            f.write_all_at(&data, at).unwrap();
                            if i % 5 == 0 {
                                f.sync_data().unwrap();
                            }
                            f.read_exact_at(&mut back, at).unwrap();
                            assert!(back[..] == data[..]);
                        }
                    });
                }
            });
        });
        rig.end();
    }
}
