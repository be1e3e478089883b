//! Segments go back only under a durable checkpoint, and then they do; without one, proposals wait.

use crate::machine::{Kept, Machine, clock, config, run};
use bytes::Bytes;
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::SimDisk;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn command(n: u32) -> Bytes {
    let mut c = n.to_le_bytes().to_vec();
    c.resize(1000, 1);
    c.into()
}

#[test]
fn checkpoints_bound_the_log_and_a_restart_needs_no_more() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let disk = SimDisk::new(5);
    let mut c = config();
    let all: Vec<Bytes> = (0..600).map(command).collect();
    run(async {
        let sm = Machine::start(&stable);
        let log = raft::open(Arc::new(disk.clone()), vec!["wal".into()], c.clone(), clock(1), sm.clone()).await.expect("opens");
        for command in &all {
            log.propose(command.clone()).await.expect("proposes");
        }
        log.shutdown().await;
    });
    let m = &c.metrics;
    assert!(m.checkpoints() >= 10 && m.segments_retired() >= 20, "{} checkpoints, {} retired", m.checkpoints(), m.segments_retired());
    assert_eq!((m.proposals(), m.applied()), (600, 600));
    let files = disk.list(Path::new("wal")).expect("lists").len();
    assert!(files < 12, "2.4 MiB went through 64 KiB segments; {files} files are left");
    run(async {
        let held = stable.lock().entries.len();
        assert!(held > 500, "the state was checkpointed: {held}");
        let sm = Machine::start(&stable);
        c.create = false;
        let log = raft::open(Arc::new(disk.crash(1)), vec!["wal".into()], c.clone(), clock(1), sm.clone()).await.expect("opens");
        assert_eq!(sm.commands(), all);
        log.shutdown().await;
    });
}

#[test]
fn without_a_checkpoint_nothing_is_given_back_and_proposals_wait() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let disk = SimDisk::new(6);
    let c = config();
    run(async {
        let sm = Machine::start_held(&stable);
        let log = raft::open(Arc::new(disk.clone()), vec!["wal".into()], c.clone(), clock(1), sm.clone()).await.expect("opens");
        let mut n = 0;
        // Enough commands at once to pass the bound of 1 MiB: a moment comes when none is answered any more.
        let mut running = tokio::task::JoinSet::new();
        let stuck = loop {
            while running.len() < 8 {
                let (log, c) = (log.clone(), command(n));
                n += 1;
                running.spawn(async move { log.propose(c).await });
            }
            match tokio::time::timeout(Duration::from_secs(1), running.join_next()).await {
                Ok(Some(r)) => drop(r.expect("no panic").expect("proposes")),
                Ok(None) => unreachable!("there are always eight"),
                Err(_) => break sm.commands().len(),
            }
        };
        // Eight commands of 1 KiB make records of 4 to 12 KiB.
        assert!((100..1100).contains(&stuck), "{stuck} commands went into 1 MiB");
        assert_eq!((c.metrics.segments_retired(), c.metrics.checkpoints()), (0, 0));
        // Meanwhile a crash finds them all in the log.
        let other = Machine::start(&stable);
        let copy = raft::open(Arc::new(disk.crash(3)), vec!["wal".into()], config(), clock(1), other.clone()).await.expect("opens");
        assert_eq!(other.commands()[..stuck], sm.commands()[..stuck]);
        copy.shutdown().await;

        sm.checkpoints.add_permits(100);
        while let Some(r) = running.join_next().await {
            r.expect("no panic").expect("goes on");
        }
        assert_eq!(sm.commands().len(), n as usize);
        log.shutdown().await;
        assert!(c.metrics.segments_retired() > 0);
    });
}
