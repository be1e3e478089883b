//! Random work with power cuts and kills, by seed, against what was acknowledged.

use super::*;
use holdfast_objstore_base::sim::Rng;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// What the test knows: name → (payload bytes, flushed).
#[derive(Default, Clone)]
struct Known(Arc<Mutex<BTreeMap<u64, (usize, bool)>>>);

async fn life(disk: &SimDisk, log: &Log, known: &Known, next: &mut u64, rng: &mut Rng) {
    for _ in 0..rng.below(40) {
        match rng.below(10) {
            0..=5 => {
                let mut batch = Vec::new();
                for _ in 0..1 + rng.below(4) {
                    let (name, bytes) = (*next, rng.below(4) as usize * 5000);
                    *next += 1;
                    let append = Append::new(1, name.to_string()).payload(payload(&name.to_string(), bytes));
                    let (log, known) = (log.clone(), known.clone());
                    batch.push(async move {
                        if log.append(append).await.is_ok() {
                            known.0.lock().insert(name, (bytes, false));
                        }
                    });
                }
                futures::future::join_all(batch).await;
            }
            6..=7 => {
                let before: Vec<u64> = known.0.lock().keys().copied().collect();
                if log.flush().await.is_ok() {
                    let mut k = known.0.lock();
                    before.iter().for_each(|n| k.get_mut(n).unwrap().1 = true);
                }
            }
            8 => drop(log.roll().await),
            _ => {
                // Give a whole segment back, with all that is in it.
                let Some(s) = log.segments().into_iter().find(|s| s.settled) else { continue };
                if rng.coin() && log.segments().len() > 3 && !disk.is_cut() {
                    let gone: Vec<u64> = records_of(log, disk, s.life).await;
                    known.0.lock().retain(|n, _| !gone.contains(n));
                    drop(log.retire(s.life).await);
                }
            }
        }
    }
}

/// Names in one life, by reading the segment as a recovery would.
async fn records_of(log: &Log, disk: &SimDisk, life: u32) -> Vec<u64> {
    let file = segment_file(disk, number_of_life(log, life));
    let mut window = super::super::scan::Window::new(&*file, BLOCKS);
    let (mut block, mut names) = (2, Vec::new());
    while block < BLOCKS {
        let Ok(head) = window.head(ID, Position { life, block }).await else { break };
        block += head.location.blocks();
        if head.kind == 1 {
            names.push(std::str::from_utf8(&head.meta).unwrap().parse().unwrap());
        }
    }
    names
}

async fn one_seed(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut disk = SimDisk::new(seed);
    Log::format(&disk, &dir(), ID, &config()).unwrap();
    let (known, mut next, mut epoch) = (Known::default(), 1, 0);
    for round in 0..4 {
        if rng.below(3) == 0 {
            disk.cut_after(rng.below(300));
        }
        let mut seen = Seen::default();
        let opened = Log::open(Arc::new(disk.clone()), &dir(), Config { on_corruption: OnCorruption::Refuse, ..config() }, &mut seen).await;
        let (log, recovery) = match opened {
            Ok(it) => it,
            Err(e) => {
                assert!(disk.is_cut(), "seed {seed} round {round}: {e}");
                disk = disk.crash(rng.next_u64());
                continue;
            }
        };
        assert!(recovery.epoch > epoch);
        epoch = recovery.epoch;
        let found: BTreeMap<u64, Location> = seen.metas().iter().zip(&seen.records).map(|(m, r)| (m.parse().unwrap(), r.3)).collect();
        {
            let mut k = known.0.lock();
            for (name, (_, flushed)) in k.iter() {
                assert!(!flushed || found.contains_key(name), "seed {seed} round {round}: {name} was flushed and is gone");
            }
            // What is found after a start counts from now on; what is not is gone for good.
            k.retain(|name, _| found.contains_key(name));
            k.values_mut().for_each(|v| v.1 = true);
        }
        for (name, at) in &found {
            let name = name.to_string();
            match log.read(at, 0, at.payload_bytes).await {
                Ok(data) => assert_eq!(data, payload(&name, at.payload_bytes as usize), "seed {seed}"),
                Err(e) => assert!(disk.is_cut(), "seed {seed} round {round} record {name}: {e}"),
            }
        }
        life(&disk, &log, &known, &mut next, &mut rng).await;
        let kill = rng.coin() && !disk.is_cut();
        let after = if kill { disk.kill() } else { disk.crash(rng.next_u64()) };
        disk.cut_now();
        disk = after;
    }
}

#[test]
fn every_flushed_record_survives_any_crash_by_seed() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["osd.log.flush_failed"]);
    let (from, to) = match std::env::var("SEED") {
        Ok(s) => (s.parse().unwrap(), s.parse::<u64>().unwrap() + 1),
        Err(_) => (0, 300),
    };
    for seed in from..to {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(one_seed(seed));
    }
}
