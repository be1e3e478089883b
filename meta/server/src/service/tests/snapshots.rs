//! Snapshots in the pool: a state whose device is lost is rebuilt from the newest of them and the log, with everything that was answered.

use super::rig::*;
use crate::image::{Rebuild, Root};
use crate::service::{PackStore, PackWrite, Room, SnapshotStore, Snapshots, StripeReaper};
use crate::superblock::{Found, inspect, is_lost};
use crate::testing::seeds;
use crate::{Deps, OpenError, Service, StateConfig, format};
use bytes::Bytes;
use holdfast_meta_log::{Blocking, raft};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use holdfast_objstore_proto::meta::{Command, Extent, Inline, Kind, MetaError, Name, Publish};
use holdfast_objstore_proto::{Code, Codec, InodeId, OsdId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CLUSTER: [u8; 16] = [9; 16];
const COPIES: [&str; 3] = ["w0", "w1", "w2"];

/// The object cluster, and what lies beside the superblocks of three OSDs.
#[derive(Default)]
struct Pool {
    stripes: Mutex<BTreeMap<StripeId, Bytes>>,
    roots: Mutex<[Option<Bytes>; 3]>,
    published: AtomicU64,
    /// A root gets to one OSD only, and the answer is an error.
    half: AtomicBool,
    broken: AtomicBool,
}

impl Pool {
    /// The roots that can be read, newest first.
    fn roots(&self) -> Vec<Root> {
        let mut roots: Vec<Root> = self.roots.lock().iter().flatten().map(|b| Root::decode(b).expect("a root")).collect();
        roots.sort_by_key(|r| std::cmp::Reverse(r.number));
        roots.dedup();
        roots
    }
}

#[derive(Clone)]
struct To(Arc<Pool>);

impl PackStore for To {
    fn write(&self, w: PackWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>, String>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.0.broken.load(Ordering::SeqCst) {
                return Err("the test says so".into());
            }
            let data: Bytes = w.data.concat().into();
            let (code, osds) = (Code::new(1, 0), [OsdId(0)].into_iter().collect());
            let stripe = StripeMeta { id: w.id, codec: Codec::Replica, code, len: data.len() as u32, digest: 1, osds, missing: 0 };
            self.0.stripes.lock().insert(w.id, data);
            tokio::task::yield_now().await;
            Ok(Arc::new(stripe))
        })
    }
    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>, String>> {
        let found = self.0.stripes.lock().get(&stripe.id).map(|d| vec![d.slice(range.start as usize..range.end as usize)]);
        Box::pin(std::future::ready(found.ok_or_else(|| "gone".into())))
    }
    fn room(&self) -> Room {
        Room { total: 1 << 40, free: 1 << 40, own: 1 << 40 }
    }
}

impl StripeReaper for To {
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>> {
        stripes.iter().for_each(|s| drop(self.0.stripes.lock().remove(&s.id)));
        Box::pin(std::future::ready(Ok(())))
    }
}

impl SnapshotStore for To {
    fn publish(&self, root: Bytes) -> BoxFuture<'_, Result<(), String>> {
        let mut roots = self.0.roots.lock();
        let answer = if self.0.half.swap(false, Ordering::SeqCst) {
            roots[0] = Some(root);
            Err("the test says so".into())
        } else {
            self.0.published.fetch_add(1, Ordering::SeqCst);
            roots.fill(Some(root));
            Ok(())
        };
        Box::pin(std::future::ready(answer))
    }
    fn unconfirmed(&self) -> bool {
        false
    }
}

fn log_config(seed: u128) -> raft::Config {
    let mut c = raft::Config::new(seed, false);
    c.log.segment_bytes = 256 << 10;
    c.log.blocking = Blocking::Here;
    c.checkpoint_bytes = 128 << 10;
    c.wal_bytes_max = 1 << 20;
    c.kept_bytes_max = 1 << 20;
    c.log.segments_max = 64;
    c.mirrors.copies = 3;
    c.mirrors.dirs = COPIES.iter().map(PathBuf::from).collect();
    c
}

async fn make(disk: &SimDisk) {
    format(Arc::new(disk.clone()), Path::new("meta0"), CLUSTER, Arc::new(clock()), log_config(77)).await.expect("formats");
}

async fn open(disk: &SimDisk, dir: &Path, pool: &Arc<Pool>, seed: u128) -> Result<Arc<Service>, OpenError> {
    open_log(disk, dir, pool, log_config(seed)).await
}

async fn open_log(disk: &SimDisk, dir: &Path, pool: &Arc<Pool>, log: raft::Config) -> Result<Arc<Service>, OpenError> {
    let state = StateConfig { overlay_bytes: 256 << 10, overlay_bytes_max: 4 << 20, cache_bytes: 1 << 20, ..StateConfig::default() };
    let snapshots = Some(Snapshots { roots: pool.roots(), every_bytes: 64 << 10 });
    let deps = Deps {
        disk: Arc::new(disk.clone()),
        dir: dir.into(),
        cluster: Some(CLUSTER),
        clock: Arc::new(clock()),
        config: crate::Config { state, snapshots, ..config() },
        log,
    };
    let service = Service::open(deps).await?;
    let to = Arc::new(To(pool.clone()));
    service.reap_stripes(to.clone());
    service.make_snapshots(to.clone(), to, Code::new(1, 0));
    Ok(service)
}

/// Rebuilds the state in `dir` from the newest root whose stripes are all there.
async fn rebuild(disk: &SimDisk, dir: &Path, pool: &Pool) -> Result<u64, String> {
    let mut rebuild = Rebuild::begin(Arc::new(disk.clone()), dir, CLUSTER, Blocking::Here).map_err(|e| e.to_string())?;
    let stripes = pool.stripes.lock().clone();
    let there =
        |r: &Root| r.pieces.iter().flat_map(|p| &p.stripes).all(|(id, len)| stripes.get(id).is_some_and(|d| d.len() == *len as usize));
    let roots = pool.roots();
    let root = roots.iter().find(|r| there(r));
    assert!(root.is_some() || roots.is_empty(), "no root of {} can be read", roots.len());
    for piece in root.iter().flat_map(|r| &r.pieces) {
        for (id, _) in &piece.stripes {
            rebuild.part(piece, &stripes[id]).await.map_err(|e| e.to_string())?;
        }
    }
    rebuild.finish(false).await.map_err(|e| e.to_string())
}

/// The files of a folder are gone.
fn lose(disk: &SimDisk, dir: &Path) {
    for name in disk.list(dir).unwrap_or_default() {
        let path = dir.join(name);
        if disk.remove(&path).is_err() {
            lose(disk, &path);
        }
    }
}

async fn inline(client: &Client, ino: InodeId, data: &Bytes) -> Result<(), MetaError> {
    let stripe = client.ids.stripe().await?;
    let (attr, _) = client.meta.getattr(ino).await?;
    let len = data.len() as u32;
    let publish = Publish {
        ino,
        number: attr.number + 1,
        extents: vec![Extent { offset: 0, len, stripe, stripe_offset: 0 }],
        stripes: vec![],
        inline: vec![Inline { stripe, data: data.clone() }],
        size: attr.size.max(len as u64),
        mtime: 1,
        ctime: 1,
        clear_suid: false,
    };
    client.meta.submit(Command::Publish(publish)).await.map(drop)
}

/// What was answered: each name with its inode and the inline bytes written to it last.
type Model = BTreeMap<Name, (InodeId, Option<Bytes>)>;

async fn compare(client: &Client, root: InodeId, model: &Model, unsure: &mut Option<Name>, about: &str) -> Model {
    let (entries, _) = client.meta.readdir(root, 0, 10_000).await.expect("reads");
    let mut seen = Model::new();
    for (e, _) in entries {
        let map = client.meta.extents(e.ino, 0..1).await.expect("reads");
        seen.insert(e.name, (e.ino, map.first().and_then(|x| x.inline.clone())));
    }
    let mut want = model.clone();
    if let Some(name) = unsure.take() {
        match seen.get(&name) {
            Some(there) => drop(want.insert(name, there.clone())),
            None => drop(want.remove(&name)),
        }
    }
    assert_eq!(seen, want, "{about}");
    seen
}

/// Random changes, power cuts at random moments (also while a snapshot is made, published, or a state rebuilt), and the loss of the state
/// with one copy of the log: everything that was answered is there.
#[tokio::test]
async fn a_lost_state_is_rebuilt_with_everything_answered_whenever_power_was_cut() {
    let (mut snapshots, mut rebuilt) = (0, 0);
    for seed in seeds(0..3) {
        let mut rng = Rng::new(seed);
        let pool = Arc::new(Pool::default());
        let mut disk = SimDisk::new(seed);
        make(&disk).await;
        let (mut dir, mut dirs) = (PathBuf::from("meta0"), 1);
        let (mut model, mut unsure) = (Model::new(), None);
        let mut root = None;
        for round in 0..8u64 {
            let about = format!("seed {seed}, round {round}");
            if round > 0 && rng.below(3) > 0 {
                // Its state is lost, and a copy of the log.
                lose(&disk, &dir);
                lose(&disk, Path::new(COPIES[rng.below(3) as usize]));
                assert!(is_lost(&disk, &dir).expect("looks"), "{about}");
                dir = format!("meta{dirs}").into();
                dirs += 1;
                if rng.below(3) == 0 {
                    disk.cut_after(rng.below(40));
                    if rebuild(&disk, &dir, &pool).await.is_ok() {
                        let opened = open(&disk, &dir, &pool, 1000 + round as u128).await.is_ok();
                        assert!(opened || disk.is_cut(), "{about}: a start fails without a cause");
                    }
                    disk = disk.crash(rng.next_u64());
                }
                if !matches!(inspect(&disk, &dir), Ok(Found::Ready(_))) {
                    rebuild(&disk, &dir, &pool).await.unwrap_or_else(|e| panic!("{about}: {e}"));
                }
                rebuilt += 1;
            }
            let service = open(&disk, &dir, &pool, 2000 + round as u128).await.unwrap_or_else(|e| panic!("{about}: {e}"));
            let a = Client::mount(&service, "a").await;
            let root = match root {
                Some(r) => r,
                None => *root.insert(home(&a).await),
            };
            model = compare(&a, root, &model, &mut unsure, &about).await;
            if rng.below(2) == 0 {
                disk.cut_after(50 + rng.below(600));
            }
            pool.half.store(rng.below(3) == 0, Ordering::SeqCst);
            for n in 0..120 {
                let name: Name = format!("f{}", rng.below(200)).into();
                let done = match model.get(&name) {
                    None => {
                        let ino = a.ids.inode().await;
                        let made = |ino| Command::Create {
                            dir: root,
                            name: name.clone(),
                            ino,
                            kind: Kind::File,
                            mode: 0o644,
                            owner: OWNER,
                            rdev: 0,
                            target: Name::new(),
                        };
                        match ino {
                            Ok(ino) => a.meta.submit(made(ino)).await.map(|_| drop(model.insert(name.clone(), (ino, None)))),
                            Err(e) => Err(e),
                        }
                    }
                    Some((ino, _)) if rng.coin() => {
                        let (ino, data) = (*ino, Bytes::from(format!("{seed} {round} {n}").repeat(50)));
                        inline(&a, ino, &data).await.map(|()| drop(model.insert(name.clone(), (ino, Some(data)))))
                    }
                    Some(_) => a.meta.submit(Command::Unlink { dir: root, name: name.clone() }).await.map(|_| drop(model.remove(&name))),
                };
                if done.is_err() {
                    assert!(disk.is_cut(), "{about}: {done:?}");
                    unsure = Some(name);
                    break;
                }
            }
            if disk.is_cut() || rng.coin() {
                drop(a);
                disk = disk.crash(rng.next_u64());
            } else {
                service.shutdown().await.expect("stops");
                disk = disk.kill();
            }
        }
        snapshots += pool.published.load(Ordering::SeqCst);
    }
    assert!(std::env::var("SEEDS").is_ok() || snapshots >= 10 && rebuilt >= 5, "{snapshots} snapshots, {rebuilt} states rebuilt");
}

/// A pool that takes nothing does not stop the log from being given back, and is told of; when it takes again all is covered.
#[tokio::test]
async fn a_pool_that_takes_no_snapshot_is_told_of_and_the_log_stays_bounded() {
    let pool = Arc::new(Pool::default());
    let disk = SimDisk::new(3);
    make(&disk).await;
    pool.broken.store(true, Ordering::SeqCst);
    let service = open(&disk, Path::new("meta0"), &pool, 5).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    let data = Bytes::from(vec![7; 4000]);
    let shown = || service.status().snapshot.expect("snapshots are made");
    assert!(shown().covers);
    let mut n = 0;
    while shown().covers {
        inline(&a, f, &data).await.expect("goes on");
        n += 1;
        assert!(n < 2000, "the log is kept for ever");
    }
    for _ in 0..400 {
        inline(&a, f, &data).await.expect("goes on");
    }
    assert!(shown().why.is_some(), "{:?}", shown());
    pool.broken.store(false, Ordering::SeqCst);
    let again = async {
        while !shown().covers {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), again).await.expect("it is made up for");
    assert!(pool.published.load(Ordering::SeqCst) > 0);
    drop(a);
    // From what was made up for everything is there.
    let disk = disk.crash(1);
    lose(&disk, Path::new("meta0"));
    rebuild(&disk, Path::new("meta1"), &pool).await.expect("rebuilds");
    let service = open(&disk, Path::new("meta1"), &pool, 6).await.expect("opens");
    let b = Client::mount(&service, "b").await;
    assert_eq!(b.meta.extents(f, 0..1).await.expect("reads")[0].inline.as_ref(), Some(&data));
    service.shutdown().await.expect("stops");
}

/// The control: where the log keeps nothing for them, an old snapshot is refused, not served.
#[tokio::test]
async fn a_state_that_the_log_cannot_go_on_from_is_refused() {
    let pool = Arc::new(Pool::default());
    let disk = SimDisk::new(8);
    make(&disk).await;
    pool.broken.store(true, Ordering::SeqCst);
    let service = open_log(&disk, Path::new("meta0"), &pool, raft::Config { kept_bytes_max: 0, ..log_config(5) }).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    while service.status().checkpoints < 3 {
        publish(&*a.meta, f, 1).await.expect("publishes");
    }
    assert!(!service.status().snapshot.expect("snapshots are made").covers);
    drop(a);
    let disk = disk.crash(1);
    lose(&disk, Path::new("meta0"));
    rebuild(&disk, Path::new("meta1"), &pool).await.expect("rebuilds");
    match open(&disk, Path::new("meta1"), &pool, 6).await {
        Err(e) => assert!(e.to_string().contains("older than the metadata log"), "{e}"),
        Ok(_) => panic!("a state without what was answered is served"),
    }
}

/// What snapshots write grows with what changes, not with what there is.
#[tokio::test]
async fn snapshots_write_what_changed_and_all_of_it_as_seldom_as_that() {
    let pool = Arc::new(Pool::default());
    let disk = SimDisk::new(4);
    make(&disk).await;
    let service = open(&disk, Path::new("meta0"), &pool, 5).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    for n in 0..1200u32 {
        let ino = a.ids.inode().await.expect("an id");
        let name: Name = format!("file {n} {}", "x".repeat(200)).into();
        let command = Command::Create { dir: root, name, ino, kind: Kind::File, mode: 0o644, owner: OWNER, rdev: 0, target: Name::new() };
        a.meta.submit(command).await.expect("creates");
    }
    let (log, metrics) = (service.status().snapshot.expect("made"), service.metrics().clone());
    assert!(metrics.snapshots.get() >= 5, "{log:?}");
    // Rows are larger than the commands that make them; each is written once as changed and at most once more with all.
    let folded = metrics.checkpoint_bytes.get();
    assert!(metrics.snapshot_bytes.get() <= 2 * folded, "{} bytes of snapshots for {folded} folded", metrics.snapshot_bytes.get());
    let kept: u64 = pool.stripes.lock().values().map(|d| d.len() as u64).sum();
    assert!(kept <= 3 * log.bytes + (1 << 20), "old images are deleted: {kept} of {}", log.bytes);
    // No session sees where they lie.
    let seen = a.meta.buckets().await.expect("lists");
    assert_eq!(seen.len(), 1);
    assert_eq!(a.meta.bucket(n(".metadata")).await.err(), Some(MetaError::NoSuchBucket));
    service.shutdown().await.expect("stops");
}
