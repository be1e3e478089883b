//! The real vfs through the kernel: one mount, and two mounts of one bucket that take turns.

use crate::files::exercise;
use crate::rig::{BINDINGS, Rig, can_mount};
use bytes::Bytes;
use holdfast_fs_fuse::{Binding, Notifier, Notify, NotifyError, VfsAdapter};
use holdfast_fs_vfs::{Config, KernelNotify, NodeId, Vfs};
use holdfast_meta_client::local::Local;
use holdfast_meta_client::{MetaService, NoEvents};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::real::RealClock;
use holdfast_objstore_client::Fake;
use holdfast_objstore_proto::Code;
use holdfast_objstore_proto::meta::{Command, Owner, Shape};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The kernel above a vfs, once there is one.
#[derive(Clone, Default)]
struct Kernel(Arc<OnceLock<Notifier>>);

impl KernelNotify for Kernel {
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> BoxFuture<'static, ()> {
        let n = self.0.get().cloned();
        Box::pin(async move {
            if let Some(n) = n {
                n.inval_inode(holdfast_fs_fuse::NodeId(node.0), offset, len).await.unwrap();
            }
        })
    }
    fn inval_entry(&self, parent: NodeId, name: Bytes) -> BoxFuture<'static, ()> {
        let n = self.0.get().cloned();
        Box::pin(async move {
            if let Some(n) = n {
                n.inval_entry(holdfast_fs_fuse::NodeId(parent.0), name).await.unwrap();
            }
        })
    }
    fn inc_epoch(&self) -> BoxFuture<'static, bool> {
        let n = self.0.get().cloned();
        Box::pin(async move {
            match n {
                Some(n) => n.inc_epoch().await != Err(NotifyError::Unsupported),
                None => true,
            }
        })
    }
}

#[derive(Clone)]
struct Bucket {
    local: Local,
    objects: Arc<Fake>,
}

impl Bucket {
    fn new() -> Self {
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = Local::with_clock(Arc::new(RealClock));
        rt.block_on(async {
            let admin = local.connect("admin", false, Arc::new(NoEvents)).await.unwrap();
            let (name, owner) = (Bytes::from_static(b"home"), Owner { uid: 0, gid: 0 });
            let create = Command::CreateBucket { name, shape: Shape::Tree, code: Code::new(4, 2), owner, mode: 0o755 };
            admin.submit(create).await.unwrap();
        });
        Self { local, objects: Fake::new() }
    }

    fn mount(&self, binding: Binding) -> Rig {
        let this = self.clone();
        Rig::start_with(binding, move || async move {
            let kernel = Kernel::default();
            let home = Bytes::from_static(b"home");
            let (meta, notify) = (Arc::new(this.local), Arc::new(kernel.clone()));
            let vfs = Vfs::connect(meta, this.objects, home, notify, Budget::new(64 << 20), Arc::new(RealClock), Config::default())
                .await
                .unwrap();
            let fs: Arc<dyn holdfast_fs_fuse::Filesystem> = Arc::new(VfsAdapter::new(vfs));
            (fs, move |n: Notifier| drop(kernel.0.set(n)))
        })
    }
}

#[test]
fn a_vfs_does_file_operations_with_both_bindings() {
    if !can_mount() {
        return;
    }
    for binding in BINDINGS {
        let rig = Bucket::new().mount(binding);
        rig.watched(exercise);
        rig.end();
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Each step is done on one mount and looked at on the other, whose kernel had cached the opposite.
fn take_turns(a: &Path, b: &Path) {
    for round in 0..8 {
        for (x, y) in [(a, b), (b, a)] {
            let at = |m: &Path, n: &str| m.join(format!("{n}{round}"));
            assert_eq!(text(&at(y, "f")), None, "an absent name, now cached");
            fs::write(at(x, "f"), "one").unwrap();
            assert_eq!(text(&at(y, "f")).as_deref(), Some("one"));
            OpenOptions::new().append(true).open(at(y, "f")).unwrap().write_all(b"+two").unwrap();
            assert_eq!(fs::metadata(at(x, "f")).unwrap().len(), 7);
            assert_eq!(text(&at(x, "f")).as_deref(), Some("one+two"));

            let held = File::open(at(x, "f")).unwrap();
            fs::rename(at(y, "f"), at(y, "g")).unwrap();
            assert!(!at(x, "f").exists());
            assert_eq!(text(&at(x, "g")).as_deref(), Some("one+two"));
            fs::create_dir(at(x, "d")).unwrap();
            assert!(at(y, "d").is_dir());
            fs::remove_dir(at(y, "d")).unwrap();
            assert!(!at(x, "d").exists());

            fs::remove_file(at(y, "g")).unwrap();
            assert!(!at(x, "g").exists());
            let mut back = [0; 7];
            held.read_exact_at(&mut back, 0).unwrap();
            assert_eq!(&back, b"one+two", "open here, unlinked there");
        }
    }
}

#[test]
fn two_mounts_of_a_bucket_see_each_others_changes_at_once() {
    if !can_mount() {
        return;
    }
    let bucket = Bucket::new();
    for (one, other) in [(Binding::Dev, Binding::Dev), (Binding::Dev, Binding::Fuser)] {
        let (a, b) = (bucket.mount(one), bucket.mount(other));
        let other_mnt: PathBuf = b.mnt();
        a.watched(move |m| take_turns(&m, &other_mnt));
        a.end();
        b.end();
    }
}
