//! What the tests stand on: a bucket, mounts of it, a session of another door, a kernel that only takes notes.

pub use crate::slow::{At, Slow};
use bytes::Bytes;
use holdfast_fs_vfs::{
    Caller, Config, CreateArgs, DirItem, EntryReply, HandleId, KernelNotify, LookupReply, MknodArgs, NodeId, OpenFlags, ROOT, ReadArgs,
    Result, SetAttrArgs, Vfs, WriteArgs,
};
use holdfast_meta_client::local::Local;
use holdfast_meta_client::{Meta, MetaService, NoEvents};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::clock::{Clock, ManualClock};
use holdfast_objstore_client::{Fake, Objects, StripeWrite};
use holdfast_objstore_proto::meta::{Command, Kind, Owner, Pack, PackMember, Reply, Shape};
use holdfast_objstore_proto::{Code, InodeId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

pub const WHO: Caller = Caller { uid: 1000, gid: 1000, pid: 1 };

/// A condition is waited for this long at most.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("within the deadline")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    Inode(NodeId, i64, i64),
    Entry(NodeId, Bytes),
    Epoch,
}

type Hook = Box<dyn Fn(NodeId, i64) -> Option<BoxFuture<'static, ()>> + Send + Sync>;

/// Takes notes; a hook stands for what a kernel does during an invalidation.
pub struct Kernel {
    pub notes: Mutex<Vec<Note>>,
    pub hook: Mutex<Option<Hook>>,
    pub epochs: bool,
}

impl KernelNotify for Kernel {
    fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> BoxFuture<'static, ()> {
        self.notes.lock().push(Note::Inode(node, offset, len));
        let hooked = self.hook.lock().as_ref().and_then(|h| h(node, offset));
        hooked.unwrap_or_else(|| Box::pin(std::future::ready(())))
    }
    fn inval_entry(&self, parent: NodeId, name: Bytes) -> BoxFuture<'static, ()> {
        self.notes.lock().push(Note::Entry(parent, name));
        Box::pin(std::future::ready(()))
    }
    fn inc_epoch(&self) -> BoxFuture<'static, bool> {
        self.notes.lock().push(Note::Epoch);
        Box::pin(std::future::ready(self.epochs))
    }
}

pub struct Rig {
    pub local: Local,
    pub fake: Arc<Fake>,
    pub clock: ManualClock,
    pub root: InodeId,
    pub bucket: holdfast_objstore_proto::BucketId,
    pub admin: Arc<dyn Meta>,
}

pub struct Mount {
    pub vfs: Arc<Vfs>,
    pub kernel: Arc<Kernel>,
}

impl std::ops::Deref for Mount {
    type Target = Vfs;
    fn deref(&self) -> &Vfs {
        &self.vfs
    }
}

impl Rig {
    pub async fn new() -> Self {
        let clock = ManualClock::default();
        let local = Local::with_clock(Arc::new(clock.clone()));
        let admin = local.connect("admin", false, Arc::new(NoEvents)).await.unwrap();
        let create = Command::CreateBucket {
            name: Bytes::from_static(b"home"),
            shape: Shape::Tree,
            code: Code::new(4, 2),
            owner: Owner { uid: 0, gid: 0 },
            mode: 0o755,
        };
        let Reply::Bucket(bucket) = admin.submit(create).await.unwrap() else { panic!("a bucket") };
        Self { local, fake: Fake::new(), clock, root: bucket.root, bucket: bucket.id, admin }
    }

    pub async fn mount(&self) -> Mount {
        self.mount_with(256 << 20, at_once(), true).await
    }

    pub async fn mount_with(&self, budget: u64, config: Config, epochs: bool) -> Mount {
        self.mount_on(Arc::new(self.local.clone()), budget, config, epochs).await
    }

    /// A mount whose metadata comes late where the test says so.
    pub async fn mount_slow(&self) -> (Mount, Slow) {
        let slow = Slow::new(self.local.clone());
        (self.mount_on(Arc::new(slow.clone()), 256 << 20, at_once(), true).await, slow)
    }

    async fn mount_on(&self, service: Arc<dyn MetaService>, budget: u64, config: Config, epochs: bool) -> Mount {
        let kernel = Arc::new(Kernel { notes: Mutex::default(), hook: Mutex::default(), epochs });
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let vfs = Vfs::connect(service, self.fake.clone(), Bytes::from_static(b"home"), kernel.clone(), Budget::new(budget), clock, config);
        Mount { vfs: vfs.await.unwrap(), kernel }
    }

    /// Waits until only `stripes` are left on the devices.
    pub async fn left(&self, stripes: usize) {
        let left = async {
            while self.fake.stripes().len() != stripes {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let done = tokio::time::timeout(DEADLINE, left).await;
        assert!(done.is_ok(), "{} stripes are left, not {stripes}", self.fake.stripes().len());
    }

    /// Small writes may travel in their Publish from now on.
    pub fn inline(self, bytes_max: usize) -> Self {
        self.local.set_inline_bytes_max(bytes_max);
        self
    }

    /// Packs all that waits for it, as the service's background work does; the packs made.
    pub async fn pack(&self) -> usize {
        let mut packs = 0;
        while let Some(found) = self.local.gather() {
            let (mut members, mut data, mut at) = (Vec::new(), Vec::new(), 0);
            for p in found.places {
                match &p.read {
                    None => data.push(self.local.staged(p.stripe).expect("it is staged")),
                    Some((stripe, from)) => data.extend(self.fake.read(stripe, *from..*from + p.len).await.unwrap()),
                }
                members.push(PackMember { stripe: p.stripe, len: p.len, at, from: p.from });
                at += p.len;
            }
            let Reply::Stripes(range) = self.admin.submit(Command::GrantStripes { count: 1 }).await.unwrap() else { panic!("ids") };
            let (session, epoch) = self.admin.session();
            let write =
                StripeWrite { id: range.first, code: Code::new(4, 2), data, session, epoch, hint: Default::default(), background: false };
            let stripe = self.fake.write(write).await.unwrap();
            let stripe = self.fake.flush(vec![stripe]).await.unwrap().remove(0);
            let pack = Command::Pack(Pack { bucket: found.bucket, stripe, members });
            assert!(matches!(self.admin.submit(pack).await, Ok(Reply::Packed { .. })));
            packs += 1;
        }
        packs
    }

    /// Deletes what metadata has retired, as the service's background work does.
    pub async fn collect(&self) {
        let retired = self.local.retired();
        self.fake.delete(retired.clone()).await.unwrap();
        self.local.forget(retired.iter().map(|s| s.id).collect()).unwrap();
    }
}

/// Garbage is deleted at once.
fn at_once() -> Config {
    Config { delete_grace: Duration::ZERO, ..Config::default() }
}

pub fn name(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

impl Mount {
    pub async fn make(&self, parent: NodeId, n: &str, flags: i32) -> (NodeId, HandleId) {
        let open = OpenFlags { flags, kill_suidgid: false };
        let made = self.create(WHO, CreateArgs { parent, name: name(n), mode: 0o644, open }).await.unwrap();
        (made.entry.attr.node, made.open.handle)
    }

    pub async fn file(&self, n: &str) -> (NodeId, HandleId) {
        self.make(ROOT, n, libc::O_RDWR).await
    }

    pub async fn mkdir(&self, parent: NodeId, n: &str) -> NodeId {
        let made = self.mknod(WHO, MknodArgs { parent, name: name(n), kind: Kind::Dir, mode: 0o755, rdev: 0 }).await;
        made.unwrap().attr.node
    }

    pub async fn find(&self, parent: NodeId, n: &str) -> Option<EntryReply> {
        match self.lookup(WHO, parent, name(n)).await.unwrap() {
            LookupReply::Found(e) => Some(e),
            LookupReply::Absent { .. } => None,
        }
    }

    pub async fn open_as(&self, node: NodeId, flags: i32) -> HandleId {
        self.open(node, OpenFlags { flags, kill_suidgid: false }).await.unwrap().handle
    }

    pub fn args(&self, (node, handle): (NodeId, HandleId), offset: u64, data: impl Into<Bytes>) -> WriteArgs {
        WriteArgs { node, handle, offset, data: data.into(), direct: false, sync: false, kill_suidgid: false, from_cache: false }
    }

    pub async fn put(&self, f: (NodeId, HandleId), offset: u64, data: impl Into<Bytes>) {
        let data = data.into();
        let len = data.len() as u32;
        assert_eq!(soon(self.write(self.args(f, offset, data))).await, Ok(len));
    }

    pub async fn put_direct(&self, f: (NodeId, HandleId), offset: u64, data: impl Into<Bytes>) {
        let args = WriteArgs { direct: true, ..self.args(f, offset, data) };
        assert!(soon(self.write(args)).await.is_ok());
    }

    pub async fn try_get(&self, (node, handle): (NodeId, HandleId), offset: u64, len: u32) -> Result<Vec<u8>> {
        Ok(soon(self.read(ReadArgs { node, handle, offset, len })).await?.concat())
    }

    pub async fn get(&self, f: (NodeId, HandleId), offset: u64, len: u32) -> Vec<u8> {
        self.try_get(f, offset, len).await.unwrap()
    }

    pub async fn size(&self, node: NodeId) -> u64 {
        self.getattr(node, None).await.unwrap().attr.size
    }

    pub async fn resize(&self, node: NodeId, size: u64) {
        self.setattr(WHO, node, SetAttrArgs { size: Some(size), ..Default::default() }).await.unwrap();
    }

    pub async fn names(&self, node: NodeId) -> Vec<String> {
        let dir = self.opendir(node).await.unwrap().handle;
        let mut all = Vec::new();
        let mut fill = |item: &DirItem| {
            all.push(String::from_utf8(item.name.to_vec()).unwrap());
            true
        };
        self.readdir(dir, 0, &mut fill).await.unwrap();
        self.releasedir(dir);
        all
    }

    pub async fn all(&self, node: NodeId) -> Vec<u8> {
        let h = self.open_as(node, libc::O_RDONLY).await;
        let data = self.get((node, h), 0, u32::MAX).await;
        self.release(h);
        data
    }
}
