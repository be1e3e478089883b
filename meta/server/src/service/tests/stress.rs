//! Mounts that cache and buffer under their grants, and gateways that do not, on threads of their own: nobody ever sees less than what
//! was there when it asked.
//!
//! A file's content is its size, which only grows; a name's is whether it is there, which its one changer at a time flips.

use super::rig::*;
use crate::testing::seeds;
use crate::{Config, Service};
use bytes::Bytes;
use futures::executor::block_on;
use holdfast_meta_client::ids::IdPool;
use holdfast_meta_client::{Grant, Meta, MetaService, Recall, SessionEvents, Use};
use holdfast_meta_core::lease::Limits;
use holdfast_meta_log::{MetaLog, Result as LogResult, SharedLog};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::real::RealClock;
use holdfast_objstore_base::sim::Rng;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, Kind, MetaError, Name};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

const FILES: usize = 3;
const NAMES: [&str; 3] = ["x", "y", "z"];

/// What is known to be true, kept beside the service.
#[derive(Default)]
struct Truth {
    /// By file: the greatest size whose write has returned, and the next to be written.
    written: [AtomicU64; FILES],
    next: [AtomicU64; FILES],
    /// By name: held by whoever changes it; flips so far.
    names: [tokio::sync::Mutex<()>; NAMES.len()],
    begun: [AtomicU64; NAMES.len()],
    ended: [AtomicU64; NAMES.len()],
}

/// What a mount keeps of one inode or directory.
#[derive(Default)]
struct Kept {
    held: Option<(u64, bool)>,
    recalling: bool,
    recalled: u64,
    /// A file's size, as this mount knows it; newer than committed when dirty.
    size: u64,
    dirty: bool,
    /// A directory's names.
    names: HashMap<Name, bool>,
}

struct Mount {
    meta: OnceLock<Weak<dyn Meta>>,
    kept: Mutex<HashMap<InodeId, Kept>>,
    /// One publisher at a time, as numbers ask for.
    publishing: tokio::sync::Mutex<()>,
    /// Begun and ended.
    own_changes: AtomicU64,
    evicted: AtomicU64,
}

/// The in-memory log, with pauses around what it does.
struct Pauses(SharedLog, AtomicU64);

impl Pauses {
    async fn pause(&self) {
        for _ in 0..self.1.fetch_add(7, Ordering::SeqCst) % 5 {
            tokio::task::yield_now().await;
        }
    }
}

impl MetaLog for Pauses {
    fn propose(&self, command: Bytes) -> BoxFuture<'_, LogResult<Bytes>> {
        Box::pin(async move {
            self.pause().await;
            let done = self.0.propose(command).await;
            self.pause().await;
            done
        })
    }
    fn may_read(&self) -> LogResult<()> {
        self.0.may_read()
    }
    fn applied(&self) -> u64 {
        self.0.applied()
    }
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.0.shutdown()
    }
}

struct Told(Arc<Mount>);

impl SessionEvents for Told {
    fn recall(&self, r: Recall) -> BoxFuture<'static, ()> {
        let mount = self.0.clone();
        let takes = {
            let mut kept = mount.kept.lock();
            let k = kept.entry(r.ino).or_default();
            let takes = k.held.is_some_and(|(stamp, _)| stamp <= r.stamp);
            k.recalling |= takes;
            if !takes {
                k.recalled = k.recalled.max(r.stamp);
            }
            takes
        };
        Box::pin(async move {
            if !takes {
                return;
            }
            let dirty = { mount.kept.lock().get(&r.ino).filter(|k| k.dirty).map(|k| k.size) };
            if let Some(size) = dirty {
                mount.publish(r.ino, size).await;
            }
            let mut kept = mount.kept.lock();
            let k = kept.entry(r.ino).or_default();
            *k = Kept { recalled: k.recalled.max(r.stamp), ..Kept::default() };
        })
    }
    fn evicted(&self) {
        self.0.evicted.fetch_add(1, Ordering::SeqCst);
    }
}

impl Kept {
    fn take(&mut self, grant: Grant, write: bool) {
        if let Grant::Excl { stamp } = grant
            && stamp > self.recalled
            && !self.recalling
        {
            let old = self.held.is_some_and(|h| h.1);
            self.held = Some((stamp, old || write));
        }
    }
    fn cached(&self) -> bool {
        self.held.is_some()
    }
}

impl Mount {
    fn meta(&self) -> Arc<dyn Meta> {
        self.meta.get().and_then(Weak::upgrade).expect("the session lives")
    }

    /// Sets the size, now.
    async fn publish(&self, ino: InodeId, size: u64) {
        let _one = self.publishing.lock().await;
        loop {
            let (attr, _) = self.meta().getattr(ino).await.expect("is there");
            if attr.size >= size {
                return;
            }
            match publish(&*self.meta(), ino, size).await {
                Ok(_) => return,
                // Another session's publish came between.
                Err(MetaError::PublishRefused(_)) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }

    async fn read(&self, ino: InodeId) -> u64 {
        if let Some(k) = self.kept.lock().get(&ino).filter(|k| k.cached()) {
            return k.size;
        }
        let (attr, grant) = self.meta().getattr(ino).await.expect("is there");
        let mut kept = self.kept.lock();
        let k = kept.entry(ino).or_default();
        if k.cached() {
            return k.size;
        }
        k.take(grant, false);
        k.size = attr.size;
        attr.size
    }

    async fn write(&self, ino: InodeId, size: u64) {
        let buffer = |k: &mut Kept| {
            let may = k.held.is_some_and(|h| h.1) && !k.recalling;
            if may {
                k.size = k.size.max(size);
                k.dirty = true;
            }
            may
        };
        if self.kept.lock().get_mut(&ino).is_some_and(buffer) {
            return;
        }
        let (attr, grant) = self.meta().acquire(ino, Use::Write).await.expect("is there");
        {
            let mut kept = self.kept.lock();
            let k = kept.entry(ino).or_default();
            if !k.cached() {
                k.size = attr.size;
            }
            k.take(grant, true);
            if buffer(k) {
                return;
            }
        }
        self.publish(ino, size).await;
        if let Some(k) = self.kept.lock().get_mut(&ino).filter(|k| k.cached()) {
            k.size = k.size.max(size);
        }
    }

    async fn look(&self, dir: InodeId, name: &'static str) -> bool {
        if let Some(there) = self.kept.lock().get(&dir).filter(|k| k.cached()).and_then(|k| k.names.get(&n(name)).copied()) {
            return there;
        }
        let before = self.own_changes.load(Ordering::SeqCst);
        let looked = self.meta().lookup(dir, n(name)).await.expect("looks");
        let mut kept = self.kept.lock();
        let k = kept.entry(dir).or_default();
        k.take(looked.dir_grant, false);
        let there = looked.entry.is_some();
        // A reply that crossed a change of its own, or another grant, is not kept.
        let same = matches!((looked.dir_grant, k.held), (Grant::Excl { stamp }, Some((held, _))) if stamp == held);
        if same && before == self.own_changes.load(Ordering::SeqCst) {
            k.names.insert(n(name), there);
        }
        there
    }

    async fn flip(&self, ids: &IdPool, dir: InodeId, name: &'static str, there: bool) {
        let command = if there {
            Command::Unlink { dir, name: n(name) }
        } else {
            let ino = ids.inode().await.expect("an id");
            Command::Create { dir, name: n(name), ino, kind: Kind::File, mode: 0o644, owner: OWNER, rdev: 0, target: Name::new() }
        };
        self.own_changes.fetch_add(1, Ordering::SeqCst);
        if let Some(k) = self.kept.lock().get_mut(&dir) {
            k.names.remove(&n(name));
        }
        self.meta().submit(command).await.expect("flips");
        self.own_changes.fetch_add(1, Ordering::SeqCst);
        if let Some(k) = self.kept.lock().get_mut(&dir).filter(|k| k.cached()) {
            k.names.insert(n(name), !there);
        }
    }
}

/// One client's part, on the thread that runs it.
async fn client(service: Arc<Service>, truth: Arc<Truth>, root: InodeId, files: [InodeId; FILES], seed: u64) {
    let caching = !seed.is_multiple_of(4);
    let mount = Arc::new(Mount {
        meta: OnceLock::new(),
        kept: Mutex::default(),
        publishing: Default::default(),
        own_changes: AtomicU64::new(0),
        evicted: AtomicU64::new(0),
    });
    let meta = service.connect("stress", caching, Arc::new(Told(mount.clone()))).await.expect("connects");
    assert!(mount.meta.set(Arc::downgrade(&meta)).is_ok());
    let ids = IdPool::new(meta.clone());
    let mut rng = Rng::new(seed);
    for _ in 0..400 {
        let (f, i) = (rng.below(FILES as u64) as usize, rng.below(NAMES.len() as u64) as usize);
        match rng.below(8) {
            0..=2 => {
                let floor = truth.written[f].load(Ordering::SeqCst);
                let seen = mount.read(files[f]).await;
                let roof = truth.next[f].load(Ordering::SeqCst);
                assert!((floor..=roof).contains(&seen), "client {seed} saw size {seen} of file {f}: {floor} was written before it asked");
            }
            3 | 4 => {
                let size = truth.next[f].fetch_add(1, Ordering::SeqCst) + 1;
                mount.write(files[f], size).await;
                truth.written[f].fetch_max(size, Ordering::SeqCst);
            }
            5 | 6 => {
                let before = truth.ended[i].load(Ordering::SeqCst);
                let there = mount.look(root, NAMES[i]).await;
                let after = truth.begun[i].load(Ordering::SeqCst);
                assert!(before != after || there == (before % 2 == 1), "client {seed} saw {} there={there} after {before} flips", NAMES[i]);
            }
            _ => {
                let _mine = truth.names[i].lock().await;
                let flips = truth.begun[i].fetch_add(1, Ordering::SeqCst);
                mount.flip(&ids, root, NAMES[i], flips % 2 == 1).await;
                truth.ended[i].fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let left: Vec<_> = mount.kept.lock().iter().filter(|(_, k)| k.dirty).map(|(i, k)| (*i, k.size)).collect();
    for (ino, size) in left {
        mount.publish(ino, size).await;
    }
    meta.release(files.to_vec());
    assert_eq!(mount.evicted.load(Ordering::SeqCst), 0);
    meta.close_session().await;
}

fn run(seed: u64, hold_down_recalls: u32) {
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    // The data thread, with the service and its tasks.
    let data = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let leases = Limits { hold_down_recalls, hold_down_ns: 2_000_000, ..Limits::default() };
            let service =
                service_over(Config { leases, ..config() }, Arc::new(RealClock), |log| Arc::new(Pauses(log, AtomicU64::new(seed))));
            let first = Client::gateway(&service).await;
            let root = home(&first).await;
            let files = [first.file(root, "f0").await, first.file(root, "f1").await, first.file(root, "f2").await];
            tell.send((service, root, files)).expect("is waited for");
            let _ = ended.await;
        });
    });
    let (service, root, files) = told.recv().expect("starts");
    let truth = Arc::new(Truth::default());
    let threads: Vec<_> = (0..3)
        .map(|t| {
            let (service, truth) = (service.clone(), truth.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                let part = |c| tokio::spawn(client(service.clone(), truth.clone(), root, files, seed * 100 + t * 10 + c));
                runtime.block_on(async {
                    for part in [part(0), part(1)] {
                        tokio::time::timeout(Duration::from_secs(60), part).await.expect("nobody hangs").expect("nothing is wrong");
                    }
                });
            })
        })
        .collect();
    for t in threads {
        t.join().expect("a client's thread");
    }
    let last = block_on(async {
        let reader = Client::gateway(&service).await;
        let mut sizes = Vec::new();
        for f in files {
            sizes.push(reader.meta.getattr(f).await.expect("is there").0.size);
        }
        sizes
    });
    let written: Vec<u64> = truth.written.iter().map(|w| w.load(Ordering::SeqCst)).collect();
    assert_eq!(last, written, "all that was written is there in the end");
    drop(end);
    data.join().expect("the data thread");
}

#[test]
fn clients_on_many_threads_never_see_the_past() {
    for seed in seeds(0..6) {
        run(seed, 3);
    }
}

#[test]
fn clients_never_see_the_past_when_nothing_is_held_down() {
    for seed in seeds(10..16) {
        run(seed, u32::MAX);
    }
}
