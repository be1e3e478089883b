//! The layers against a plain map, by seed, with checkpoints, reopenings and power cuts.

use super::*;
use crate::testing::seeds;
use bytes::Bytes;
use holdfast_meta_core::{Kv, KvRead, MemKv};
use holdfast_meta_log::Blocking;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{self, Disk, File, Open};
use holdfast_objstore_base::sim::{Rng, SimDisk};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicU32;

const FILE: &str = "state.redb";
/// Rows of the tests lie outside the families of a real state.
const FAMILY: u8 = 0xf0;

fn config() -> StateConfig {
    StateConfig { overlay_bytes: 1 << 20, overlay_bytes_max: 4 << 20, cache_bytes: 1 << 20, ..StateConfig::default() }
}

fn open(disk: &SimDisk) -> Arc<State> {
    let file = disk.open(Path::new(FILE), Open::Create).expect("opens");
    disk.sync_dir(Path::new("")).expect("syncs");
    State::open(Store::open(file, 1 << 20, Blocking::Pool).expect("a database"), config(), Metrics::default()).expect("a state")
}

type Change = (Vec<u8>, Option<Bytes>);

/// Applies a batch as the log would.
fn apply(state: &State, index: u64, changes: &[Change]) {
    state
        .update(|layers| {
            for (k, v) in changes {
                match v {
                    Some(v) => layers.put(k, v.clone()),
                    None => layers.delete(k),
                }
            }
            layers.mark = Mark { applied: index, tail: Bytes::from(format!("tail {index}")) };
            Ok(())
        })
        .expect("applies");
}

fn apply_model(model: &mut MemKv, changes: &[Change]) {
    for (k, v) in changes {
        match v {
            Some(v) => model.put(k, v.clone()),
            None => model.delete(k),
        }
    }
}

/// All rows in a range, up to `max` of them.
fn rows(kv: &dyn KvRead, from: &[u8], to: &[u8], max: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    kv.scan(from, to, &mut |k, v| {
        all.push((k.to_vec(), v.to_vec()));
        if all.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .expect("scans");
    all
}

fn key(n: u64) -> Vec<u8> {
    let mut k = vec![FAMILY];
    k.extend_from_slice(&(n as u16).to_be_bytes());
    k
}

fn batch(rng: &mut Rng) -> Vec<Change> {
    (0..rng.below(6))
        .map(|_| {
            let k = key(rng.below(200));
            let value = (rng.below(3) > 0).then(|| {
                let mut v = vec![0; rng.below(300) as usize];
                rng.fill(&mut v);
                Bytes::from(v)
            });
            (k, value)
        })
        .collect()
}

fn compare(state: &State, model: &MemKv, rng: &mut Rng, seed: u64) {
    let (a, b) = (key(rng.below(220)), key(rng.below(220)));
    let max = 1 + rng.below(50) as usize;
    state
        .view(|layers| {
            assert_eq!(rows(layers, &a, &b, max), rows(model, &a, &b, max), "seed {seed}");
            for n in 0..20 {
                let k = key(n * 10);
                assert_eq!(layers.get(&k)?, model.get(&k)?, "seed {seed}");
            }
            Ok(())
        })
        .expect("reads");
}

#[tokio::test]
async fn layers_read_like_one_map_across_checkpoints_restarts_and_power_cuts() {
    for seed in seeds(0..12) {
        let mut rng = Rng::new(seed);
        let mut disk = SimDisk::new(seed);
        let mut state = open(&disk);
        // Batch i + 1 is history[i]; the log would keep them.
        let mut history: Vec<Vec<Change>> = Vec::new();
        let mut model = MemKv::default();
        let mut promised = 0;
        for step in 0..120 {
            match rng.below(20) {
                0..=13 => {
                    let changes = batch(&mut rng);
                    history.push(changes.clone());
                    apply_model(&mut model, &changes);
                    apply(&state, history.len() as u64, &changes);
                }
                14 | 15 => state.seal(),
                16 | 17 => promised = state.checkpoint().await.expect("checkpoints").max(promised),
                18 => compare(&state, &model, &mut rng, seed),
                _ => {
                    // The process ends, or the power does; a fold may be half done.
                    let power = rng.coin();
                    let next = if power { disk.crash(seed * 1000 + step) } else { disk.kill() };
                    disk.cut_now();
                    drop(state);
                    disk = next;
                    state = open(&disk);
                    let at = state.view(|l| Ok(l.mark.clone())).expect("reads");
                    assert!(at.applied >= promised, "seed {seed}: a finished checkpoint is lost");
                    assert!(at.applied == 0 || at.tail == format!("tail {}", at.applied), "seed {seed}");
                    for (i, changes) in history.iter().enumerate().skip(at.applied as usize) {
                        apply(&state, i as u64 + 1, changes);
                    }
                }
            }
            compare(&state, &model, &mut rng, seed);
        }
        let end = [FAMILY + 1];
        let all = state.view(|l| Ok(rows(l, &[FAMILY], &end, usize::MAX))).expect("reads");
        assert_eq!(all, rows(&model, &[FAMILY], &end, usize::MAX), "seed {seed}");
        state.close().await.expect("closes");
    }
}

#[tokio::test]
async fn a_full_overlay_is_folded_by_itself_and_new_work_waits_for_room() {
    let disk = SimDisk::new(3);
    let state = open(&disk);
    let value = Bytes::from(vec![7; 100 << 10]);
    for i in 0..100 {
        state.room().await.expect("gets room");
        apply(&state, i + 1, &[(key(i), Some(value.clone()))]);
        assert!(state.overlay_bytes() <= config().overlay_bytes_max + (200 << 10));
    }
    assert!(state.metrics.checkpoints.get() > 0);
    assert_eq!(state.checkpoint().await.ok(), Some(100));
    assert_eq!(state.overlay_bytes(), 0);
    let seen = state.view(|l| Ok(rows(l, &[FAMILY], &[FAMILY + 1], usize::MAX).len())).expect("reads");
    assert_eq!(seen, 100);
}

/// A file that notes its largest write.
struct Noted {
    file: Arc<dyn File>,
    largest: Arc<AtomicUsize>,
}

impl File for Noted {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> disk::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> disk::Result<()> {
        self.file.set_len(len)
    }
    fn read_at(&self, offset: u64, buf: AlignedBuf) -> BoxFuture<'_, disk::Result<AlignedBuf>> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: Vec<Bytes>) -> BoxFuture<'_, disk::Result<()>> {
        self.largest.fetch_max(parts.iter().map(Bytes::len).sum(), Ordering::Relaxed);
        self.file.write_at(offset, parts)
    }
    fn flush(&self) -> BoxFuture<'_, disk::Result<()>> {
        self.file.flush()
    }
    fn flush_all(&self) -> BoxFuture<'_, disk::Result<()>> {
        self.file.flush_all()
    }
    fn domain(&self) -> disk::DomainId {
        self.file.domain()
    }
}

#[tokio::test]
async fn a_checkpoint_writes_small_pieces_and_pauses_after_each_until_the_log_fills_up() {
    let (disk, largest) = (SimDisk::new(8), Arc::new(AtomicUsize::new(0)));
    let file = disk.open(Path::new(FILE), Open::Create).expect("opens");
    let file: Arc<dyn File> = Arc::new(Noted { file, largest: largest.clone() });
    let store = Store::open(file, 1 << 20, Blocking::Pool).expect("a database");
    let state = State::open(store, config(), Metrics::default()).expect("a state");
    let fill = Arc::new(AtomicU32::new(0));
    let told = fill.clone();
    state.pace_by(Arc::new(move || told.load(Ordering::Relaxed)));
    let change = |round: u8| {
        // Rows far apart, and one that takes many pages.
        let mut rows: Vec<Change> = (0..400).map(|n| (key(n * 50), Some(vec![round; 400].into()))).collect();
        rows.push((key(60_000), Some(vec![round; 300 << 10].into())));
        rows
    };
    apply(&state, 1, &change(1));
    largest.store(0, Ordering::Relaxed);
    state.checkpoint().await.expect("checkpoints");
    let m = &state.metrics;
    let (written, pauses) = (m.checkpoint_written_bytes.get(), m.checkpoint_pauses.get());
    assert!((512 << 10..4 << 20).contains(&written), "{written} bytes in {} writes", m.checkpoint_writes.get());
    assert_eq!(largest.load(Ordering::Relaxed), pace::PIECE_BYTES);
    assert!(written <= (pauses + 1) * 2 * pace::PIECE_BYTES as u64, "{pauses} pauses in {written} bytes");
    // A quarter of the log's room is taken: it goes on to the end.
    fill.store(250, Ordering::Relaxed);
    apply(&state, 2, &change(2));
    state.checkpoint().await.expect("checkpoints");
    assert!(m.checkpoint_written_bytes.get() > written);
    assert_eq!(m.checkpoint_pauses.get(), pauses);
    state.close().await.expect("closes");
}

#[tokio::test]
async fn a_closed_state_is_held_by_its_caller_alone() {
    for seed in 0..100 {
        let state = open(&SimDisk::new(seed));
        apply(&state, 1, &[(key(1), Some(Bytes::from_static(b"x")))]);
        state.close().await.expect("closes");
        assert_eq!(Arc::strong_count(&state), 1, "seed {seed}");
    }
}

#[tokio::test]
async fn a_failed_checkpoint_stops_the_service_for_good() {
    let disk = SimDisk::new(4);
    let state = open(&disk);
    apply(&state, 1, &[(key(1), Some(Bytes::from_static(b"x")))]);
    disk.fail_flush(1);
    assert!(state.checkpoint().await.is_err());
    assert!(state.view(|_| Ok(())).is_err() && state.update(|_| Ok(())).is_err());
}

#[tokio::test]
async fn a_batch_that_failed_half_way_never_gets_into_the_file() {
    let disk = SimDisk::new(7);
    let state = open(&disk);
    apply(&state, 1, &[(key(1), Some(Bytes::from_static(b"whole")))]);
    assert_eq!(state.checkpoint().await.ok(), Some(1));
    let half = state.update(|layers| {
        layers.put(&key(2), Bytes::from(vec![7; 2 << 20]));
        layers.mark.applied = 2;
        Err::<(), _>(StateError("the second command fails".into()))
    });
    assert!(half.is_err());
    assert!(state.layers.read().active.bytes() > config().overlay_bytes, "full, and not sealed");
    assert!(state.close().await.is_err());
    // A fold that began ends with the thread.
    state.folder.as_ref().expect("it has a file").end().await;
    drop(state);
    let state = open(&disk.kill());
    state
        .view(|l| {
            assert_eq!((l.get(&key(2))?, l.mark.applied), (None, 1));
            Ok(())
        })
        .expect("reads");
}

#[tokio::test]
async fn a_state_of_a_newer_format_is_refused() {
    let disk = SimDisk::new(5);
    let file = disk.open(Path::new(FILE), Open::Create).expect("opens");
    let store = Store::open(file.clone(), 1 << 20, Blocking::Pool).expect("a database");
    store.write_version(store::VERSION + 1);
    drop(store);
    let refused = Store::open(file, 1 << 20, Blocking::Pool).expect("a database").mark();
    assert!(refused.is_err_and(|e| e.0.contains("newer")));
}

#[tokio::test]
async fn a_damaged_file_is_an_error_not_a_panic() {
    let disk = SimDisk::new(6);
    let state = open(&disk);
    for i in 0..200 {
        apply(&state, i + 1, &[(key(i), Some(Bytes::from(vec![i as u8; 500])))]);
    }
    state.close().await.expect("closes");
    drop(state);
    let whole = disk.kill();
    let len = whole.open(Path::new(FILE), Open::Existing).expect("opens").len().expect("has a length");
    let mut errors = 0;
    for seed in 0..40u64 {
        let disk = whole.kill();
        let at = Rng::new(seed).below(len / 4096) * 4096;
        assert!(disk.corrupt(Path::new(FILE), at..at + 4096, seed));
        let file = disk.open(Path::new(FILE), Open::Existing).expect("opens");
        let used = Store::open(file, 1 << 20, Blocking::Pool).and_then(|s| State::open(s, config(), Metrics::default())).and_then(|s| {
            s.view(|l| {
                l.scan(&[FAMILY], &[FAMILY + 1], &mut |k, v| {
                    assert_eq!((k.len(), v), (3, &[k[2]; 500][..]), "seed {seed}: a wrong row is never shown");
                    ControlFlow::Continue(())
                })
            })
        });
        errors += usize::from(used.is_err());
    }
    assert!(errors >= 10, "damage was noticed {errors} times");
}

/// Device bytes of a checkpoint of 200 changed rows over `rows` rows, the least of three.
async fn checkpoint_bytes(rows: u32) -> u64 {
    let disk = SimDisk::new(u64::from(rows));
    let state = open(&disk);
    let change = |n: u32, value: u8| ([&[FAMILY][..], &n.to_be_bytes()].concat(), Some(Bytes::from(vec![value; 150])));
    let mut index = 0;
    for from in (0..rows).step_by(500) {
        index += 1;
        state.room().await.expect("room");
        apply(&state, index, &(from..from + 500).map(|n| change(n, 1)).collect::<Vec<_>>());
    }
    state.checkpoint().await.expect("checkpoints");
    let mut least = u64::MAX;
    for round in 0..3 {
        let before = disk.metrics().write_bytes();
        index += 1;
        // Names that were made one after the other lie side by side.
        apply(&state, index, &(0..200).map(|n| change(rows / 2 + n, 2 + round)).collect::<Vec<_>>());
        state.checkpoint().await.expect("checkpoints");
        least = least.min(disk.metrics().write_bytes() - before);
    }
    state.close().await.expect("closes");
    least
}

#[tokio::test]
async fn a_checkpoint_writes_what_changed_and_not_what_there_is() {
    let (few, many) = (checkpoint_bytes(5_000).await, checkpoint_bytes(50_000).await);
    assert!(few > 0 && many < 3 * few, "{few} bytes over 5,000 rows, {many} over 50,000");
}
