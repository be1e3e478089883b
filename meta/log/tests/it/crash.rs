//! Power cuts by seed: whatever was answered is there, once, in order, after every start.

use crate::machine::{Kept, Machine, clock, config, run};
use bytes::Bytes;
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

struct World {
    disk: SimDisk,
    stable: Arc<Mutex<Kept>>,
    proposed: BTreeSet<Bytes>,
    answered: Vec<Bytes>,
    /// What the state last showed of the log's order, as far as it was answered.
    order: Vec<Bytes>,
}

impl World {
    fn check(&mut self, sm: &Machine, why: &str) {
        let commands = sm.commands();
        let distinct: BTreeSet<_> = commands.iter().cloned().collect();
        assert_eq!(distinct.len(), commands.len(), "{why}: a command was applied twice");
        assert!(distinct.is_subset(&self.proposed), "{why}: a command nobody proposed");
        for c in &self.answered {
            assert!(distinct.contains(c), "{why}: lost {c:?}");
        }
        // What was applied before, and is still there, kept its order.
        let still: Vec<_> = self.order.iter().filter(|c| distinct.contains(*c)).collect();
        let now: Vec<_> = commands.iter().filter(|c| self.order.contains(*c)).collect();
        assert_eq!(still, now, "{why}: the order changed");
    }
}

/// One life of the process: starts, checks, proposes until the power goes or the work is done.
fn life(world: &mut World, seed: u64, round: u64, cut: Option<u64>) {
    let why = format!("seed {seed}, round {round}");
    let mut rng = Rng::new(seed * 31 + round);
    let disk = world.disk.clone();
    if let Some(n) = cut {
        disk.cut_after(n);
    }
    let answered: Arc<Mutex<Vec<Bytes>>> = Default::default();
    let sm = Machine::start(&world.stable);
    let opened = run(async {
        let dyn_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let log = match raft::open(dyn_disk, vec!["wal".into()], config(), clock(1000), sm.clone()).await {
            Ok(log) => log,
            Err(e) => {
                assert!(disk.is_cut(), "{why}: {e}");
                return false;
            }
        };
        world.check(&sm, &why);
        let tasks = (0..4u64).map(|t| {
            let (log, answered) = (log.clone(), answered.clone());
            let sizes: Vec<u64> = (0..12).map(|_| if rng.below(8) == 0 { rng.below(30_000) } else { rng.below(600) }).collect();
            async move {
                let mut mine = Vec::new();
                for (n, size) in sizes.into_iter().enumerate() {
                    let mut c = format!("{seed}/{round}/{t}/{n}:").into_bytes();
                    c.resize(c.len() + size as usize, b'x');
                    let c = Bytes::from(c);
                    mine.push(c.clone());
                    match log.propose(c.clone()).await {
                        Ok(_) => answered.lock().push(c),
                        Err(_) => break,
                    }
                }
                mine
            }
        });
        for mine in futures::future::join_all(tasks).await {
            world.proposed.extend(mine);
        }
        if !disk.is_cut() && rng.coin() {
            log.shutdown().await;
        }
        true
    });
    if opened {
        world.answered.extend(answered.lock().iter().cloned());
        world.check(&sm, &why);
        let known: BTreeSet<_> = world.answered.iter().cloned().collect();
        world.order = sm.commands().into_iter().filter(|c| known.contains(c)).collect();
    }
}

fn history(seed: u64) -> (usize, bool) {
    let mut rng = Rng::new(seed);
    let mut world = World {
        disk: SimDisk::new(seed),
        stable: Default::default(),
        proposed: Default::default(),
        answered: Vec::new(),
        order: Vec::new(),
    };
    let mut cuts = false;
    for round in 0..3 {
        let cut = (rng.below(4) > 0).then(|| rng.below(260));
        life(&mut world, seed, round, cut);
        cuts |= world.disk.is_cut();
        world.disk = if rng.below(4) == 0 && !world.disk.is_cut() { world.disk.kill() } else { world.disk.crash(rng.next_u64()) };
    }
    // A last quiet life sees everything.
    life(&mut world, seed, 9, None);
    (world.answered.len(), cuts)
}

#[test]
fn no_power_cut_loses_an_answered_command() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.retire_failed", "wal.write_after_failure", "wal.failed"]);
    let seeds: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(200);
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let (mut answered, mut cuts) = (0, 0);
    for seed in first..first + seeds {
        let (n, cut) = history(seed);
        answered += n;
        cuts += usize::from(cut);
    }
    assert!(seeds < 50 || (answered > 50 * seeds as usize && cuts > seeds as usize / 2), "{answered} answered, {cuts} cuts");
}

#[test]
fn a_full_device_leaves_a_log_that_opens_again() {
    let mut full = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let mut world = World { disk, stable: Default::default(), proposed: Default::default(), answered: Vec::new(), order: Vec::new() };
        let answered: Arc<Mutex<Vec<Bytes>>> = Default::default();
        let sm = Machine::start_held(&world.stable);
        run(async {
            let log = raft::open(Arc::new(world.disk.clone()), vec!["wal".into()], config(), clock(1), sm.clone()).await.expect("opens");
            // Room for a few segments more, not whole ones; no checkpoint ends.
            world.disk.set_capacity(Some((5 << 16) + (seed << 12)));
            let mut rng = Rng::new(seed);
            let mut tasks = tokio::task::JoinSet::new();
            for n in 0..200u64 {
                let size = if rng.below(3) == 0 { 50_000 } else { 100 };
                let mut c = format!("{n}:").into_bytes();
                c.resize(c.len() + rng.below(size) as usize, b'x');
                let c = Bytes::from(c);
                world.proposed.insert(c.clone());
                let (log, answered) = (log.clone(), answered.clone());
                tasks.spawn(async move {
                    if log.propose(c.clone()).await.is_ok() {
                        answered.lock().push(c);
                    }
                });
                for _ in 0..rng.below(12) {
                    tokio::task::yield_now().await;
                }
            }
            tasks.join_all().await;
            full += usize::from(log.may_read().is_err());
        });
        world.answered = answered.lock().clone();
        world.disk = world.disk.crash(seed);
        world.disk.set_capacity(None);
        life(&mut world, seed, 1, None);
    }
    assert!(full > 50, "{full} of 60 found the device full");
}

#[test]
fn with_flushes_that_lie_the_same_check_finds_losses() {
    let mut lost = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let stable: Arc<Mutex<Kept>> = Default::default();
        let sm = Machine::start(&stable);
        let answered = run(async {
            let log = raft::open(Arc::new(disk.clone()), vec!["wal".into()], config(), clock(1), sm.clone()).await.expect("opens");
            disk.lying_flush(true);
            for n in 0..20u32 {
                log.propose(Bytes::from(n.to_string())).await.expect("proposes");
            }
            sm.commands()
        });
        let sm = Machine::start(&stable);
        let opened = run(raft::open(Arc::new(disk.crash(seed)), vec!["wal".into()], config(), clock(1), sm.clone()));
        lost += usize::from(opened.is_err() || sm.commands() != answered);
    }
    assert!(lost > 20, "the control must lose something: {lost} of 40");
}
