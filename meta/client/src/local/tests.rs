//! The in-memory service held against what the seam promises: grants, recalls, races, orphans.

use super::*;
use crate::ids::IdPool;
use crate::{NoEvents, Use};
use holdfast_objstore_proto::meta::{AttrChange, Extent, Kind, Owner, Publish, Shape};
use holdfast_objstore_proto::{Code, Codec};
use std::sync::Weak;
use std::time::Duration;

const ROOT: Owner = Owner { uid: 0, gid: 0 };

/// A holder that notes its recalls and, when told to, publishes something before it answers.
#[derive(Default)]
struct Holder {
    recalls: Mutex<Vec<Recall>>,
    evicted: Mutex<bool>,
    flush: Mutex<Option<(Weak<dyn Meta>, Command)>>,
    hold_on: Mutex<bool>,
}

struct Events(Arc<Holder>);

impl SessionEvents for Events {
    fn recall(&self, recall: Recall) -> BoxFuture<'static, ()> {
        let holder = self.0.clone();
        Box::pin(async move {
            holder.recalls.lock().push(recall);
            if *holder.hold_on.lock() {
                std::future::pending::<()>().await;
            }
            let flush = holder.flush.lock().take();
            if let Some((meta, command)) = flush {
                meta.upgrade().unwrap().submit(command).await.unwrap();
            }
        })
    }
    fn evicted(&self) {
        *self.0.evicted.lock() = true;
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), test).await.expect("it ends") })
}

struct Pair {
    local: Local,
    a: Arc<dyn Meta>,
    b: Arc<dyn Meta>,
    holder: Arc<Holder>,
    dir: InodeId,
    file: InodeId,
}

/// `a` caches, `b` does not; a tree with one file.
async fn pair() -> Pair {
    let local = Local::new();
    let holder = Arc::new(Holder::default());
    let a = local.connect("a", true, Arc::new(Events(holder.clone()))).await.unwrap();
    let b = local.connect("b", false, Arc::new(NoEvents)).await.unwrap();
    let bucket = Command::CreateBucket { name: "home".into(), shape: Shape::Tree, code: Code::new(1, 0), owner: ROOT, mode: 0o755 };
    let Reply::Bucket(bucket) = a.submit(bucket).await.unwrap() else { panic!() };
    let dir = bucket.root;
    let file = IdPool::new(a.clone()).inode().await.unwrap();
    a.submit(create(dir, "f", file)).await.unwrap();
    Pair { local, a, b, holder, dir, file }
}

fn create(dir: InodeId, name: &'static str, ino: InodeId) -> Command {
    Command::Create { dir, name: name.into(), ino, kind: Kind::File, mode: 0o644, owner: ROOT, rdev: 0, target: Name::new() }
}

fn write(ino: InodeId, number: u64, stripe: StripeId, size: u64) -> Command {
    let meta = StripeMeta {
        id: stripe,
        codec: Codec::Replica,
        code: Code::new(1, 0),
        len: size as u32,
        digest: 0,
        osds: [holdfast_objstore_proto::OsdId(0)].into_iter().collect(),
        missing: 0,
    };
    let extents = vec![Extent { offset: 0, len: size as u32, stripe, stripe_offset: 0 }];
    Command::Publish(Publish {
        ino,
        number,
        extents,
        stripes: vec![Arc::new(meta)],
        inline: vec![],
        size,
        mtime: 1,
        ctime: 1,
        clear_suid: false,
    })
}

#[test]
fn a_foreign_look_recalls_a_writer_and_sees_what_it_published() {
    run(async {
        let p = pair().await;
        let (_, grant) = p.a.acquire(p.file, Use::Write).await.unwrap();
        let Grant::Excl { stamp } = grant else { panic!("{grant:?}") };
        let stripe = IdPool::new(p.a.clone()).stripe().await.unwrap();
        *p.holder.flush.lock() = Some((Arc::downgrade(&p.a), write(p.file, 1, stripe, 100)));
        let (attr, grant) = p.b.getattr(p.file).await.unwrap();
        assert_eq!((attr.size, grant), (100, Grant::Through));
        assert_eq!(*p.holder.recalls.lock(), [Recall { ino: p.file, stamp, name: None }]);
        assert_eq!(p.local.holder(p.file), None);
        assert_eq!(p.b.extents(p.file, 0..1).await.unwrap().len(), 1);
    });
}

#[test]
fn a_reader_is_recalled_by_a_change_but_not_by_a_look() {
    run(async {
        let p = pair().await;
        assert!(matches!(p.a.getattr(p.file).await.unwrap().1, Grant::Excl { .. }));
        assert!(matches!(p.a.lookup(p.dir, "none".into()).await.unwrap().dir_grant, Grant::Excl { .. }));
        p.b.getattr(p.file).await.unwrap();
        p.b.lookup(p.dir, "f".into()).await.unwrap();
        assert!(p.holder.recalls.lock().is_empty());
        p.b.submit(Command::SetAttr { ino: p.file, change: AttrChange { mode: Some(0o600), ..AttrChange::default() } }).await.unwrap();
        assert_eq!(p.holder.recalls.lock().len(), 1);
        p.b.submit(Command::Unlink { dir: p.dir, name: "f".into() }).await.unwrap();
        let last = p.holder.recalls.lock().last().cloned().unwrap();
        assert_eq!((last.ino, last.name), (p.dir, Some("f".into())));
    });
}

#[test]
fn the_holder_is_never_recalled_by_itself() {
    run(async {
        let p = pair().await;
        p.a.acquire(p.file, Use::Write).await.unwrap();
        p.a.submit(Command::SetAttr { ino: p.file, change: AttrChange { mode: Some(0o600), ..AttrChange::default() } }).await.unwrap();
        p.a.submit(Command::Unlink { dir: p.dir, name: "f".into() }).await.unwrap();
        assert!(p.holder.recalls.lock().is_empty());
    });
}

#[test]
fn an_open_inode_outlives_its_last_name() {
    run(async {
        let p = pair().await;
        let stripe = IdPool::new(p.a.clone()).stripe().await.unwrap();
        p.a.submit(write(p.file, 1, stripe, 100)).await.unwrap();
        p.b.opened(p.file).await.unwrap();
        p.a.submit(Command::Unlink { dir: p.dir, name: "f".into() }).await.unwrap();
        assert_eq!(p.b.getattr(p.file).await.unwrap().0.nlink, 0);
        assert!(p.local.retired().is_empty());
        p.b.closed(p.file);
        assert_eq!(p.b.getattr(p.file).await, Err(MetaError::Stale));
        assert_eq!(p.b.opened(p.file).await, Err(MetaError::Stale));
        assert_eq!(p.local.retired().iter().map(|s| s.id).collect::<Vec<_>>(), [stripe]);
        p.local.forget(vec![stripe]).unwrap();
        assert!(p.local.retired().is_empty());
    });
}

#[test]
fn evicting_a_holder_that_does_not_answer_lets_others_go_on() {
    run(async {
        let p = pair().await;
        p.a.acquire(p.file, Use::Write).await.unwrap();
        *p.holder.hold_on.lock() = true;
        let foreign = p.b.getattr(p.file);
        tokio::pin!(foreign);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut foreign).await.is_err());
        assert_eq!(p.holder.recalls.lock().len(), 1);
        p.local.evict(p.a.session().0);
        foreign.await.unwrap();
        assert!(*p.holder.evicted.lock());
        assert_eq!(p.a.getattr(p.file).await.err(), Some(MetaError::Evicted));
        assert_eq!(p.a.submit(Command::GrantInodes { count: 1 }).await.err(), Some(MetaError::Evicted));
    });
}

#[test]
fn commands_keep_the_order_of_the_calls() {
    run(async {
        let p = pair().await;
        let first = p.a.submit(Command::Unlink { dir: p.dir, name: "f".into() });
        let second = p.a.submit(Command::Unlink { dir: p.dir, name: "f".into() });
        assert_eq!(second.await.err(), Some(MetaError::NotFound));
        first.await.unwrap();
    });
}
