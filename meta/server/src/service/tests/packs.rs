//! Small writes that travel inline: packed in the background, found again after any end, never in the way of the log.

use super::restart::{CLUSTER, empty_log, make, open_stale, open_with, restore_at};
use super::rig::*;
use crate::{Config, PackStore, PackWrite, Room, Service, StateConfig, StripeReaper};
use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use holdfast_objstore_proto::meta::{Command, Extent, Inline, MetaError, MetaResult, Publish, Shape};
use holdfast_objstore_proto::{Code, Codec, InodeId, OsdId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Stripes in memory, stable as soon as they are written.
#[derive(Default)]
pub struct Store {
    stripes: Mutex<BTreeMap<StripeId, Bytes>>,
    writes: AtomicUsize,
    broken: AtomicBool,
    /// Writes hang.
    hangs: AtomicBool,
    /// Stripes that are beyond reading.
    unreadable: Mutex<BTreeSet<StripeId>>,
    /// Bytes there are room for; it is only told.
    room: AtomicUsize,
}

/// The service's two ways to it.
struct To(Arc<Store>);

impl PackStore for To {
    fn write(&self, w: PackWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>, String>> {
        Box::pin(async move {
            // As devices do: it is there before it is answered.
            tokio::task::yield_now().await;
            if self.0.hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.0.broken.load(Ordering::SeqCst) {
                return Err("the test says so".into());
            }
            let data: Bytes = w.data.concat().into();
            let len = data.len() as u32;
            self.0.stripes.lock().insert(w.id, data);
            self.0.writes.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(Arc::new(stored(w.id, w.code.unwrap_or(Code::new(1, 0)), len)))
        })
    }

    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>, String>> {
        Box::pin(async move {
            if self.0.unreadable.lock().contains(&stripe.id) {
                return Err("the test says so".into());
            }
            self.0.get(stripe.id, range).map(|d| vec![d]).ok_or_else(|| format!("{} is gone", stripe.id))
        })
    }

    fn room(&self) -> Room {
        let total = self.0.room.load(Ordering::SeqCst) as u64;
        let used: usize = self.0.stripes.lock().values().map(Bytes::len).sum();
        let free = total.saturating_sub(used as u64);
        Room { total, free, own: free }
    }
}

impl StripeReaper for To {
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>> {
        let mut held = self.0.stripes.lock();
        stripes.iter().for_each(|s| drop(held.remove(&s.id)));
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Store {
    fn get(&self, id: StripeId, range: Range<u32>) -> Option<Bytes> {
        Some(self.stripes.lock().get(&id)?.slice(range.start as usize..range.end as usize))
    }
    fn serve(self: &Arc<Self>, service: &Service) {
        service.pack_stripes(Arc::new(To(self.clone())));
        service.reap_stripes(Arc::new(To(self.clone())));
    }
}

fn stored(id: StripeId, code: Code, len: u32) -> StripeMeta {
    let osds = (0..code.n() as u16).map(OsdId).collect();
    StripeMeta { id, codec: Codec::for_code(code), code, len, digest: 1, osds, missing: 0 }
}

impl Client {
    /// Publishes bytes inline.
    pub async fn send(&self, ino: InodeId, offset: u64, data: &[u8]) -> MetaResult<()> {
        let stripe = self.ids.stripe().await?;
        let (attr, _) = self.meta.getattr(ino).await?;
        let len = data.len() as u32;
        let publish = Publish {
            ino,
            number: attr.number + 1,
            extents: vec![Extent { offset, len, stripe, stripe_offset: 0 }],
            stripes: vec![],
            inline: vec![Inline { stripe, data: Bytes::copy_from_slice(data) }],
            size: attr.size.max(offset + len as u64),
            mtime: 1,
            ctime: 1,
            clear_suid: false,
        };
        self.meta.submit(Command::Publish(publish)).await.map(drop)
    }

    /// The bytes of a file, wherever they are; those of a stripe that is gone are read again by a new map.
    pub async fn bytes(&self, ino: InodeId, store: &Store) -> MetaResult<Vec<u8>> {
        for _ in 0..3 {
            let (attr, _) = self.meta.getattr(ino).await?;
            let mut out = vec![0; attr.size as usize];
            let mut gone = false;
            for e in self.meta.extents(ino, 0..16).await? {
                let range = e.stripe_offset..e.stripe_offset + e.len;
                let data = match &e.inline {
                    Some(data) => Some(data.slice(range.start as usize..range.end as usize)),
                    None => store.get(e.stripe.id, range),
                };
                match data {
                    Some(data) => out[e.offset as usize..][..data.len()].copy_from_slice(&data),
                    None => gone = true,
                }
            }
            if !gone {
                return Ok(out);
            }
        }
        panic!("{ino} is not where its map says")
    }
}

/// Waits for background work, with a deadline.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok(), "never: {what}");
}

pub fn quick() -> Config {
    Config { pack_idle: Duration::from_millis(1), ..config() }
}

pub fn lazy() -> Config {
    Config { pack_idle: Duration::from_secs(3600), pack_delay: Duration::from_secs(3600), ..config() }
}

#[tokio::test]
async fn what_is_sent_inline_is_packed_once_nothing_more_comes() {
    let service = Service::in_memory_with(quick(), Arc::new(clock()));
    let store = Arc::new(Store::default());
    let a = Client::mount(&service, "a").await;
    assert!(!a.meta.inline_room(1), "nobody packs here");
    store.serve(&service);
    assert!(a.meta.inline_room(1));
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.send(f, 0, &[1; 4096]).await.expect("sends");
    a.send(f, 4096, &[2; 100]).await.expect("sends");
    assert_eq!(a.bytes(f, &store).await.expect("reads").len(), 4196);
    until("it is packed", || service.status().stats.staged == 0).await;
    let stats = service.status().stats;
    assert_eq!((stats.packs, stats.packed_bytes, service.metrics().drained_bytes.get()), (1, 4196, 4196));
    assert_eq!(a.bytes(f, &store).await.expect("reads"), [vec![1; 4096], vec![2; 100]].concat());
    // Overwritten by more than half, the pack is rewritten; then deleted with all there is.
    a.send(f, 0, &[3; 4096]).await.expect("sends");
    until("one pack has what lives", || {
        let s = service.status().stats;
        (s.staged, s.sparse, s.packs, s.retired) == (0, 0, 2, 0)
    })
    .await;
    assert_eq!(service.metrics().packs_rewritten.get(), 1);
    assert_eq!(a.bytes(f, &store).await.expect("reads"), [vec![3; 4096], vec![2; 100]].concat());
    a.unlink(root, "f").await.expect("unlinks");
    until("nothing is left", || store.stripes.lock().is_empty() && service.status().stats.packs == 0).await;
    service.shutdown().await.expect("stops");
}

#[tokio::test]
async fn much_staged_is_packed_at_once_and_beyond_the_bound_there_is_no_room() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["meta.pack_failed"]);
    let state = StateConfig { staged_bytes_max: 16 * (4096 + 256), ..StateConfig::default() };
    let service = Service::in_memory_with(Config { state, ..lazy() }, Arc::new(clock()));
    let store = Arc::new(Store::default());
    store.broken.store(true, Ordering::SeqCst);
    store.serve(&service);
    let a = Client::mount(&service, "a").await;
    let f = a.file(home(&a).await, "f").await;
    let mut n = 0;
    while a.meta.inline_room(4096) {
        a.send(f, n * 4096, &[n as u8; 4096]).await.expect("sends");
        n += 1;
    }
    assert_eq!((n, service.status().stats.staged), (16, 16));
    until("it was tried", || service.metrics().pack_failures.get() > 0).await;
    store.broken.store(false, Ordering::SeqCst);
    until("there is room again", || a.meta.inline_room(64 << 10)).await;
    assert_eq!(service.status().stats.staged, 0);
    let want: Vec<u8> = (0..16u8).flat_map(|n| [n; 4096]).collect();
    assert_eq!(a.bytes(f, &store).await.expect("reads"), want);
}

#[tokio::test]
async fn what_cannot_be_packed_is_written_to_the_log_anew_and_lets_go_of_old_entries() {
    let state = StateConfig { held_bytes_max: 100 << 10, ..StateConfig::default() };
    let service = Service::in_memory_with(Config { state, ..quick() }, Arc::new(clock()));
    let store = Arc::new(Store::default());
    store.broken.store(true, Ordering::SeqCst);
    store.serve(&service);
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.send(f, 0, b"kept").await.expect("sends");
    // Other changes fill the log meanwhile.
    for _ in 0..30 {
        publish(&*a.meta, f, 10).await.expect("publishes");
    }
    until("it is staged anew", || service.metrics().restaged_bytes.get() > 0).await;
    assert!(service.status().held_bytes < 100 << 10);
    assert_eq!(a.bytes(f, &store).await.expect("reads")[..4], *b"kept");
    store.broken.store(false, Ordering::SeqCst);
    until("it is packed in the end", || service.status().stats.staged == 0).await;
    assert_eq!(a.bytes(f, &store).await.expect("reads")[..4], *b"kept");
}

#[tokio::test]
async fn a_device_that_hangs_does_not_keep_the_log_from_letting_go_and_the_end_of_the_packer_ends_inline_writes() {
    let state = StateConfig { held_bytes_max: 100 << 10, ..StateConfig::default() };
    let service = Service::in_memory_with(Config { state, ..quick() }, Arc::new(clock()));
    let store = Arc::new(Store::default());
    store.hangs.store(true, Ordering::SeqCst);
    store.serve(&service);
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.send(f, 0, b"kept").await.expect("sends");
    for _ in 0..30 {
        publish(&*a.meta, f, 10).await.expect("publishes");
    }
    until("it is staged anew", || service.metrics().restaged_bytes.get() > 0 && service.status().held_bytes < 100 << 10).await;
    assert_eq!(a.bytes(f, &store).await.expect("reads")[..4], *b"kept");
    assert!(a.meta.inline_room(1));
    service.core.stop_work().await;
    assert!(!a.meta.inline_room(1), "nobody packs here any more");
}

#[tokio::test]
async fn a_pack_that_cannot_be_read_keeps_no_other_from_being_rewritten() {
    let config = Config { pack_cold: Duration::from_millis(200), ..quick() };
    let service = Service::in_memory_with(config, Arc::new(clock()));
    let store = Arc::new(Store::default());
    store.serve(&service);
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let mut files = Vec::new();
    for names in [["a", "b", "c", "d"], ["e", "f", "g", "h"]] {
        for name in names {
            files.push((name, a.file(root, name).await));
            a.send(files.last().expect("just made").1, 0, &[name.as_bytes()[0]; 4096]).await.expect("sends");
        }
        until("they are packed", || service.status().stats.staged == 0).await;
    }
    let (first, second) = (files[3], files[7]);
    let home_of = async |ino| a.meta.extents(ino, 0..1).await.expect("reads")[0].stripe.id;
    let (broken, sound) = (home_of(first.1).await, home_of(second.1).await);
    assert!(broken < sound, "it comes first in every list");
    store.unreadable.lock().insert(broken);
    for (name, _) in files[..3].iter().chain(&files[4..7]) {
        a.unlink(root, name).await.expect("unlinks");
    }
    until("the sound one is rewritten", || service.metrics().packs_rewritten.get() == 1).await;
    assert!(service.metrics().packs_unreadable.get() > 0);
    assert_ne!(home_of(second.1).await, sound);
    assert_eq!(home_of(first.1).await, broken);
    // Repair has mended it.
    store.unreadable.lock().clear();
    until("the other one is rewritten too", || service.metrics().packs_rewritten.get() == 2).await;
    assert_eq!(a.bytes(first.1, &store).await.expect("reads"), [b'd'; 4096]);
    assert_eq!(service.status().stats.sparse, 0);
}

#[tokio::test]
async fn a_start_that_accepts_it_goes_on_without_bytes_the_log_has_lost() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["meta.staged_lacking"]);
    let disk = SimDisk::new(12);
    make(&disk).await.expect("formats");
    let service = open_with(&disk, lazy()).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.send(f, 0, b"lost").await.expect("sends");
    service.shutdown().await.expect("stops in order");
    // The state goes on with a new log, which has none of the entries before.
    let disk = disk.kill();
    empty_log(&disk).await;
    let refused = open_with(&disk, lazy()).await.err().expect("bytes are missing").to_string();
    assert!(refused.contains("1 small writes") && refused.contains("--accept-stale"), "{refused}");
    let service = open_stale(&disk.kill(), quick()).await.expect("opens without them");
    assert!(service.status().notes.iter().any(|n| n.contains("1 small writes")), "{:?}", service.status().notes);
    let store = Arc::new(Store::default());
    store.serve(&service);
    let b = Client::mount(&service, "b").await;
    b.send(f, 8192, b"new").await.expect("sends");
    until("what is left is packed", || service.status().stats.staged == 1).await;
    assert_eq!(service.status().held_bytes, 0);
    let map = b.meta.extents(f, 0..1).await.expect("reads");
    assert!(map[0].inline.is_none() && map[0].stripe.is_bare(), "the lost bytes are told apart");
    assert_eq!(store.get(map[1].stripe.id, map[1].stripe_offset..map[1].stripe_offset + 3).as_deref(), Some(&b"new"[..]));
    service.export(CLUSTER).await.expect("exports what is left");
    b.unlink(root, "f").await.expect("unlinks");
    until("nothing is listed", || service.status().stats.staged == 0).await;
    service.shutdown().await.expect("stops");
}

/// Bytes that no pack has yet are in a backup, also those of entries that a checkpoint covers; what comes after its moment is not.
#[tokio::test]
async fn a_backup_has_the_bytes_of_small_writes_that_are_not_packed_yet() {
    let disk = SimDisk::new(13);
    make(&disk).await.expect("formats");
    let service = open_with(&disk, lazy()).await.expect("opens");
    let store = Arc::new(Store::default());
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let (old, new) = (a.file(root, "old").await, a.file(root, "new").await);
    a.send(old, 0, &[1; 5000]).await.expect("sends");
    a.send(old, 100, b"over it").await.expect("sends");
    service.checkpoint().await.expect("checkpoints");
    a.send(new, 0, &[2; 300]).await.expect("sends");
    let want = [a.bytes(old, &store).await.expect("reads"), a.bytes(new, &store).await.expect("reads")];
    assert_eq!(service.status().stats.staged, 3);
    let mut export = service.export(CLUSTER).await.expect("exports");
    a.send(new, 0, &[3; 400]).await.expect("sends");
    let image = tokio::task::spawn_blocking(move || {
        let mut bytes = export.start();
        while let Some(more) = export.next().expect("reads") {
            bytes.extend(more);
        }
        bytes
    });
    let image = image.await.expect("no panic");
    service.shutdown().await.expect("stops");
    let disk = SimDisk::new(14);
    restore_at(&disk, &image).await;
    let service = open_with(&disk.crash(1), quick()).await.expect("opens what was restored");
    assert_eq!(service.status().stats.staged, 3);
    let b = Client::mount(&service, "b").await;
    assert_eq!([b.bytes(old, &store).await.expect("reads"), b.bytes(new, &store).await.expect("reads")], want);
    store.serve(&service);
    until("they are packed", || service.status().stats.staged == 0).await;
    assert_eq!([b.bytes(old, &store).await.expect("reads"), b.bytes(new, &store).await.expect("reads")], want);
    service.shutdown().await.expect("stops");
}

#[tokio::test]
async fn cold_small_stripes_are_gathered_into_a_coded_pack() {
    let time = clock();
    let service = Service::in_memory_with(Config { pack_cold: Duration::from_millis(5), ..quick() }, Arc::new(time.clone()));
    let store = Arc::new(Store::default());
    store.serve(&service);
    let a = Client::mount(&service, "a").await;
    let command = Command::CreateBucket { name: n("coded"), shape: Shape::Tree, code: Code::new(4, 2), owner: OWNER, mode: 0o755 };
    let Ok(holdfast_objstore_proto::meta::Reply::Bucket(bucket)) = a.meta.submit(command).await else { panic!("a bucket") };
    let mut files = Vec::new();
    for name in ["a", "b", "c"] {
        let f = a.file(bucket.root, name).await;
        let stripe = a.write(f, 40_000).await;
        store.stripes.lock().insert(stripe.id, vec![name.as_bytes()[0]; 40_000].into());
        files.push((f, name));
    }
    assert_eq!(service.status().stats.small, 3);
    time.advance(60_000_000_000);
    until("they are one pack and their copies are gone", || {
        let s = service.status().stats;
        (s.small, s.packs, s.packed, s.retired) == (0, 1, 3, 0)
    })
    .await;
    for (f, name) in files {
        assert_eq!(a.bytes(f, &store).await.expect("reads"), vec![name.as_bytes()[0]; 40_000]);
        assert_eq!(a.meta.extents(f, 0..1).await.expect("reads")[0].stripe.code, Code::new(4, 2));
    }
    assert_eq!((store.stripes.lock().len(), service.metrics().stripes_gathered.get()), (1, 3));
}

#[tokio::test]
async fn a_restart_finds_thousands_of_staged_writes_in_the_log() {
    let disk = SimDisk::new(11);
    make(&disk).await.expect("formats");
    let service = open_with(&disk, lazy()).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    for n in 0..2000u64 {
        a.send(f, n * 64, &[n as u8; 64]).await.expect("sends");
        if n == 700 {
            // The state is durable beyond many of them, and their entries stay all the same.
            service.checkpoint().await.expect("checkpoints");
        }
    }
    let want: Vec<u8> = (0..2000u64).flat_map(|n| [n as u8; 64]).collect();
    let store = Arc::new(Store::default());
    assert_eq!(a.bytes(f, &store).await.expect("reads"), want);
    let disk = disk.kill();
    let service = open_with(&disk, lazy()).await.expect("opens again");
    assert_eq!(service.status().stats.staged, 2000);
    let b = Client::mount(&service, "b").await;
    assert_eq!(b.bytes(f, &store).await.expect("reads"), want);
    service.shutdown().await.expect("stops in order");
    // After an orderly stop too, and then they are packed.
    let service = open_with(&disk.kill(), quick()).await.expect("opens once more");
    store.serve(&service);
    until("they are packed", || service.status().stats.staged == 0).await;
    let c = Client::mount(&service, "c").await;
    assert_eq!(c.bytes(f, &store).await.expect("reads"), want);
    assert!(store.writes.load(Ordering::SeqCst) >= 4, "no pack has more than 512 members");
    service.shutdown().await.expect("stops");
}

#[tokio::test]
async fn no_power_cut_loses_or_changes_what_was_sent_inline() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["meta.state_failed", "meta.end_failed", "meta.stripe_delete_failed"]);
    let mut packed = 0;
    for seed in crate::testing::seeds(0..10) {
        packed += cuts(seed).await;
    }
    assert!(packed > 10, "hardly anything was packed: {packed}");
}

const FILES: [&str; 4] = ["a", "b", "c", "d"];

/// What a file may hold: what was answered, and what was on its way when the power went.
#[derive(Default, Clone)]
struct File {
    ino: InodeId,
    bytes: Vec<u8>,
    maybe: Option<Vec<u8>>,
}

/// Sends, packs, overwrites and loses power at random; answers how many packs were made.
async fn cuts(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let mut disk = SimDisk::new(seed);
    make(&disk).await.expect("formats");
    let store = Arc::new(Store::default());
    let mut files: Vec<File> = Vec::new();
    for round in 0..6u64 {
        let at = format!("seed {seed}, round {round}");
        if rng.below(3) == 0 && round > 0 {
            disk.cut_after(rng.below(80));
            let opened = open_with(&disk, quick()).await;
            assert!(opened.is_ok() || disk.is_cut(), "{at}: a start fails without a cause");
            disk.cut_now();
            disk = disk.crash(seed * 1000 + round);
        }
        let service = open_with(&disk, quick()).await.unwrap_or_else(|e| panic!("{at}: {e}"));
        let a = Client::mount(&service, "a").await;
        if round == 0 {
            let root = home(&a).await;
            for name in FILES {
                files.push(File { ino: a.file(root, name).await, ..File::default() });
            }
        }
        store.serve(&service);
        for (f, name) in files.iter_mut().zip(FILES) {
            let got = a.bytes(f.ino, &store).await.unwrap_or_else(|e| panic!("{at}: {e}"));
            assert!(got == f.bytes || f.maybe.as_ref() == Some(&got), "{at}: {name} holds other bytes");
            *f = File { ino: f.ino, bytes: got, maybe: None };
        }
        if rng.below(4) > 0 {
            disk.cut_after(rng.below(400));
        }
        for step in 0..80u8 {
            let f = &mut files[rng.below(4) as usize];
            let (offset, len) = (rng.below(5000) as usize, 1 + rng.below(3000) as usize);
            let data = vec![step | 1; len];
            let mut after = f.bytes.clone();
            after.resize(after.len().max(offset + len), 0);
            after[offset..offset + len].copy_from_slice(&data);
            match a.send(f.ino, offset as u64, &data).await {
                Ok(()) => f.bytes = after,
                Err(e) => {
                    assert!(disk.is_cut() && matches!(e, MetaError::Failed(_)), "{at}: {e}");
                    f.maybe = Some(after);
                    break;
                }
            }
            match rng.below(12) {
                // A pause in which the packer gets to work.
                0 => tokio::time::sleep(Duration::from_millis(3)).await,
                1 if service.checkpoint().await.is_err() => break,
                2 => assert!(disk.is_cut() || a.bytes(f.ino, &store).await.is_ok_and(|b| b == f.bytes) || disk.is_cut(), "{at}"),
                _ => {}
            }
        }
        if rng.coin() && !disk.is_cut() {
            service.shutdown().await.expect("stops in order");
        }
        let next = if rng.coin() { disk.crash(seed * 100 + round) } else { disk.kill() };
        disk.cut_now();
        disk = next;
    }
    store.writes.load(Ordering::SeqCst)
}

impl Client {
    /// Publishes bytes on a stripe of their own.
    async fn lay(&self, store: &Store, ino: InodeId, offset: u64, data: Vec<u8>) {
        let id = self.ids.stripe().await.expect("an id");
        let len = data.len() as u32;
        store.stripes.lock().insert(id, data.into());
        let (attr, _) = self.meta.getattr(ino).await.expect("is there");
        let publish = Publish {
            ino,
            number: attr.number + 1,
            extents: vec![Extent { offset, len, stripe: id, stripe_offset: 0 }],
            stripes: vec![Arc::new(stored(id, Code::new(1, 0), len))],
            inline: vec![],
            size: attr.size.max(offset + len as u64),
            mtime: 1,
            ctime: 1,
            clear_suid: false,
        };
        self.meta.submit(Command::Publish(publish)).await.expect("publishes");
    }
}

#[tokio::test]
async fn worn_stripes_are_rewritten_when_room_is_short_and_not_before() {
    const MIB: usize = 1 << 20;
    let service = Service::in_memory_with(quick(), Arc::new(clock()));
    let store = Arc::new(Store::default());
    store.room.store(1 << 30, Ordering::SeqCst);
    store.serve(&service);
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    for n in 0..8 {
        a.lay(&store, f, n * 4 * MIB as u64, vec![n as u8; 4 * MIB]).await;
    }
    for n in 0..24 {
        a.lay(&store, f, (n / 3 * 4 + n % 3) * MIB as u64, vec![100 + n as u8; MIB]).await;
    }
    let want = a.bytes(f, &store).await.expect("reads");
    // With room for it a quarter may live of the old stripes: more than half of all does.
    service.hurry_returning();
    until("nothing is under way", || service.status().stats.retired == 0).await;
    assert_eq!((service.worn_bytes(), service.metrics().worn_passes.get()), (24 * MIB as u64, 0));
    store.room.store(60 * MIB, Ordering::SeqCst);
    service.hurry_returning();
    let held = |store: &Store| store.stripes.lock().values().map(Bytes::len).sum::<usize>();
    until("there is room again", || held(&store) == 44 * MIB).await;
    assert_eq!(
        (service.status().stats.dead, service.metrics().worn_bytes.get()),
        (12 * MIB as u64, 4 * MIB as u64),
        "no more than it takes"
    );
    store.room.store(46 * MIB, Ordering::SeqCst);
    service.hurry_returning();
    until("what is dead is gone", || service.status().stats.dead == 0 && held(&store) == 32 * MIB).await;
    assert_eq!(service.metrics().worn_bytes.get(), 8 * MIB as u64, "each byte that lived was copied once");
    assert!(a.bytes(f, &store).await.expect("reads") == want);
    assert_eq!(service.worn_bytes(), 0);
    service.shutdown().await.expect("stops");
}
