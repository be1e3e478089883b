//! What callers may rely on, whichever implementation they hold.

use crate::machine::{Kept, Machine, TestClock, clock, config, reply, run};
use bytes::Bytes;
use holdfast_meta_log::solo::Solo;
use holdfast_meta_log::{Error, MetaLog, raft};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::real::{RealDisk, runtime};
use holdfast_objstore_base::sim::SimDisk;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn command(n: u32) -> Bytes {
    Bytes::from(format!("command {n}"))
}

async fn suite(log: Arc<dyn MetaLog>, sm: Arc<Machine>, clock: TestClock) {
    log.may_read().expect("may read at once");
    // Replies belong to their commands, and what was answered is applied.
    for n in 0..5 {
        let got = log.propose(command(n)).await.expect("proposes");
        assert_eq!(got, reply(log.applied(), &command(n)));
        assert_eq!(sm.commands().last(), Some(&command(n)));
    }
    // Proposals at once: each is applied once, each gets its own reply.
    let many = futures::future::join_all((5..105).map(|n| log.propose(command(n)))).await;
    for (n, got) in (5..105).zip(many) {
        assert_eq!(&got.expect("proposes")[8..], &command(n)[..]);
    }
    // Time never goes back along the log, whatever the clock does.
    clock.0.store(5, Ordering::SeqCst);
    log.propose(command(105)).await.expect("proposes");
    let live = sm.live();
    assert_eq!(live.entries.len(), 106);
    assert!(live.entries.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1));
    assert!(live.entries.iter().all(|e| e.1 >= 1000));
    assert_eq!(log.applied(), live.index);
    // A proposal whose caller went away may or may not happen, and harms nobody.
    for n in 200..220 {
        let mut dropped = Box::pin(log.propose(command(n)));
        let _ = futures::poll!(dropped.as_mut());
        drop(dropped);
    }
    let last = log.propose(command(300)).await.expect("proposes");
    assert_eq!(&last[8..], &command(300)[..]);
    // An empty command and a large one.
    for big in [Bytes::new(), Bytes::from(vec![7u8; 20_000])] {
        assert_eq!(log.propose(big.clone()).await.expect("proposes"), reply(log.applied(), &big));
    }
    // Shutting down answers what is on its way, and refuses the rest.
    let before = sm.commands().len();
    let mut going = Box::pin(log.propose(command(400)));
    let polled = futures::poll!(going.as_mut());
    log.shutdown().await;
    let answered = match polled {
        std::task::Poll::Ready(r) => r,
        std::task::Poll::Pending => going.await,
    };
    answered.expect("it was on its way");
    assert_eq!(sm.commands().len(), before + 1);
    assert!(matches!(log.propose(command(1)).await, Err(Error::Failed(_))));
    assert!(matches!(log.may_read(), Err(Error::Failed(_))));
}

fn new_clock() -> TestClock {
    let c = TestClock::default();
    c.0.store(1000, Ordering::SeqCst);
    c
}

#[test]
fn solo_keeps_the_promises() {
    let sm = Machine::start(&Default::default());
    let clock = new_clock();
    let log = Solo::open(Arc::new(clock.clone()), sm.clone()).expect("opens");
    run(suite(log, sm, clock));
}

#[test]
fn raft_keeps_the_promises_over_a_simulated_disk() {
    for seed in 0..10 {
        run(async {
            let sm = Machine::start(&Default::default());
            let clock = new_clock();
            let disk = Arc::new(SimDisk::new(seed));
            let log = raft::open(disk, vec!["wal".into()], config(), Arc::new(clock.clone()), sm.clone()).await.expect("opens");
            suite(log, sm, clock).await;
        });
    }
}

#[test]
fn raft_keeps_the_promises_over_the_real_disk() {
    let dir = tempfile::tempdir().expect("tempdir");
    let dirs: Vec<PathBuf> = vec![dir.path().join("wal")];
    runtime::block_on(async {
        let sm = Machine::start(&Default::default());
        let clock = new_clock();
        let log = raft::open(Arc::new(RealDisk::new()), dirs, config(), Arc::new(clock.clone()), sm.clone()).await.expect("opens");
        suite(log, sm, clock).await;
    })
    .expect("runs");
}

#[test]
fn commands_come_from_any_thread() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let sm = Machine::start(&stable);
    let (tx, rx) = std::sync::mpsc::channel::<Arc<dyn MetaLog>>();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let state = sm.clone();
    let data = runtime::spawn_thread("data", move || async move {
        let log = raft::open(Arc::new(SimDisk::new(1)), vec!["wal".into()], config(), clock(1), state).await.expect("opens");
        tx.send(log.clone()).expect("somebody waits");
        stopped.await.expect("told to stop");
        log.shutdown().await;
    })
    .expect("starts");
    let log = rx.recv().expect("opens");
    let threads: Vec<_> = (0..4u32)
        .map(|t| {
            let log = log.clone();
            std::thread::spawn(move || {
                for n in 0..50 {
                    let c = command(t * 1000 + n);
                    let got = futures::executor::block_on(log.propose(c.clone())).expect("proposes");
                    assert_eq!(&got[8..], &c[..]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    assert_eq!(sm.commands().len(), 200);
    stop.send(()).expect("still there");
    data.join().expect("no panic").expect("runs");
}

#[test]
fn a_restart_applies_exactly_what_the_state_does_not_hold() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let disk = SimDisk::new(3);
    let mut all = Vec::new();
    let mut now = 0;
    for round in 0..5u32 {
        let disk = if round % 2 == 0 { disk.clone() } else { disk.kill() };
        run(async {
            let held = stable.lock().index;
            let sm = Machine::start(&stable);
            let mut c = config();
            c.create = round == 0;
            // The clock is behind at every start.
            let log = raft::open(Arc::new(disk), vec!["wal".into()], c, clock(1000 - u64::from(round)), sm.clone()).await.expect("opens");
            let live = sm.live();
            assert_eq!(sm.commands(), all, "round {round}, the state held {held}");
            assert!(live.entries.last().is_none_or(|e| e.1 >= now));
            if round < 4 && round % 2 == 0 {
                for n in 0..40 {
                    let c = command(round * 100 + n);
                    log.propose(c.clone()).await.expect("proposes");
                    all.push(c);
                }
            }
            now = sm.live().entries.last().expect("some").1;
            assert_eq!(log.applied(), sm.live().index);
            log.shutdown().await;
        });
    }
    assert_eq!(all.len(), 80);
}

#[test]
fn real_and_system_clocks_fit_the_stamp() {
    let now = holdfast_objstore_base::real::RealClock.wall_ns();
    assert!(i64::try_from(now).is_ok());
}
