//! A mount served on a thread of its own, and a watchdog for whatever is done through it.

use holdfast_fs_fuse::{Binding, Filesystem, MountOptions, Notifier, RunError, Unmounted, Unmounter, mount};
use holdfast_objstore_base::real::runtime;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// No test may take longer through a mount.
const LIMIT: Duration = Duration::from_secs(60);

pub const BINDINGS: [Binding; 2] = [Binding::Dev, Binding::Fuser];

pub struct Rig {
    pub dir: tempfile::TempDir,
    pub unmounter: Unmounter,
    pub notifier: Notifier,
    pub flags: u64,
    server: Option<JoinHandle<std::io::Result<Result<(), RunError>>>>,
}

/// False, loudly, where there is nothing to mount with.
pub fn can_mount() -> bool {
    // SAFETY: reads this process's user.
    let able = Path::new("/dev/fuse").exists() && unsafe { libc::geteuid() } == 0;
    if !able {
        eprintln!("SKIPPED: no /dev/fuse or not root, so NOTHING WAS MOUNTED AND NOTHING WAS TESTED");
    }
    able
}

impl Rig {
    pub fn start(binding: Binding, fs: Arc<dyn Filesystem>) -> Self {
        Self::start_with(binding, move || std::future::ready((fs, |_: Notifier| ())))
    }

    /// `make` runs on the thread and in the runtime that serve the mount; what it returns beside the filesystem gets the notifier.
    pub fn start_with<F, Fut, Told>(binding: Binding, make: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = (Arc<dyn Filesystem>, Told)>,
        Told: FnOnce(Notifier),
    {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("mnt");
        std::fs::create_dir(&at).unwrap();
        let options = MountOptions { binding, ..MountOptions::at(at) };
        let (tx, rx) = mpsc::channel();
        let server = runtime::spawn_thread("test-mount", move || async move {
            let (fs, told) = make().await;
            let mounted = mount(&options, fs).unwrap();
            told(mounted.notifier());
            tx.send((mounted.unmounter(), mounted.notifier(), mounted.flags())).unwrap();
            mounted.run().await
        })
        .unwrap();
        let (unmounter, notifier, flags) = rx.recv_timeout(LIMIT).expect("it mounts");
        Rig { dir, unmounter, notifier, flags, server: Some(server) }
    }

    pub fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Does `work` on another thread; if it hangs, the mount is aborted and the test fails.
    pub fn watched<T: Send + 'static>(&self, work: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
        let (tx, rx) = mpsc::channel();
        let mnt = self.mnt();
        let worker = std::thread::spawn(move || {
            let _ = tx.send(());
            let out = work(mnt);
            let _ = tx.send(());
            out
        });
        rx.recv_timeout(LIMIT).expect("the worker starts");
        if let Err(mpsc::RecvTimeoutError::Timeout) = rx.recv_timeout(LIMIT) {
            abort(&self.mnt());
            panic!("work through the mount hangs");
        }
        match worker.join() {
            Ok(out) => out,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Unmounts in order and waits for the server.
    pub fn end(mut self) -> Unmounted {
        let how = self.unmounter.unmount_blocking().unwrap();
        if how == Unmounted::Clean {
            self.server.take().unwrap().join().unwrap().unwrap().unwrap();
        }
        how
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            abort(&self.mnt());
            let _ = server.join();
        }
    }
}

pub fn abort(path: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let c = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string.
    unsafe { libc::umount2(c.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
}

pub fn is_mounted(path: &Path) -> bool {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.to_str().unwrap();
    text.lines().any(|l| l.split(' ').nth(4) == Some(path))
}
