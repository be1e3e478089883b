//! A hung OSD leaves service after a bounded wait, and the cluster goes on without it.

use crate::mem_osd::MemOsd;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Cluster, Config, Objects, Watched};
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_proto::{Code, OsdId};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

fn rig() -> (Vec<Arc<MemOsd>>, Vec<Arc<Watched>>, Arc<Cluster>) {
    let osds: Vec<_> = (0..7).map(|i| MemOsd::new(i, 100 + i as u64)).collect();
    let watched: Vec<_> = osds.iter().map(|o| Watched::new(o.clone(), PATIENCE)).collect();
    let services = watched.iter().map(|w| w.clone() as Arc<dyn ShardService>).collect();
    (osds, watched, Cluster::new(services, Budget::new(16 << 20), Config { cache_bytes: 0, ..Config::default() }))
}

/// Looks every second, as a thread of its own would.
fn look(watched: &[Arc<Watched>]) {
    let watched = watched.to_vec();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            watched.iter().for_each(|w| w.look());
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_hung_osd_is_given_up_and_everything_goes_on() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.osd_given_up"]);
    let (osds, watched, cluster) = rig();
    look(&watched);
    let meta = cluster.write(stripe(1, Code::new(4, 2), 300_000)).await.unwrap();
    let meta = cluster.flush(vec![meta]).await.unwrap().remove(0);
    let hung = meta.osds[0].0 as usize;
    {
        let mut s = osds[hung].state.lock();
        (s.put_takes, s.get_takes, s.flush_takes) = (FOR_EVER, FOR_EVER, FOR_EVER);
    }
    expect(&*cluster, &meta, 0..300_000).await;
    // A delete waits for every OSD that holds something.
    let begun = tokio::time::Instant::now();
    for counter in 2..40 {
        let meta = cluster.write(stripe(counter, Code::new(4, 2), 300_000)).await.unwrap();
        let meta = cluster.flush(vec![meta]).await.unwrap().remove(0);
        expect(&*cluster, &meta, 0..300_000).await;
    }
    assert!(begun.elapsed() < PATIENCE * 2, "bounded waits: {:?}", begun.elapsed());
    tokio::time::sleep(PATIENCE).await;
    let why = watched[hung].failure().expect("it is out of service");
    assert!(why.contains("not answered"), "{why}");
    assert!(watched.iter().enumerate().all(|(i, w)| i == hung || w.failure().is_none()));
    let fresh = cluster.write(stripe(99, Code::new(4, 2), 300_000)).await.unwrap();
    assert!(fresh.missing == 0 && !fresh.osds.contains(&meta.osds[0]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_osd_is_told_and_stays() {
    let (osds, watched, cluster) = rig();
    look(&watched);
    osds[3].state.lock().put_takes = Duration::from_secs(5);
    for counter in 1..10 {
        cluster.write(stripe(counter, Code::new(4, 2), 300_000)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(watched[3].slowest() >= Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(watched[3].failure().is_none() && watched[3].slowest() == Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_osd_that_hangs_while_it_cleans_is_given_up_and_writers_go_on_with_the_others() {
    let (osds, watched, cluster) = rig();
    look(&watched);
    osds[2].state.lock().cleaning = Some(7);
    let begun = tokio::time::Instant::now();
    let meta = cluster.write(stripe(1, Code::new(4, 2), 300_000)).await.unwrap();
    assert!(begun.elapsed() < PATIENCE * 2, "a bounded wait: {:?}", begun.elapsed());
    assert!(watched[2].failure().is_some() && meta.missing == 0 && !meta.osds.contains(&OsdId(2)));
    assert!(watched.iter().enumerate().all(|(i, w)| i == 2 || w.failure().is_none()));
    let begun = tokio::time::Instant::now();
    cluster.write(stripe(2, Code::new(4, 2), 300_000)).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waits for it again");
}

#[tokio::test(start_paused = true)]
async fn an_osd_whose_cleaning_gets_on_is_waited_for_and_stays() {
    let (osds, watched, cluster) = rig();
    look(&watched);
    osds[2].state.lock().cleaning = Some(0);
    let writing = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.write(stripe(1, Code::new(4, 2), 300_000)).await.unwrap() }
    });
    for step in 1..20 {
        tokio::time::sleep(PATIENCE / 2).await;
        osds[2].state.lock().cleaning = Some(step);
    }
    assert!(!writing.is_finished() && watched[2].failure().is_none());
    osds[2].state.lock().cleaning = None;
    assert_eq!(writing.await.unwrap().missing, 0);
    assert!(watched[2].failure().is_none() && watched[2].slowest() == Duration::ZERO);
}
