//! Copies of the log on several devices: what was answered survives any one of them, and a copy that missed something is never believed.

use crate::fleet::{Fleet, Log, expect, failed, mirrored, open, propose, until};
use crate::machine::{Kept, Machine, run};
use bytes::Bytes;
use holdfast_meta_log::raft::mirror::Folder;
use holdfast_meta_log::{Devices, Mirror, raft};
use holdfast_objstore_base::clock::{Clock, ManualClock};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

#[test]
fn what_was_answered_survives_the_loss_of_any_one_device() {
    for copies in [2, 3] {
        for lost in 0..3 {
            let stable: Arc<Mutex<Kept>> = Default::default();
            let fleet = Fleet::new(3, lost as u64);
            run(async {
                let sm = Machine::start(&stable);
                let log = open(&fleet, &sm, mirrored(copies)).await.expect("opens");
                propose(&log, 0..20).await;
            });
            let mut after = fleet.crash(7);
            after.0[lost] = SimDisk::new(99);
            run(async {
                let sm = Machine::start(&stable);
                let mut c = mirrored(copies);
                c.create = false;
                let log = open(&after, &sm, c).await.expect("opens without one device");
                expect(&sm, 0..20);
                // The device that came in its place gets a copy where one is wanting.
                let roles: Vec<_> = loop {
                    let roles: Vec<_> = log.mirrors().iter().map(|m| m.role).collect();
                    if roles.iter().filter(|r| **r == "copy").count() == copies {
                        break roles;
                    }
                    tokio::task::yield_now().await;
                };
                assert!(roles.iter().all(|r| *r == "copy" || *r == "spare"), "{roles:?}");
                propose(&log, 20..25).await;
                log.shutdown().await;
            });
        }
    }
}

#[test]
fn a_device_that_fails_in_service_is_replaced_and_never_believed_again() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.stale_start"]);
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = Fleet::new(3, 1);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&fleet, &sm, mirrored(2)).await.expect("opens");
        propose(&log, 0..10).await;
        until(&log, &["copy", "copy", "spare"]).await;
        fleet.0[1].cut_now();
        propose(&log, 10..20).await;
        until(&log, &["copy", "lost", "copy"]).await;
        let why = log.mirrors()[1].why.clone();
        assert!(why.is_some(), "status says why");
        propose(&log, 20..30).await;
    });
    // The first is lost now, the second comes back with what it had.
    let mut after = fleet.crash(3);
    after.0[0] = SimDisk::new(5);
    run(async {
        let sm = Machine::start(&stable);
        let mut c = mirrored(2);
        c.create = false;
        let log = open(&after, &sm, c.clone()).await.expect("opens");
        expect(&sm, 0..30);
        log.shutdown().await;
    });
    // With only the one that came back, nobody can tell.
    let mut alone = fleet.crash(4);
    (alone.0[0], alone.0[2]) = (SimDisk::new(5), SimDisk::new(6));
    run(async {
        let mut c = mirrored(2);
        c.create = false;
        let why = failed(open(&alone, &Machine::start(&stable), c.clone()).await);
        assert!(why.contains("majority") && why.contains("--accept-stale"), "{why}");
        c.mirrors.accept_stale = true;
        // A state that knows more than the copy is kept, and the log goes on behind it.
        let mut more = fleet.crash(4);
        (more.0[0], more.0[2]) = (SimDisk::new(5), SimDisk::new(6));
        let sm = Machine::start(&stable);
        let known = sm.commands().len();
        assert!(known > 10, "the state was checkpointed at {known}");
        let log = open(&more, &sm, c.clone()).await.expect("opens when told to");
        propose(&log, known as u32..60).await;
        expect(&sm, 0..60);
        log.shutdown().await;
        // A state that knows nothing gets what the copy has.
        let sm = Machine::start(&Default::default());
        let log = open(&alone, &sm, c).await.expect("opens when told to");
        expect(&sm, 0..10);
        assert!(log.notes().iter().any(|n| n.contains("lost")), "{:?}", log.notes());
        propose(&log, 50..52).await;
        log.shutdown().await;
    });
}

#[test]
fn a_late_copy_is_left_out_and_filled_again() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.copy_late", "wal.copy_back"]);
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = Fleet::new(3, 2);
    run(async {
        let sm = Machine::start(&stable);
        let manual = ManualClock::default();
        let time: Arc<dyn Clock> = Arc::new(manual.clone());
        let mut c = mirrored(3);
        c.mirrors.late_after = std::time::Duration::from_millis(8);
        let log = raft::open(Arc::new(fleet.clone()), fleet.dirs(), c, time, sm.clone()).await.expect("opens");
        propose(&log, 0..5).await;
        until(&log, &["copy", "copy", "copy"]).await;
        fleet.0[1].hold_flushes(true);
        // Two of three go on at once.
        propose(&log, 5..10).await;
        manual.advance(1_000_000_000);
        until(&log, &["copy", "late", "copy"]).await;
        propose(&log, 10..15).await;
        fleet.0[1].hold_flushes(false);
        until(&log, &["copy", "copy", "copy"]).await;
        propose(&log, 15..20).await;
        log.shutdown().await;
    });
    let mut after = fleet.crash(1);
    (after.0[0], after.0[2]) = (SimDisk::new(8), after.0[2].clone());
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&after, &sm, mirrored(3)).await.expect("opens");
        expect(&sm, 0..20);
        log.shutdown().await;
    });
}

#[test]
fn purges_reach_every_copy_and_a_filled_one_holds_what_is_left() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = Fleet::new(3, 5);
    let all: Vec<Bytes> = (0..400u32).map(|n| Bytes::from([n.to_le_bytes().as_slice(), &[7; 1000]].concat())).collect();
    run(async {
        let sm = Machine::start(&stable);
        let c = mirrored(2);
        let log = open(&fleet, &sm, c.clone()).await.expect("opens");
        for command in &all[..300] {
            log.propose(command.clone()).await.expect("proposes");
        }
        fleet.0[0].cut_now();
        for command in &all[300..] {
            log.propose(command.clone()).await.expect("goes on");
        }
        until(&log, &["lost", "copy", "copy"]).await;
        log.shutdown().await;
        for d in 1..3 {
            let files = fleet.list(Path::new(&format!("d{d}/wal"))).expect("lists").len();
            assert!(files < 14, "device {d}: 1.6 MiB went through 64 KiB segments; {files} files are left");
        }
    });
    let mut after = fleet.crash(2);
    // Only the copy that was filled is left of the two, and the stale one.
    after.0[1] = SimDisk::new(1);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&after, &sm, mirrored(2)).await.expect("opens");
        assert_eq!(sm.commands(), all);
        log.shutdown().await;
    });
}

/// Entries whose bytes the state needs lie far below the purge point when a copy is filled: it gets them too, and alone it shows them to a start.
#[test]
fn a_copy_that_is_filled_gets_entries_held_for_their_bytes() {
    for seed in 0..4 {
        let stable: Arc<Mutex<Kept>> = Default::default();
        let fleet = Fleet::new(3, seed);
        let filler = |n: u32| Bytes::from([n.to_le_bytes().as_slice(), &[7; 1000]].concat());
        let c = mirrored(2);
        let mut held = run(async {
            let sm = Machine::start(&stable);
            let log = open(&fleet, &sm, c.clone()).await.expect("opens");
            log.propose(Bytes::from_static(b"keep the first")).await.expect("proposes");
            for n in 0..300 {
                log.propose(filler(n)).await.expect("proposes");
            }
            log.propose(Bytes::from_static(b"keep the second")).await.expect("proposes");
            assert!(c.metrics.checkpoints() >= 2, "{} checkpoints", c.metrics.checkpoints());
            fleet.0[0].cut_now();
            // The third device is filled while more of both kinds comes.
            for n in 300..340 {
                log.propose(filler(n)).await.expect("goes on");
            }
            log.propose(Bytes::from_static(b"keep the third")).await.expect("goes on");
            until(&log, &["lost", "copy", "copy"]).await;
            let live = sm.live();
            let held: Vec<(u64, Bytes)> = live.entries.iter().filter(|e| live.held.contains(&e.0)).map(|e| (e.0, e.2.clone())).collect();
            assert_eq!(held.len(), 3);
            held
        });
        let mut after = fleet.crash(seed);
        // The copy that was there all along goes too.
        after.0[1] = SimDisk::new(50 + seed);
        let durable = stable.lock().index;
        held.retain(|(index, _)| *index <= durable);
        assert!(!held.is_empty(), "seed {seed}: a checkpoint covers some of them");
        run(async {
            let sm = Machine::start(&stable);
            let log = open(&after, &sm, mirrored(2)).await.expect("opens");
            let shown = sm.shown.lock().clone();
            for entry in &held {
                assert!(shown.contains(entry), "seed {seed}: {} of {:?}", entry.0, shown.iter().map(|e| e.0).collect::<Vec<_>>());
            }
            assert_eq!(sm.live().held.len(), 3, "what no checkpoint covers is applied again");
            log.shutdown().await;
        });
    }
}

struct World {
    fleet: Fleet,
    stable: Arc<Mutex<Kept>>,
    proposed: BTreeSet<Bytes>,
    answered: BTreeSet<Bytes>,
    /// A device was lost, and no start since has put the log on two again.
    hurt: bool,
}

/// One life: a start, some commands, meanwhile perhaps the end of one device, at last a power cut.
fn life(w: &mut World, seed: u64, round: u64, copies: usize) -> bool {
    let why = format!("seed {seed}, round {round}");
    let mut rng = Rng::new(seed * 977 + round);
    let dies = (!w.hurt && rng.below(2) == 0).then(|| (rng.below(3) as usize, rng.below(200)));
    let cut = (rng.below(3) == 0).then(|| rng.below(250));
    let answered: Arc<Mutex<Vec<Bytes>>> = Default::default();
    let sm = Machine::start(&w.stable);
    let opened = run(async {
        // The power goes for all of them at about the same moment, or for one alone.
        match (dies, cut) {
            (Some((device, n)), _) => w.fleet.0[device].cut_after(n),
            (None, Some(n)) => w.fleet.0.iter().enumerate().for_each(|(d, disk)| disk.cut_after(n + d as u64)),
            (None, None) => {}
        }
        let log = match open(&w.fleet, &sm, mirrored(copies)).await {
            Ok(log) => log,
            Err(e) => {
                assert!(cut.is_some() || dies.is_some(), "{why}: {e}");
                return false;
            }
        };
        let commands: BTreeSet<_> = sm.commands().into_iter().collect();
        assert_eq!(commands.len(), sm.commands().len(), "{why}: a command was applied twice");
        assert!(commands.is_subset(&w.proposed), "{why}: a command nobody proposed");
        for c in &w.answered {
            assert!(commands.contains(c), "{why}: lost {c:?}");
        }
        let tasks = (0..3u64).map(|t| {
            let (log, answered) = (log.clone(), answered.clone());
            let sizes: Vec<u64> = (0..10).map(|_| if rng.below(8) == 0 { rng.below(30_000) } else { rng.below(600) }).collect();
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
            w.proposed.extend(mine);
        }
        if rng.coin() {
            log.shutdown().await;
        }
        true
    });
    w.answered.extend(answered.lock().iter().cloned());
    w.hurt = dies.is_some() || cut.is_some() || !opened;
    w.fleet = w.fleet.crash(seed * 13 + round);
    // One device more may be lost at once, if none was.
    if !w.hurt && rng.below(2) == 0 {
        w.hurt = true;
        let lost = rng.below(3) as usize;
        w.fleet.0[lost] = SimDisk::new(seed * 1000 + round);
    }
    opened
}

#[test]
fn no_power_cut_and_no_one_device_takes_an_answered_command() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&[
        "wal.copy_lost",
        "wal.copy_lacks_end",
        "wal.copy_unreadable",
        "wal.set_not_stored",
    ]);
    let seeds: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(120);
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let (mut answered, mut lives) = (0, 0);
    for seed in first..first + seeds {
        let fleet = Fleet::new(3, seed);
        let mut w = World { fleet, stable: Default::default(), proposed: BTreeSet::new(), answered: BTreeSet::new(), hurt: false };
        for round in 0..4 {
            lives += usize::from(life(&mut w, seed, round, 2 + (seed % 2) as usize));
        }
        answered += w.answered.len();
    }
    assert!(seeds < 50 || (answered > 40 * seeds as usize && lives > 2 * seeds as usize), "{answered} answered in {lives} lives");
}

/// The same check, over rules it must not pass: a copy that missed records is put back as if it were whole.
#[test]
fn a_stale_copy_put_back_as_the_newest_is_what_the_check_would_find() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = Fleet::new(3, 9);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&fleet, &sm, mirrored(2)).await.expect("opens");
        propose(&log, 0..5).await;
        log.shutdown().await;
    });
    let old = fleet.crash(1);
    let now = old.crash(2);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&now, &sm, mirrored(2)).await.expect("opens");
        propose(&log, 5..10).await;
        log.shutdown().await;
    });
    // Two of three devices went back in time: no rule can tell, and the commands are gone.
    let mut after = now.crash(3);
    (after.0[0], after.0[1]) = (old.0[0].crash(4), old.0[1].crash(5));
    let sm = Machine::start(&stable);
    run(async { drop(open(&after, &sm, mirrored(2)).await) });
    assert_ne!(sm.commands().len(), 10);
    // One of them did: it is not believed.
    let mut after = now.crash(3);
    after.0[0] = old.0[0].crash(4);
    let sm = Machine::start(&stable);
    run(async { drop(open(&after, &sm, mirrored(2)).await.expect("opens")) });
    expect(&sm, 0..10);
}

/// All folders of a fleet are there; these are the cluster's, one device each.
fn devices(fleet: &Fleet, kept: &[u16], renewed: &[u16]) -> Devices {
    let folder = |(d, dir)| Folder { dir, mark: Some(format!("d{d}/mark").into()), present: true };
    let folders = fleet.dirs().into_iter().enumerate().map(folder).collect();
    Devices { folders, devices: kept.to_vec(), kept: kept.to_vec(), renewed: renewed.to_vec() }
}

/// As a start is told of them.
fn only(fleet: &Fleet, copies: usize, kept: &[u16]) -> raft::Config {
    let mut c = mirrored(copies);
    c.mirrors.marks = (0..fleet.0.len()).map(|d| format!("d{d}/mark").into()).collect();
    (c.mirrors.devices, c.mirrors.kept) = (Some(kept.to_vec()), Some(kept.to_vec()));
    c
}

fn marked(devices: usize, seed: u64) -> Fleet {
    let fleet = Fleet::new(devices, seed);
    for d in 0..devices {
        fleet.create_dir_all(Path::new(&format!("d{d}"))).expect("makes a folder");
        fleet.write_small(Path::new(&format!("d{d}/mark")), b"x", 0o600).expect("marks");
    }
    fleet
}

fn known(log: &Log) -> Vec<String> {
    let name = |m: &Mirror| m.dir.components().next().expect("a device").as_os_str().to_string_lossy().into_owned();
    log.mirrors().iter().map(name).collect()
}

#[test]
fn a_device_that_comes_has_a_say_at_once_and_one_that_goes_has_none_any_more() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = marked(5, 21);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&fleet, &sm, only(&fleet, 2, &[0, 1, 2])).await.expect("opens");
        propose(&log, 0..10).await;
        until(&log, &["copy", "copy", "spare"]).await;
        // One with a copy leaves: another has its copy before that is answered.
        assert_eq!(log.devices(devices(&fleet, &[0, 2], &[])).await, Vec::<std::path::PathBuf>::new());
        assert_eq!(known(&log), ["d0", "d2"]);
        until(&log, &["copy", "copy"]).await;
        propose(&log, 10..20).await;
        // Two come, then the first one goes.
        assert!(log.devices(devices(&fleet, &[0, 2, 3, 4], &[])).await.is_empty());
        assert!(log.devices(devices(&fleet, &[2, 3, 4], &[])).await.is_empty());
        assert_eq!(known(&log), ["d2", "d3", "d4"]);
        until(&log, &["copy", "copy", "spare"]).await;
        propose(&log, 20..30).await;
    });
    // Of those that were there at first none is left but one, and one of the new ones is lost too.
    let mut after = fleet.crash(3);
    (after.0[0], after.0[1], after.0[2]) = (SimDisk::new(5), SimDisk::new(6), SimDisk::new(7));
    run(async {
        let sm = Machine::start(&stable);
        let mut c = only(&after, 2, &[2, 3, 4]);
        c.create = false;
        let log = open(&after, &sm, c).await.expect("opens");
        expect(&sm, 0..30);
        propose(&log, 30..31).await;
        log.shutdown().await;
    });
}

#[test]
fn devices_that_came_and_went_are_known_from_the_next_start_on_if_nobody_said_so_before() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = marked(4, 22);
    run(async {
        let log = open(&fleet, &Machine::start(&stable), only(&fleet, 2, &[0, 1])).await.expect("opens");
        propose(&log, 0..5).await;
        log.shutdown().await;
    });
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&fleet, &sm, only(&fleet, 2, &[0, 2, 3])).await.expect("opens");
        while known(&log) != ["d0", "d2", "d3"] {
            tokio::task::yield_now().await;
        }
        until(&log, &["copy", "copy", "spare"]).await;
        expect(&sm, 0..5);
        log.shutdown().await;
    });
}

#[test]
fn a_device_that_was_renewed_holds_a_copy_again_without_a_start() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = marked(2, 23);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&fleet, &sm, only(&fleet, 2, &[0, 1])).await.expect("opens");
        propose(&log, 0..5).await;
        until(&log, &["copy", "copy"]).await;
        fleet.0[1].fail_write(1);
        propose(&log, 5..10).await;
        until(&log, &["copy", "lost"]).await;
        assert!(log.devices(devices(&fleet, &[0, 1], &[1])).await.is_empty());
        until(&log, &["copy", "copy"]).await;
        assert_eq!(log.mirrors()[1].why, None);
        propose(&log, 10..15).await;
    });
    let after = fleet.crash(4);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&after, &sm, only(&after, 2, &[0, 1])).await.expect("opens");
        expect(&sm, 0..15);
        log.shutdown().await;
    });
}

#[test]
fn nothing_is_written_where_a_device_was_mounted_and_is_no_more() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.copy_vanished"]);
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = marked(4, 24);
    run(async {
        let sm = Machine::start(&stable);
        let log = open(&fleet, &sm, only(&fleet, 2, &[0, 1, 2, 3])).await.expect("opens");
        propose(&log, 0..5).await;
        until(&log, &["copy", "copy", "spare", "spare"]).await;
        let empty = |d: usize| {
            let dir = fleet.dirs()[d].clone();
            fleet.list(&dir).unwrap_or_default().into_iter().for_each(|n| fleet.remove(&dir.join(n)).expect("removes"));
            fleet.remove(Path::new(&format!("d{d}/mark"))).expect("removes");
        };
        // A spare vanishes: neither a set nor a copy is put in its place.
        empty(2);
        fleet.0[1].fail_write(1);
        propose(&log, 5..10).await;
        until(&log, &["copy", "lost", "lost", "copy"]).await;
        assert_eq!(fleet.list(Path::new("d2/wal")).unwrap_or_default(), Vec::<String>::new());
        // So does a copy, and what came in its place is made known: it does not count by what was written to the old one.
        empty(3);
        fleet.write_small(Path::new("d3/mark"), b"x", 0o600).expect("marks");
        log.devices(devices(&fleet, &[0, 1, 2, 3], &[1, 3])).await;
        until(&log, &["copy", "copy", "lost", "spare"]).await;
        assert_eq!(fleet.list(Path::new("d3/wal")).expect("lists"), ["mirrors"]);
        propose(&log, 10..12).await;
        log.shutdown().await;
    });
}

#[test]
fn no_power_cut_while_devices_come_and_go_takes_an_answered_command() {
    let seeds: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(80);
    let (mut changed, mut answered_in_all) = (0, 0);
    for seed in 0..seeds {
        let stable: Arc<Mutex<Kept>> = Default::default();
        let (mut rng, copies) = (Rng::new(seed), 2 + (seed % 2) as usize);
        let mut fleet = marked(5, seed);
        let mut kept: Vec<u16> = vec![0, 1, 2];
        let (mut answered, mut number): (Vec<Bytes>, u32) = (Vec::new(), 0);
        for round in 0..4u64 {
            let sm = Machine::start(&stable);
            run(async {
                let log = match open(&fleet, &sm, only(&fleet, copies, &kept)).await {
                    Ok(log) => log,
                    Err(e) => panic!("seed {seed}, round {round}: {e}"),
                };
                let commands: BTreeSet<_> = sm.commands().into_iter().collect();
                assert!(answered.iter().all(|c| commands.contains(c)), "seed {seed}, round {round}: an answered command is lost");
                let cut = rng.below(200);
                fleet.0.iter().enumerate().for_each(|(d, disk)| disk.cut_after(cut + d as u64));
                for _ in 0..3 {
                    let next: Vec<u16> = loop {
                        let some: Vec<u16> = (0..5).filter(|_| rng.below(3) > 0).collect();
                        if some.len() >= copies {
                            break some;
                        }
                    };
                    let told = devices(&fleet, &next, &[]);
                    let write = async {
                        let mut wrote = Vec::new();
                        for _ in 0..6 {
                            number += 1;
                            let c = Bytes::from(number.to_string());
                            if log.propose(c.clone()).await.is_ok() {
                                wrote.push(c);
                            }
                        }
                        wrote
                    };
                    let (left, wrote) = tokio::join!(log.devices(told), write);
                    answered.extend(wrote);
                    if left.is_empty() && known(&log).len() == next.len() {
                        changed += 1;
                    }
                    // The cluster file is written before or after the log knows.
                    kept = next;
                }
            });
            fleet = fleet.crash(seed * 7 + round);
        }
        answered_in_all += answered.len();
    }
    assert!(seeds < 50 || changed > seeds && answered_in_all > 10 * seeds as usize, "{changed} changes, {answered_in_all} answered");
}

/// Damages the bytes of the command that begins with `marker` in the copy on device `d`.
fn rot(fleet: &Fleet, d: usize, marker: &[u8]) {
    let dir = fleet.dirs()[d].clone();
    for name in fleet.list(&dir).expect("lists") {
        let path = dir.join(name);
        let bytes = fleet.read_small(&path).expect("reads").expect("is there");
        if let Some(at) = bytes.windows(marker.len()).position(|w| w == marker) {
            // Deep in its payload, which an opening does not read.
            assert!(fleet.0[d].corrupt(&path, at as u64 + 5000..at as u64 + 5001, 3));
            return;
        }
    }
    panic!("device {d} has no such command");
}

#[test]
fn a_copy_with_a_rotten_record_gives_way_to_one_that_is_whole() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.copy_rotten"]);
    let big = |n: u32| Bytes::from([format!("command-{n}:").into_bytes(), vec![n as u8; 70_000]].concat());
    let all: Vec<Bytes> = (0..24).map(big).collect();
    for copies in [2, 3] {
        // The damaged one is not among the last records, whose payloads an opening reads.
        let mut c = mirrored(copies);
        (c.log.segment_bytes, c.checkpoint_bytes, c.wal_bytes_max) = (1 << 20, 8 << 20, 8 << 20);
        let stable: Arc<Mutex<Kept>> = Default::default();
        let fleet = Fleet::new(3, 40 + copies as u64);
        run(async {
            // The state holds nothing durably: all is asked of the log.
            let sm = Machine::start_held(&stable);
            let log = open(&fleet, &sm, c.clone()).await.expect("opens");
            for command in &all {
                log.propose(command.clone()).await.expect("proposes");
            }
            until(&log, if copies == 2 { &["copy", "copy", "spare"] } else { &["copy", "copy", "copy"] }).await;
        });
        for bad in 1..=copies {
            let after = fleet.crash(bad as u64);
            (0..bad).for_each(|d| rot(&after, d, b"command-3:"));
            let c = raft::Config { create: false, metrics: Default::default(), ..c.clone() };
            run(async {
                let sm = Machine::start(&Default::default());
                let opened = open(&after, &sm, c.clone()).await;
                if bad == copies {
                    let why = failed(opened);
                    assert!(
                        why.contains("no copy of the metadata log is whole") && why.contains("d0/wal") && why.contains("d1/wal"),
                        "{why}"
                    );
                    return;
                }
                let log = opened.expect("opens with the next copy");
                assert_eq!(sm.commands(), all);
                assert!(log.notes().iter().any(|n| n.contains("not whole") && n.contains("d0/wal")), "{:?}", log.notes());
                assert_eq!(c.metrics.mirrors_rotten(), bad as u64);
                // One of three that are left may lack what the two others alone had.
                assert_eq!(log.notes().iter().any(|n| n.contains("last moment")), bad == 2);
                log.propose(Bytes::from_static(b"more")).await.expect("goes on");
                // The rotten one is filled anew.
                while log.mirrors().iter().filter(|m| m.role == "copy").count() < copies {
                    tokio::task::yield_now().await;
                }
                log.shutdown().await;
            });
        }
    }
}
