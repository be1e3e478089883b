//! Random histories against a model: a read is right, or says why not, and only when it may.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::conformance::{content, stripe};
use holdfast_objstore_client::{Config, Error, Objects, write_quorum};
use holdfast_objstore_proto::{Code, StripeMeta};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Shards of the stripe's own writing that could be read now.
fn readable(rig: &Rig, meta: &StripeMeta) -> usize {
    (0..meta.code.n())
        .filter(|&i| {
            let s = rig.home(meta, i).state.lock();
            let key = Rig::key(meta, i);
            !s.down && !s.sick && !s.corrupt.contains(&key) && s.shards.get(&key).is_some_and(|(h, _)| h.digest == meta.digest)
        })
        .count()
}

async fn history(seed: u64, osds: u16, domains: Domains, steps: u64) {
    let config = Config { cache_bytes: 2 << 20, ..Config::default() };
    let rig = Rig::with(osds, domains, config);
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut live: BTreeMap<u64, Arc<StripeMeta>> = BTreeMap::new();
    let mut counter = 0;
    let codes = [Code::new(4, 2), Code::new(2, 1), Code::new(1, 0), Code::new(3, 0), Code::new(1, 2)];
    for step in 0..steps {
        let at = |what: &str| format!("seed {seed} step {step}: {what}");
        let pick = |rng: &mut Rng| live.values().nth(rng.below(live.len().max(1) as u64) as usize).cloned();
        match rng.below(20) {
            0..5 => {
                counter += 1;
                let len = [1 + rng.below(70_000), 65_537 + rng.below(300_000), 1 + rng.below(5_000)][rng.below(3) as usize] as u32;
                let code = codes[rng.below(codes.len() as u64) as usize];
                match rig.cluster.write(stripe(counter, code, len)).await {
                    Ok(meta) => {
                        assert!(readable(&rig, &meta) >= write_quorum(meta.code), "{}", at("a quorum has it"));
                        live.insert(counter, meta);
                    }
                    Err(Error::Unavailable { .. } | Error::Full) => {}
                    Err(e) => panic!("{}", at(&e.to_string())),
                }
            }
            5..12 => {
                let Some(meta) = pick(&mut rng) else { continue };
                let start = rng.below(meta.len as u64) as u32;
                let end = start + rng.below((meta.len - start) as u64 + 1) as u32;
                if rng.below(3) == 0 {
                    rig.cluster.prefetch(&meta, start..end);
                }
                match rig.cluster.read(&meta, start..end).await {
                    Ok(got) => {
                        let want = content(meta.id, meta.len).slice(start as usize..end as usize);
                        assert!(got.concat() == want[..], "{}", at("wrong bytes"));
                    }
                    Err(e @ (Error::Lost { .. } | Error::Gone { .. })) => {
                        let left = readable(&rig, &meta);
                        assert!(left < meta.code.k as usize, "{}", at(&format!("{e}, but {left} shards are left of {meta:?}")));
                    }
                    Err(e) => panic!("{}", at(&e.to_string())),
                }
            }
            12 => {
                let some: Vec<_> = live.values().filter(|_| rng.below(2) == 0).cloned().collect();
                if let Ok(flushed) = rig.cluster.flush(some.clone()).await {
                    assert_eq!(flushed.len(), some.len());
                    for meta in flushed {
                        let stable = (0..meta.code.n())
                            .filter(|&i| meta.missing >> i & 1 == 0)
                            .filter(|&i| rig.home(&meta, i).state.lock().stable.contains(&Rig::key(&meta, i)))
                            .count();
                        assert_eq!(stable, meta.code.n() - meta.missing.count_ones() as usize, "{}", at("not missing is stable"));
                        assert!(stable >= write_quorum(meta.code));
                        live.insert(meta.id.counter, meta);
                    }
                }
            }
            13 => {
                let Some(meta) = pick(&mut rng) else { continue };
                rig.cluster.delete(vec![meta.clone()]).await.unwrap();
                live.remove(&meta.id.counter);
                let answer = rig.cluster.read(&meta, 0..meta.len).await;
                // An OSD that was away still has its shard; when k were, the stripe still reads.
                assert!(answer.is_err() || readable(&rig, &meta) >= meta.code.k as usize, "{}", at("deleted"));
            }
            14 => {
                let Some(meta) = pick(&mut rng) else { continue };
                let shard = rng.below(meta.code.n() as u64) as usize;
                rig.home(&meta, shard).corrupt(Rig::key(&meta, shard));
            }
            15 => {
                let Some(meta) = pick(&mut rng) else { continue };
                rig.lose(&meta, rng.below(meta.code.n() as u64) as usize);
            }
            16 => {
                let away = rig.osds.iter().filter(|o| o.state.lock().down || o.state.lock().sick).count();
                let mut s = rig.osds[rng.below(osds as u64) as usize].state.lock();
                let come = s.down || s.sick;
                (s.down, s.sick) = (false, false);
                if !come && away < 2 {
                    (s.down, s.sick) = if rng.below(2) == 0 { (true, false) } else { (false, true) };
                }
            }
            17 => {
                let mut s = rig.osds[rng.below(osds as u64) as usize].state.lock();
                let slow = [0, 0, 3, 700, 4000][rng.below(5) as usize];
                (s.put_takes, s.get_takes) = (Duration::from_millis(slow), Duration::from_millis(slow));
            }
            18 => {
                let mut s = rig.osds[rng.below(osds as u64) as usize].state.lock();
                s.full = rng.below(3) == 0;
            }
            _ => rig.cluster.drop_caches(),
        }
    }
    let m = rig.cluster.metrics();
    assert!(m.writes() > 0 && m.reads() > 0);
    rig.osds.iter().for_each(|o| o.state.lock().get_takes = Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.cluster.drop_caches();
    assert_eq!(rig.budget.bytes_used(), 0, "seed {seed}: everything charged is given back");
}

/// `HOLDFAST_SEED=n` replays one seed.
fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("HOLDFAST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

#[tokio::test(start_paused = true)]
async fn random_histories_on_many_devices() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&[
        "client.get_not_found",
        "client.read_gone",
        "client.read_copy_hedged",
        "client.read_pieces_hedged",
        "client.decode_hedged",
        "client.write_hedged",
        "client.put_replaced",
        "client.late_shard",
    ]);
    for seed in seeds(12) {
        history(seed, 7, Domains::Each, 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_histories_on_one_device() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&[
        "client.get_down",
        "client.write_round",
        "client.write_left_shards",
        "client.flush_below_quorum",
        "client.delete_skipped",
    ]);
    for seed in seeds(12) {
        history(seed + 1000, 6, Domains::One, 400).await;
    }
}
