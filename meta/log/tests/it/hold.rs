//! Entries whose bytes the state still needs stay in the log under any checkpoint, and are shown again at a start.

use crate::machine::{Kept, Machine, clock, config, run};
use bytes::Bytes;
use holdfast_meta_log::{MetaLog, raft};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn filler(n: u32) -> Bytes {
    let mut c = n.to_le_bytes().to_vec();
    c.resize(1000, 1);
    c.into()
}

async fn open(disk: &SimDisk, sm: &Arc<Machine>, config: &raft::Config) -> Arc<dyn MetaLog> {
    raft::open(Arc::new(disk.clone()), vec!["wal".into()], config.clone(), clock(1), sm.clone()).await.expect("opens")
}

#[test]
fn held_entries_outlive_checkpoints_and_go_when_they_are_freed() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let disk = SimDisk::new(5);
    let mut c = config();
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&disk, &sm, &c).await;
        log.propose(Bytes::from_static(b"keep this")).await.expect("proposes");
        for n in 0..200 {
            log.propose(filler(n)).await.expect("proposes");
        }
        log.shutdown().await;
    });
    assert!(c.metrics.checkpoints() >= 3, "{} checkpoints", c.metrics.checkpoints());
    assert_eq!(c.metrics.segments_retired(), 0);
    let disk = disk.crash(1);
    c.create = false;
    run(async {
        let sm = Machine::start(&stable);
        let applied = stable.lock().index;
        let log = open(&disk, &sm, &c).await;
        let shown = sm.shown.lock().clone();
        assert_eq!(shown[0].1, "keep this");
        assert_eq!(shown.last().map(|e| e.0), Some(applied), "up to what the state had, and the rest is applied");
        assert!(shown.windows(2).all(|w| w[0].0 < w[1].0));
        log.propose(Bytes::from_static(b"free")).await.expect("proposes");
        // A checkpoint that was on its way may still know of it; the one after does not.
        let checkpoints = c.metrics.checkpoints() + 2;
        let mut n = 200;
        while c.metrics.segments_retired() < 5 || c.metrics.checkpoints() < checkpoints {
            log.propose(filler(n)).await.expect("proposes");
            n += 1;
            assert!(n < 1000, "nothing is given back");
        }
        log.shutdown().await;
    });
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&disk.crash(2), &sm, &c).await;
        assert!(sm.shown.lock().is_empty(), "nothing is held");
        log.shutdown().await;
    });
}

#[test]
fn what_an_old_purge_had_to_leave_is_given_back_without_a_new_one() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let disk = SimDisk::new(6);
    let c = config();
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&disk, &sm, &c).await;
        log.propose(Bytes::from_static(b"keep")).await.expect("proposes");
        let mut n = 0;
        while c.metrics.checkpoints() < 2 {
            log.propose(filler(n)).await.expect("proposes");
            n += 1;
        }
        assert_eq!(c.metrics.segments_retired(), 0);
        log.propose(Bytes::from_static(b"free")).await.expect("proposes");
        let given_back = async {
            while c.metrics.segments_retired() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), given_back).await.expect("a segment goes");
        log.shutdown().await;
    });
}

/// Power cuts at random: whatever the state durably holds as needed is shown by the next start, with its own bytes.
#[test]
fn no_power_cut_loses_the_bytes_of_a_held_entry() {
    let mut held = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let stable: Arc<Mutex<Kept>> = Default::default();
        let mut disk = SimDisk::new(seed);
        let mut texts: BTreeMap<u64, Bytes> = BTreeMap::new();
        for round in 0..4 {
            if rng.below(3) > 0 {
                disk.cut_after(20 + rng.below(300));
            }
            let sm = Machine::start(&stable);
            let needed = stable.lock().held.clone();
            run(async {
                let dyn_disk: Arc<dyn Disk> = Arc::new(disk.clone());
                let log = match raft::open(dyn_disk, vec!["wal".into()], config(), clock(1000), sm.clone()).await {
                    Ok(log) => log,
                    Err(e) => return assert!(disk.is_cut(), "seed {seed}, round {round}: {e}"),
                };
                let shown: BTreeMap<u64, Bytes> = sm.shown.lock().iter().cloned().collect();
                // What was freed since the checkpoint may be gone: the state learns so from what is applied.
                let now = sm.live().held;
                for index in needed.intersection(&now) {
                    assert_eq!(shown.get(index), texts.get(index), "seed {seed}, round {round}: entry {index}");
                    held += 1;
                }
                for n in 0..60 {
                    let command = match rng.below(8) {
                        0 => Bytes::from(format!("keep {seed} {round} {n}")),
                        1 if rng.below(3) == 0 => Bytes::from_static(b"free"),
                        _ => filler(n),
                    };
                    if log.propose(command).await.is_err() {
                        break;
                    }
                }
                if !disk.is_cut() && rng.coin() {
                    log.shutdown().await;
                }
            });
            texts.extend(sm.live().entries.into_iter().map(|(index, _, command)| (index, command)));
            disk = if rng.coin() && !disk.is_cut() { disk.kill() } else { disk.crash(rng.next_u64()) };
        }
    }
    assert!(held > 40, "hardly anything was held: {held}");
}
