//! Random work with power cuts, kills and clean closes, by seed, against an in-memory reference.
//!
//! The reference knows for each key what it may be after a crash: what the last flush covered, or what any operation since
//! made of it. Nothing else is accepted, and what is read must be the bytes of that very version.

use super::*;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::Rng;
use parking_lot::Mutex;
use std::collections::BTreeMap;

type Version = Option<(u64, usize)>;

#[derive(Clone, Debug)]
struct Shard {
    /// Possible after a crash; the last one is what it is now.
    may_be: Vec<Version>,
    /// Whether `may_be.last()` is certain while running.
    certain: bool,
}

#[derive(Default)]
struct Reference(Mutex<BTreeMap<u64, Shard>>);

impl Reference {
    fn now(&self, n: u64) -> Version {
        self.0.lock().get(&n).and_then(|s| *s.may_be.last().unwrap())
    }
    fn certain(&self, n: u64) -> bool {
        self.0.lock().get(&n).is_none_or(|s| s.certain)
    }
    fn becomes(&self, n: u64, v: Version, certain: bool) {
        let mut all = self.0.lock();
        let s = all.entry(n).or_insert(Shard { may_be: vec![None], certain: true });
        s.may_be.push(v);
        s.certain = certain;
    }
    /// How many possibilities each key has, for a flush that begins now.
    fn lengths(&self) -> BTreeMap<u64, usize> {
        self.0.lock().iter().map(|(n, s)| (*n, s.may_be.len())).collect()
    }
    fn flushed(&self, lengths: &BTreeMap<u64, usize>) {
        let mut all = self.0.lock();
        for (n, len) in lengths {
            if let Some(s) = all.get_mut(n) {
                s.may_be.drain(..len - 1);
            }
        }
    }
}

async fn work(disk: &SimDisk, osd: &Osd, model: &Reference, rng: &mut Rng, version: &mut u64) {
    for _ in 0..10 + rng.below(50) {
        match rng.below(14) {
            0..=5 => {
                // Distinct keys at once: order among them is the log's business.
                let first = rng.below(60);
                let batch = (0..1 + rng.below(4)).map(|i| {
                    let n = (first + i * 7) % 60;
                    *version += 1;
                    let (v, blocks) = (*version, 1 + rng.below(3) as usize);
                    async move {
                        if !model.certain(n) {
                            return;
                        }
                        let now = model.now(n);
                        match (osd.put(shard(key(n), v, blocks)).await, now) {
                            (Ok(()), None) => model.becomes(n, Some((v, blocks)), true),
                            (Err(Error::Corrupt { .. }), Some(_)) => {}
                            (Err(Error::Full { .. }), None) => {}
                            (Err(Error::Down { .. }), None) if disk.is_cut() => model.becomes(n, Some((v, blocks)), false),
                            (Err(_), _) if disk.is_cut() => {}
                            (other, now) => panic!("put of {n} while {now:?}: {other:?}"),
                        }
                    }
                });
                futures::future::join_all(batch.collect::<Vec<_>>()).await;
            }
            6..=8 => {
                let some: Vec<u64> = (0..1 + rng.below(5)).map(|_| rng.below(60)).filter(|n| model.certain(*n)).collect();
                let gone = osd.delete(some.iter().map(|n| stripe(*n)).collect()).await;
                if gone.is_err() {
                    assert!(disk.is_cut(), "{gone:?}");
                }
                for n in some {
                    if model.now(n).is_some() {
                        model.becomes(n, None, gone.is_ok());
                    }
                }
            }
            9 => {
                let lengths = model.lengths();
                match osd.flush().await {
                    Ok(()) => model.flushed(&lengths),
                    Err(e) => assert!(disk.is_cut(), "{e}"),
                }
            }
            10 => {
                // Cleaning beside a delete, a put and reads.
                let (gone, put) = (rng.below(60), rng.below(60));
                *version += 1;
                let cleaning = async {
                    let _one = osd.0.housekeeper.acquire().await.unwrap();
                    if let Err(e) = osd.0.clean_some(true).await {
                        assert!(disk.is_cut(), "{e}");
                    }
                };
                let deleting = async {
                    if model.certain(gone) {
                        let held = model.now(gone).is_some();
                        let done = osd.delete(vec![stripe(gone)]).await;
                        assert!(done.is_ok() || disk.is_cut(), "{done:?}");
                        if held {
                            model.becomes(gone, None, done.is_ok());
                        }
                    }
                };
                let putting = async {
                    if put != gone && model.certain(put) && model.now(put).is_none() {
                        match osd.put(shard(key(put), *version, 2)).await {
                            Ok(()) => model.becomes(put, Some((*version, 2)), true),
                            Err(Error::Full { .. }) => {}
                            Err(_) if disk.is_cut() => model.becomes(put, Some((*version, 2)), false),
                            Err(e) => panic!("{e}"),
                        }
                    }
                };
                let reading = async {
                    for n in (0..60).filter(|n| *n != gone && *n != put) {
                        if model.certain(n) && !disk.is_cut() {
                            let got = read(osd, n).await;
                            assert!(got == Some(model.now(n)) || disk.is_cut(), "{n} is {got:?}, not {:?}", model.now(n));
                        }
                    }
                };
                futures::join!(cleaning, deleting, putting, reading);
            }
            _ => {
                let n = rng.below(60);
                if model.certain(n) && !disk.is_cut() {
                    let got = read(osd, n).await;
                    assert!(got == Some(model.now(n)) || disk.is_cut(), "{n} is {got:?}, not {:?}", model.now(n));
                }
            }
        }
    }
}

/// What is held, its bytes compared; `None`: it could not be read.
async fn read(osd: &Osd, n: u64) -> Option<Version> {
    let head = match osd.head(key(n)).await {
        Ok(head) => head,
        Err(Error::NotFound { .. }) => return Some(None),
        Err(_) => return None,
    };
    let (v, blocks) = (head.digest >> 32, head.stripe_len as usize / 4096 / 4);
    match osd.get(key(n), 0, blocks as u32 * 4096).await {
        Ok(read) => assert_eq!(read.data, data(key(n), v, blocks)),
        Err(_) => return None,
    }
    Some(Some((v, blocks)))
}

/// Answers how many segments were cleaned.
async fn one_seed(seed: u64) -> u64 {
    let mut rng = Rng::new(seed ^ 0x05d);
    let mut disk = SimDisk::new(seed);
    Osd::format(&disk, &dir(), options()).unwrap();
    let config =
        Config { capacity_bytes: Some((12 + rng.below(20)) * SEGMENT), checkpoint_bytes: (1 + rng.below(8)) * SEGMENT, ..config() };
    let (model, mut version, mut cleaned) = (Reference::default(), 0, 0);
    for round in 0..5 {
        if rng.below(3) == 0 {
            disk.cut_after(rng.below(400));
        }
        let opened = Osd::open(Arc::new(disk.clone()), &dir(), config.clone()).await;
        let (osd, start) = match opened {
            Ok(it) => it,
            Err(e) => {
                assert!(disk.is_cut(), "seed {seed} round {round}: {e}");
                disk = disk.crash(rng.next_u64());
                continue;
            }
        };
        assert!(start.recovery.faults.is_empty() || disk.is_cut(), "seed {seed} round {round}: {:?}", start.recovery.faults);
        let mut held = Vec::new();
        for n in 0..60 {
            let Some(got) = read(&osd, n).await else {
                assert!(disk.is_cut(), "seed {seed} round {round}: {n} cannot be read");
                continue;
            };
            held.extend(got.map(|_| key(n)));
            let mut all = model.0.lock();
            let s = all.entry(n).or_insert(Shard { may_be: vec![None], certain: true });
            assert!(s.may_be.contains(&got), "seed {seed} round {round}: {n} is {got:?}, may be {:?}", s.may_be);
            if !disk.is_cut() {
                // A start makes stable what it found.
                *s = Shard { may_be: vec![got], certain: true };
            }
        }
        if !disk.is_cut() {
            assert_eq!(osd.list(None, 1000).await.unwrap(), held);
            work(&disk, &osd, &model, &mut rng, &mut version).await;
            cleaned += osd.metrics().segments_cleaned.get();
        }
        if rng.below(4) == 0 && !disk.is_cut() && osd.close().await.is_ok() {
            model.flushed(&model.lengths());
        }
        let kill = rng.coin() && !disk.is_cut();
        let after = if kill { disk.kill() } else { disk.crash(rng.next_u64()) };
        disk.cut_now();
        disk = after;
        if rng.below(5) == 0 {
            // One rotten checkpoint slot must not matter.
            let slot = dir().join("log").join(format!("checkpoint.{}", rng.below(2)));
            let both = (0..2).all(|s| disk.exists(&dir().join("log").join(format!("checkpoint.{s}"))));
            if both && slots_valid(&disk).await {
                disk.corrupt(&slot, 0..64, seed);
            }
        }
    }
    cleaned
}

/// Whether both slots hold a checkpoint, so that one may rot.
async fn slots_valid(disk: &SimDisk) -> bool {
    told(disk).await.iter().filter(|l| l.kind() == "checkpoint" && l.field("generation").is_some()).count() == 2
}

#[test]
fn an_osd_is_what_the_reference_is_by_seed() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&[
        "osd.log.header_torn",
        "osd.log.checkpoint_torn",
        "osd.log.torn_payload",
        "osd.log.behind_a_cut",
        "osd.log.orphan_segment",
        "osd.log.append_failed",
        "osd.log.full",
        "osd.log.retire_failed",
        "osd.put_other_digest",
        "osd.read_errors_max",
        "osd.read_failed",
        "osd.clean_unreadable",
        "osd.checkpoint_failed",
    ]);
    let (from, to) = match std::env::var("SEED") {
        Ok(s) => (s.parse().unwrap(), s.parse::<u64>().unwrap() + 1),
        Err(_) => (0, 300),
    };
    let mut cleaned = 0;
    for seed in from..to {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        cleaned += runtime.block_on(one_seed(seed));
    }
    assert!(to - from == 1 || cleaned > 300, "cleaning was hardly tried: {cleaned} segments");
}
