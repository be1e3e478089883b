//! Mounting and unmounting: refusals, what a dead daemon leaves behind, ends.

use crate::rig::{BINDINGS, Rig, can_mount, is_mounted};
use holdfast_fs_fuse::null::Null;
use holdfast_fs_fuse::{Answer, Context, Filesystem, MountError, MountOptions, Op, Reply, Unmounted, mount};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn an_unused_mount_ends_clean_and_a_used_one_is_detached() {
    for binding in BINDINGS {
        if !can_mount() {
            return;
        }
        let rig = Rig::start(binding, Arc::new(Null::new()));
        let mnt = rig.mnt();
        rig.watched(|m| fs::write(m.join("f"), b"x").unwrap());
        assert_eq!(rig.end(), Unmounted::Clean);
        assert!(!is_mounted(&mnt));

        let rig = Rig::start(binding, Arc::new(Null::new()));
        let mnt = rig.mnt();
        let file = rig.watched(|m| File::create(m.join("f")).unwrap());
        assert_eq!(rig.unmounter.unmount_blocking().unwrap(), Unmounted::Detached);
        assert!(!is_mounted(&mnt));
        // Still served to its last user.
        rig.watched(move |_| drop((file.metadata().unwrap(), file)));
        assert_eq!(rig.unmounter.unmount_blocking().unwrap(), Unmounted::Absent);
    }
}

#[test]
fn a_mount_that_is_dropped_unserved_is_taken_away_and_its_callers_fail() {
    if !can_mount() {
        return;
    }
    for binding in BINDINGS {
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions { binding, ..MountOptions::at(dir.path()) };
        let mounted = mount(&options, Arc::new(Null::new())).unwrap();
        assert!(is_mounted(dir.path()));
        let path = dir.path().to_path_buf();
        let caller = std::thread::spawn(move || fs::metadata(path.join("x")).map(drop));
        drop(mounted);
        assert!(!is_mounted(dir.path()));
        assert!(caller.join().unwrap().is_err());
    }
}

#[test]
fn a_busy_mount_point_is_refused_and_a_dead_one_of_ours_is_cleared_away() {
    if !can_mount() {
        return;
    }
    let rig = Rig::start(BINDINGS[0], Arc::new(Null::new()));
    let busy = mount(&MountOptions::at(rig.mnt()), Arc::new(Null::new())).unwrap_err();
    assert!(matches!(busy, MountError::Busy(_)), "{busy}");
    assert!(busy.to_string().contains("already mounted"));
    rig.end();

    // What a killed daemon leaves: mounted, but nobody holds the device.
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("mnt");
    fs::create_dir(&at).unwrap();
    leave_dead_mount(&at, "fuse.holdfast");
    assert_eq!(fs::metadata(&at).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    drop(mount(&MountOptions::at(&at), Arc::new(Null::new())).unwrap());
    assert!(!is_mounted(&at));

    leave_dead_mount(&at, "fuse.other");
    let foreign = mount(&MountOptions::at(&at), Arc::new(Null::new())).unwrap_err();
    crate::rig::abort(&at);
    assert!(matches!(foreign, MountError::Dead(_)), "{foreign}");
}

fn leave_dead_mount(at: &std::path::Path, kind: &str) {
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let c = |s: String| std::ffi::CString::new(s).unwrap();
    let data = c(format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd()));
    let (source, target, kind) = (c("dead".into()), c(at.to_str().unwrap().into()), c(kind.into()));
    // SAFETY: four C strings.
    let rc = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, data.as_ptr().cast()) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
}

/// Answers every second lookup late, to see that others go on meanwhile; counts interrupts.
struct Slow {
    gate: tokio::sync::Semaphore,
    waiting: AtomicU64,
    interrupted: AtomicU64,
}

impl Filesystem for Slow {
    fn handle(&self, _: Context, op: Op) -> Answer<'_> {
        match op {
            Op::Lookup(l) if l.name.starts_with(b"slow") => Answer::Later(Box::pin(async {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _permit = self.gate.acquire().await;
                Reply::Err(libc::EHOSTDOWN)
            })),
            Op::Lookup(_) => Answer::Ready(Reply::Err(libc::ENOENT)),
            Op::Getattr(g) => {
                let attr = holdfast_fs_fuse::Attr { ino: g.ino.0, mode: libc::S_IFDIR | 0o755, nlink: 2, ..Default::default() };
                Answer::Ready(Reply::Attr(attr, Duration::ZERO))
            }
            _ => Answer::Ready(Reply::Err(libc::ENOSYS)),
        }
    }
    fn interrupted(&self, _: u64) {
        self.interrupted.fetch_add(1, Ordering::SeqCst);
        self.gate.add_permits(1);
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn waiting_requests_hold_up_nobody_and_hear_of_signals() {
    for binding in BINDINGS {
        if !can_mount() {
            return;
        }
        let fs = Arc::new(Slow { gate: tokio::sync::Semaphore::new(0), waiting: AtomicU64::new(0), interrupted: AtomicU64::new(0) });
        let rig = Rig::start(binding, fs.clone());
        let slow: Vec<_> = (0..20)
            .map(|i| {
                let path = rig.mnt().join(format!("slow{i}"));
                std::thread::spawn(move || std::fs::metadata(path).unwrap_err().raw_os_error())
            })
            .collect();
        until("all wait", || fs.waiting.load(Ordering::SeqCst) == 20);
        let quick = rig.watched(|m| std::fs::metadata(m.join("quick")).unwrap_err().raw_os_error());
        assert_eq!(quick, Some(libc::ENOENT));
        fs.gate.add_permits(20);
        for s in slow {
            assert_eq!(s.join().unwrap(), Some(libc::EHOSTDOWN));
        }
        if binding == holdfast_fs_fuse::Binding::Dev {
            fs.waiting.store(0, Ordering::SeqCst);
            // Each of the twenty passed through the gate and gave its permit back.
            while fs.gate.try_acquire().map(|p| p.forget()).is_ok() {}
            let mut child =
                std::process::Command::new("stat").arg(rig.mnt().join("slow-too")).stderr(std::process::Stdio::null()).spawn().unwrap();
            until("stat waits", || fs.waiting.load(Ordering::SeqCst) == 1);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(fs.interrupted.load(Ordering::SeqCst), 1);
        }
        rig.end();
    }
}

#[test]
fn unmounting_ends_requests_that_wait_for_ever() {
    if !can_mount() {
        return;
    }
    let fs = Arc::new(Slow { gate: tokio::sync::Semaphore::new(0), waiting: AtomicU64::new(0), interrupted: AtomicU64::new(0) });
    let rig = Rig::start(BINDINGS[0], fs.clone());
    let path = rig.mnt().join("slow");
    let caller = std::thread::spawn(move || std::fs::metadata(path).is_err());
    until("it waits", || fs.waiting.load(Ordering::SeqCst) == 1);
    crate::rig::abort(&rig.mnt());
    assert!(caller.join().unwrap());
    fs.gate.add_permits(1);
    drop(rig);
}
