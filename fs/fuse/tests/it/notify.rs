//! What the kernel caches, and takes back when told.

use crate::rig::{BINDINGS, Rig, can_mount};
use bytes::Bytes;
use holdfast_fs_fuse::op::Handle;
use holdfast_fs_fuse::reply::Opened;
use holdfast_fs_fuse::{Answer, Attr, Binding, Context, Entry, Filesystem, NodeId, Notify, NotifyError, Op, Reply, flags};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// One file `f` whose size and content are a number that others change behind the kernel's back.
#[derive(Default)]
struct One {
    value: AtomicU64,
    lookups: AtomicU64,
    getattrs: AtomicU64,
    reads: AtomicU64,
}

impl One {
    fn attr(&self, ino: u64) -> Attr {
        let dir = ino == 1;
        let mode = if dir { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 };
        Attr {
            ino,
            mode,
            nlink: 1,
            size: if dir { 0 } else { 8 },
            uid: self.value.load(Ordering::SeqCst) as u32,
            blksize: 4096,
            ..Attr::default()
        }
    }
}

impl Filesystem for One {
    fn handle(&self, _: Context, op: Op) -> Answer<'_> {
        Answer::Ready(match op {
            Op::Lookup(l) if &l.name[..] == b"f" => {
                self.lookups.fetch_add(1, Ordering::SeqCst);
                Reply::Entry(Entry { node: NodeId(2), generation: 0, entry_valid: LONG, attr_valid: LONG, attr: self.attr(2) })
            }
            Op::Lookup(_) => Reply::Err(libc::ENOENT),
            Op::Getattr(g) => {
                self.getattrs.fetch_add(1, Ordering::SeqCst);
                Reply::Attr(self.attr(g.ino.0), LONG)
            }
            Op::Open(_) => Reply::Opened(Opened { handle: Handle(0), flags: flags::FOPEN_KEEP_CACHE }),
            Op::Read(r) => {
                self.reads.fetch_add(1, Ordering::SeqCst);
                let all = Bytes::copy_from_slice(&self.value.load(Ordering::SeqCst).to_le_bytes());
                Reply::data(all.slice((r.offset as usize).min(8)..))
            }
            Op::Release(_) | Op::Flush(_) => Reply::Empty,
            _ => Reply::Err(libc::ENOSYS),
        })
    }
}

#[test]
fn the_kernel_drops_data_attributes_and_names_when_told_and_only_then() {
    for binding in BINDINGS {
        if !can_mount() {
            return;
        }
        let fs = Arc::new(One::default());
        let rig = Rig::start(binding, fs.clone());
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let content = || rig.watched(|m| u64::from_le_bytes(std::fs::read(m.join("f")).unwrap().try_into().unwrap()));
        let uid = || rig.watched(|m| std::fs::metadata(m.join("f")).unwrap().uid());
        let wait = |f: holdfast_objstore_base::BoxFuture<'static, Result<(), NotifyError>>| {
            rt.block_on(async { tokio::time::timeout(Duration::from_secs(30), f).await.expect("the kernel answers") })
        };

        assert_eq!((content(), uid()), (0, 0));
        fs.value.store(7, Ordering::SeqCst);
        assert_eq!((content(), uid()), (0, 0), "still cached");
        wait(rig.notifier.inval_inode(NodeId(2), -1, 0)).unwrap();
        assert_eq!((content(), uid()), (0, 7), "attributes only");
        wait(rig.notifier.inval_inode(NodeId(2), 0, 0)).unwrap();
        assert_eq!(content(), 7);

        let before = fs.lookups.load(Ordering::SeqCst);
        uid();
        assert_eq!(fs.lookups.load(Ordering::SeqCst), before, "the name is cached");
        wait(rig.notifier.inval_entry(NodeId::ROOT, Bytes::from_static(b"f"))).unwrap();
        uid();
        assert_eq!(fs.lookups.load(Ordering::SeqCst), before + 1);

        // What is not cached is gone already: success.
        wait(rig.notifier.inval_inode(NodeId(99), 0, 0)).unwrap();
        wait(rig.notifier.inval_entry(NodeId::ROOT, Bytes::from_static(b"unknown"))).unwrap();

        if rig.notifier.supports_inc_epoch() {
            let before = fs.lookups.load(Ordering::SeqCst);
            wait(rig.notifier.inc_epoch()).unwrap();
            uid();
            assert_eq!(fs.lookups.load(Ordering::SeqCst), before + 1, "every name is looked up anew");
        } else {
            assert_eq!(wait(rig.notifier.inc_epoch()), Err(NotifyError::Unsupported));
            assert!(binding == Binding::Fuser || !kernel_is_new(), "the own loop has it since 7.44");
        }
        let notifier = rig.notifier.clone();
        rig.end();
        let late = wait(notifier.inval_inode(NodeId(2), 0, 0));
        // fuser keeps the device open, on which the kernel then finds nothing cached.
        assert!(late == Err(NotifyError::Gone) || (binding == Binding::Fuser && late.is_ok()), "the mount is over: {late:?}");
    }
}

fn kernel_is_new() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut n = release.split(['.', '-']).map_while(|p| p.parse::<u32>().ok());
    (n.next().unwrap_or(0), n.next().unwrap_or(0)) >= (6, 17)
}
