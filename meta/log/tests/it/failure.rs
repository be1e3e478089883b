//! When something fails, everyone hears it and nobody hangs; what does not fit together is refused.

use crate::machine::{Kept, Machine, clock, config, run};
use bytes::Bytes;
use holdfast_meta_log::{Error, MetaLog, raft};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::SimDisk;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

async fn open(disk: &SimDisk, sm: &Arc<Machine>, create: bool) -> Result<Arc<dyn MetaLog>, Error> {
    let mut c = config();
    c.create = create;
    raft::open(Arc::new(disk.clone()), vec!["wal".into()], c, clock(1), sm.clone()).await
}

fn failed<T>(r: Result<T, Error>) -> String {
    match r {
        Err(Error::Failed(why)) => why,
        Err(e) => panic!("not the failure expected: {e}"),
        Ok(_) => panic!("it did not fail"),
    }
}

#[test]
fn a_failed_flush_or_write_of_the_log_fails_every_proposal() {
    for seed in 0..20 {
        run(async {
            let disk = SimDisk::new(seed);
            let sm = Machine::start(&Default::default());
            let log = open(&disk, &sm, true).await.expect("opens");
            log.propose(Bytes::from_static(b"well")).await.expect("proposes");
            if seed % 2 == 0 {
                disk.fail_flush(1 + seed / 4)
            } else {
                disk.fail_write(1 + seed / 4)
            };
            let many = futures::future::join_all((0..50u32).map(|n| {
                let log = log.clone();
                async move {
                    for i in 0..20 {
                        log.propose(Bytes::from(format!("{n}/{i}"))).await?;
                    }
                    Ok::<_, Error>(())
                }
            }));
            for r in many.await {
                failed(r);
            }
            failed(log.propose(Bytes::new()).await);
            failed(log.may_read());
            log.shutdown().await;
        });
    }
}

#[test]
fn a_failing_state_machine_fails_the_log() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.apply_failed"]);
    run(async {
        let sm = Machine::start(&Default::default());
        let log = open(&SimDisk::new(1), &sm, true).await.expect("opens");
        sm.fail_apply.store(true, Ordering::SeqCst);
        let many = futures::future::join_all((0..10u32).map(|n| log.propose(Bytes::from(n.to_string())))).await;
        for r in many {
            assert!(failed(r).contains("told to fail"));
        }
        failed(log.may_read());
        log.shutdown().await;
    });
}

#[test]
fn a_failing_checkpoint_fails_the_log() {
    run(async {
        let sm = Machine::start(&Default::default());
        let log = open(&SimDisk::new(1), &sm, true).await.expect("opens");
        sm.fail_checkpoint.store(true, Ordering::SeqCst);
        let why = loop {
            if let Err(e) = log.propose(Bytes::from(vec![1u8; 3000])).await {
                break e;
            }
        };
        assert!(why.to_string().contains("checkpoint"), "{why}");
        log.shutdown().await;
    });
}

#[test]
fn a_command_beyond_the_bound_is_refused_and_harms_nothing() {
    run(async {
        let sm = Machine::start(&Default::default());
        let log = open(&SimDisk::new(1), &sm, true).await.expect("opens");
        failed(log.propose(Bytes::from(vec![0u8; raft::COMMAND_BYTES_MAX + 1])).await);
        log.propose(Bytes::from_static(b"x")).await.expect("goes on");
        log.shutdown().await;
    });
}

/// A log with some commands, checkpointed by the state or not.
fn made(stable: &Arc<Mutex<Kept>>, checkpoint: bool) -> SimDisk {
    let disk = SimDisk::new(8);
    run(async {
        let sm = Machine::start(stable);
        let log = open(&disk, &sm, true).await.expect("opens");
        for n in 0..10u32 {
            log.propose(Bytes::from(n.to_string())).await.expect("proposes");
        }
        if checkpoint {
            use holdfast_meta_log::StateMachine;
            sm.checkpoint().await.expect("checkpoints");
        }
        log.shutdown().await;
    });
    disk
}

#[test]
fn a_missing_log_is_never_taken_for_an_empty_one() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    made(&stable, true);
    run(async {
        let empty = SimDisk::new(1);
        assert!(failed(open(&empty, &Machine::start(&stable), true).await).contains("missing"), "the state knows better");
        assert!(failed(open(&empty, &Machine::start(&Default::default()), false).await).contains("missing"), "the caller knows better");
    });
}

#[test]
fn a_log_that_does_not_fit_the_state_is_refused() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    made(&stable, true);
    // A log of the same kind, but shorter than what the state has applied.
    let other = SimDisk::new(9);
    run(async {
        let log = open(&other, &Machine::start(&Default::default()), true).await.expect("opens");
        log.shutdown().await;
        let why = failed(open(&other, &Machine::start(&stable), false).await);
        assert!(why.contains("ends before the state"), "{why}");
        stable.lock().tail = Some(Bytes::from_static(&[9, 9]));
        assert!(failed(open(&other, &Machine::start(&stable), false).await).contains("version 9"));
        stable.lock().tail = None;
        assert!(failed(open(&other, &Machine::start(&stable), false).await).contains("without the log's record"));
    });
}

#[test]
fn a_damaged_log_is_refused() {
    let disk = made(&Default::default(), false);
    let names = disk.list(Path::new("wal")).expect("lists");
    let segment =
        names.iter().map(|n| Path::new("wal").join(n)).find(|p| disk.corrupt(p, 4096 * 3 + 100..4096 * 3 + 110, 4)).expect("a segment");
    run(async {
        let why = failed(open(&disk, &Machine::start(&Default::default()), false).await);
        assert!(!why.is_empty(), "{segment:?}");
    });
}
