//! What only the simulated disk shows: power cuts, faults, held flushes.

use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, DiskError, File, Open, write_zeroes};
use holdfast_objstore_base::sim::{Options, SimDisk};
use holdfast_objstore_base::units::BLOCK;
use std::path::Path;
use std::sync::Arc;

fn block(byte: u8) -> Bytes {
    AlignedBuf::copy_of(&[byte; BLOCK]).freeze()
}

fn run<T>(f: impl Future<Output = T>) -> T {
    futures::executor::block_on(f)
}

async fn ready(disk: &SimDisk, name: &str, blocks: u64) -> Arc<dyn File> {
    let f = disk.open(Path::new(name), Open::Create).expect("opens");
    write_zeroes(&*f, 0, blocks * BLOCK as u64).await.expect("writes zeroes");
    f.flush_all().await.expect("flushes");
    disk.sync_dir(Path::new("")).expect("syncs");
    f
}

async fn first(disk: &SimDisk, name: &str, at: u64) -> Option<u8> {
    let f = disk.open(Path::new(name), Open::Existing).ok()?;
    Some(f.read_at(at * BLOCK as u64, AlignedBuf::zeroed(BLOCK)).await.ok()?[0])
}

#[test]
fn a_power_cut_keeps_what_was_flushed_and_each_other_block_or_not() {
    run(async {
        let disk = SimDisk::new(1);
        let f = ready(&disk, "f", 8).await;
        f.write_at(0, vec![block(1), block(1)]).await.expect("writes");
        f.flush().await.expect("flushes");
        f.write_at(0, vec![block(2), block(2)]).await.expect("writes");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let after = disk.crash(seed);
            seen.insert((first(&after, "f", 0).await, first(&after, "f", 1).await));
        }
        let want = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(a, b)| (Some(a), Some(b)));
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), want);
        let killed = disk.kill();
        assert_eq!(first(&killed, "f", 0).await, Some(2), "a killed process loses nothing it wrote");
    });
}

#[test]
fn names_lengths_and_first_fillings_need_their_own_flush() {
    run(async {
        let disk = SimDisk::new(1);
        let other = ready(&disk, "other", 1).await;
        let f = disk.open(Path::new("new"), Open::Create).expect("opens");
        f.write_at(0, vec![block(1)]).await.expect("writes");
        f.flush().await.expect("flushes");
        let kept = (0..64).filter(|s| disk.crash(*s).exists(Path::new("new"))).count();
        assert!(kept > 0 && kept < 64, "a name that was not synced is kept or lost: {kept}");
        disk.sync_dir(Path::new("")).expect("syncs");
        assert_eq!(first(&disk.crash(3), "new", 0).await, Some(1));

        // Space that was reserved and not zero-filled: another file's flush does not cover its first filling.
        f.set_len(8 * BLOCK as u64).expect("grows");
        f.flush_all().await.expect("flushes");
        f.write_at(4096, vec![block(2)]).await.expect("writes");
        other.flush().await.expect("flushes");
        let mut lost = 0;
        for s in 0..64 {
            lost += usize::from(first(&disk.crash(s), "new", 1).await == Some(0));
        }
        assert!(lost > 0);
        f.flush_all().await.expect("flushes");
        assert_eq!(first(&disk.crash(1), "new", 1).await, Some(2));
    });
}

#[test]
fn a_flush_does_not_cover_a_write_that_was_not_complete() {
    let mut lost = 0;
    for seed in 0..200 {
        run(async {
            let disk = SimDisk::new(seed);
            let f = ready(&disk, "f", 4).await;
            let (w, r) = futures::join!(f.write_at(0, vec![block(1)]), f.flush());
            w.expect("writes");
            r.expect("flushes");
            lost += usize::from(first(&disk.crash(seed), "f", 0).await == Some(0));
        });
    }
    assert!(lost > 0, "the simulator must show this mistake");
}

#[test]
fn a_failed_flush_poisons_its_domain_for_good() {
    run(async {
        let disk = SimDisk::with(1, Options { domain_per_dir: true, ..Options::default() });
        disk.create_dir_all(Path::new("d")).expect("makes");
        let (f, g) = (ready(&disk, "f", 1).await, ready(&disk, "g", 1).await);
        let elsewhere = ready(&disk, "d/e", 1).await;
        assert!(f.domain() == g.domain() && f.domain() != elsewhere.domain());
        disk.fail_flush(1);
        assert!(f.flush().await.is_err());
        for e in [f.flush().await, g.flush().await, g.write_at(0, vec![block(1)]).await, g.flush_all().await] {
            assert!(matches!(e, Err(DiskError::Poisoned { .. })));
        }
        g.read_at(0, AlignedBuf::zeroed(BLOCK)).await.expect("reads go on");
        elsewhere.flush().await.expect("another domain is well");
        let after = disk.kill();
        let again = after.open(Path::new("f"), Open::Existing).expect("opens");
        again.flush().await.expect("a new process starts anew");
    });
}

#[test]
fn faults_strike_when_ordered_and_once() {
    run(async {
        let disk = SimDisk::new(1);
        let f = ready(&disk, "f", 2).await;
        disk.fail_write(2);
        f.write_at(0, vec![block(1)]).await.expect("the first is well");
        assert!(f.write_at(0, vec![block(2)]).await.is_err_and(|e| e.errno() == libc::EIO));
        f.write_at(4096, vec![block(3)]).await.expect("the third is well");
        assert_eq!(first(&disk, "f", 0).await, Some(1));
        disk.fail_read(1);
        assert!(f.read_at(0, AlignedBuf::zeroed(BLOCK)).await.is_err());
        disk.set_capacity(Some(3 * BLOCK as u64));
        let g = disk.open(Path::new("g"), Open::Create).expect("opens");
        g.write_at(0, vec![block(1)]).await.expect("fits");
        assert!(g.write_at(4096, vec![block(1)]).await.is_err_and(|e| e.is_no_space()));
        f.write_at(0, vec![block(4)]).await.expect("what is there may be overwritten");
        assert!(disk.corrupt(Path::new("f"), 10..20, 5));
        let data = f.read_at(0, AlignedBuf::zeroed(BLOCK)).await.expect("reads");
        assert!(data[..10].iter().all(|b| *b == 4) && data[10..20].iter().all(|b| *b != 4) && data[20..].iter().all(|b| *b == 4));
        assert!(!disk.corrupt(Path::new("f"), 0..1 << 20, 5));
        disk.lying_flush(true);
        f.flush().await.expect("lies");
        let mut lost = 0;
        for s in 0..64 {
            lost += usize::from(first(&disk.crash(s), "f", 1).await != Some(3));
        }
        assert!(lost > 0);
    });
}

#[test]
fn the_power_goes_at_every_step_and_then_nothing_works() {
    let steps = |cut: Option<u64>| {
        run(async {
            let disk = SimDisk::new(9);
            if let Some(n) = cut {
                disk.cut_after(n);
            }
            let done: Result<(), DiskError> = async {
                let f = disk.open(Path::new("f"), Open::Create)?;
                f.write_at(0, vec![block(1), block(2)]).await?;
                f.flush_all().await?;
                disk.sync_dir(Path::new(""))
            }
            .await;
            assert_eq!(done.is_err(), disk.is_cut());
            if done.is_ok() {
                assert_eq!(first(&disk.crash(0), "f", 1).await, Some(2));
            } else {
                assert!(disk.open(Path::new("f"), Open::Create).is_err());
            }
            disk.steps()
        })
    };
    let all = steps(None);
    assert_eq!(all, 5);
    for n in 0..all {
        assert_eq!(steps(Some(n)), n + 1);
    }
}

#[test]
fn held_flushes_gather_waiters_and_one_flush_serves_them() {
    run(async {
        let disk = SimDisk::new(4);
        let f = ready(&disk, "f", 4).await;
        let before = disk.flushes(f.domain());
        disk.hold_flushes(true);
        let waits = futures::future::join_all((0..10).map(|_| f.flush()));
        let mut waits = std::pin::pin!(waits);
        for _ in 0..20 {
            assert!(futures::poll!(waits.as_mut()).is_pending());
        }
        disk.hold_flushes(false);
        for r in waits.await {
            r.expect("flushes");
        }
        // One led and flew alone, the nine others shared the second.
        assert_eq!(disk.flushes(f.domain()) - before, 2);
        assert_eq!(disk.metrics().flush_waiters(), 11);
    });
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let once = || {
        run(async {
            let disk = SimDisk::new(77);
            let f = ready(&disk, "f", 16).await;
            for i in 0..16u64 {
                f.write_at(i * 4096, vec![block(i as u8 + 1)]).await.expect("writes");
            }
            let after = disk.crash(5);
            let f = after.open(Path::new("f"), Open::Existing).expect("opens");
            f.read_at(0, AlignedBuf::zeroed(16 * BLOCK)).await.expect("reads").to_vec()
        })
    };
    assert_eq!(once(), once());
}
