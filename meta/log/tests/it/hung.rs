//! A device that hangs, without an error: it stops neither the other copies nor the end.

use crate::fleet::{Fleet, mirrored, until};
use crate::machine::{Kept, Machine, run};
use bytes::Bytes;
use holdfast_meta_log::raft;
use holdfast_objstore_base::clock::{Clock, ManualClock};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

fn filler(n: u32) -> Bytes {
    let mut c = n.to_le_bytes().to_vec();
    c.resize(3000, 1);
    c.into()
}

#[test]
fn a_copy_that_hangs_while_it_gives_segments_back_stops_no_other() {
    let stable: Arc<Mutex<Kept>> = Default::default();
    let fleet = Fleet::new(3, 11);
    run(async {
        let sm = Machine::start(&stable);
        let manual = ManualClock::default();
        let time: Arc<dyn Clock> = Arc::new(manual.clone());
        let mut c = mirrored(3);
        c.mirrors.late_after = Duration::from_millis(8);
        c.log.segments_max = 24;
        let log = raft::open(Arc::new(fleet.clone()), fleet.dirs(), c.clone(), time, sm.clone()).await.expect("opens");
        until(&log, &["copy", "copy", "copy"]).await;
        log.propose(Bytes::from_static(b"keep")).await.expect("proposes");
        let mut n = 0;
        while c.metrics.checkpoints() < 2 {
            log.propose(filler(n)).await.expect("proposes");
            n += 1;
        }
        assert_eq!(c.metrics.segments_retired(), 0, "all is held");
        fleet.0[0].hold_flushes(true);
        // Sets free what the purge had to leave, on all three.
        log.propose(Bytes::from_static(b"free")).await.expect("two of three go on");
        manual.advance(1_000_000_000);
        until(&log, &["late", "copy", "copy"]).await;
        let bytes = 3 * u64::from(c.log.segments_max) * c.log.segment_bytes;
        for n in 0..(bytes / 4096) as u32 {
            log.propose(filler(n)).await.expect("the log does not fill up");
        }
        assert!(c.metrics.segments_retired() > 3 * u64::from(c.log.segments_max), "{} segments", c.metrics.segments_retired());
        until(&log, &["late", "copy", "copy"]).await;
        log.shutdown().await;
    });
}

#[test]
fn a_shutdown_ends_though_a_copy_in_force_hangs() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["wal.close_not_waited_for"]);
    let stable: Arc<Mutex<Kept>> = Default::default();
    for copies in [2, 3] {
        let fleet = Fleet::new(copies, 12);
        run(async {
            let sm = Machine::start(&stable);
            let manual = ManualClock::default();
            let time: Arc<dyn Clock> = Arc::new(manual.clone());
            let mut c = mirrored(copies);
            c.mirrors.late_after = Duration::from_millis(8);
            let log = raft::open(Arc::new(fleet.clone()), fleet.dirs(), c, time, sm.clone()).await.expect("opens");
            log.propose(Bytes::from_static(b"a")).await.expect("proposes");
            until(&log, &vec!["copy"; copies]).await;
            fleet.0[0].hold_flushes(true);
            if copies == 2 {
                // What the shutdown writes is on one of two, and is not durable before the other is late.
                let closing = log.clone();
                let done = tokio::spawn(async move { closing.shutdown().await });
                while !done.is_finished() {
                    manual.advance(1_000_000);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            } else {
                log.shutdown().await;
            }
        });
    }
}
