//! Rebuilding and moving shards, and a set of OSDs that changes while the cluster runs.

use crate::mem_osd::MemOsd;
use crate::rig::{Domains, Rig};
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Error, Objects, Rebuild, Upkeep};
use holdfast_objstore_proto::shard::{ShardService, TASK_SESSION};
use holdfast_objstore_proto::{Code, SessionEpoch, StripeMeta};
use std::sync::Arc;

const CODE: Code = Code::new(4, 2);

async fn written(rig: &Rig, len: u32) -> Arc<StripeMeta> {
    rig.cluster.write(stripe(len as u64, CODE, len)).await.unwrap()
}

fn rebuild(stripe: &Arc<StripeMeta>, shards: u32, readable: u32) -> Rebuild {
    Rebuild { stripe: stripe.clone(), shards, readable, task: 9 }
}

#[tokio::test]
async fn a_corrupt_shard_is_replaced_in_its_place() {
    let rig = Rig::new(6, Domains::One);
    let meta = written(&rig, 300_000).await;
    rig.home(&meta, 2).corrupt(Rig::key(&meta, 2));
    assert_eq!(rig.cluster.examine(&meta, u32::MAX).await.corrupt, 0b100);
    let made = rig.cluster.rebuild(rebuild(&meta, 0b100, 0)).await.unwrap();
    assert_eq!(made, meta, "its home is as good as before");
    assert_eq!(rig.cluster.examine(&meta, u32::MAX).await.good, 0b111111);
    let head = rig.home(&meta, 2).head(Rig::key(&meta, 2)).await.unwrap();
    assert_eq!((head.session, head.epoch), (TASK_SESSION, SessionEpoch(9)), "the task that wrote it can be told");
    assert!(rig.home(&meta, 2).state.lock().stable.contains(&Rig::key(&meta, 2)));
}

#[tokio::test]
async fn another_writing_of_a_shard_makes_room_for_the_right_one() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["client.rebuild_made_room"]);
    let rig = Rig::new(6, Domains::One);
    let meta = written(&rig, 300_000).await;
    rig.home(&meta, 1).state.lock().shards.get_mut(&Rig::key(&meta, 1)).unwrap().0.digest ^= 1;
    assert_eq!(rig.cluster.examine(&meta, 0).await.absent, 0b10);
    rig.cluster.rebuild(rebuild(&meta, 0b10, 0)).await.unwrap();
    assert_eq!(rig.cluster.examine(&meta, u32::MAX).await.good, 0b111111);
}

#[tokio::test]
async fn a_shard_of_a_lost_osd_goes_where_no_other_shard_is() {
    let rig = Rig::new(8, Domains::Each);
    let meta = written(&rig, 300_000).await;
    rig.home(&meta, 3).state.lock().down = true;
    assert_eq!(rig.cluster.examine(&meta, 0).await.down, 0b1000);
    let made = rig.cluster.rebuild(rebuild(&meta, 0b1000, 0)).await.unwrap();
    assert!(!meta.osds.contains(&made.osds[3]));
    for shard in 0..2 {
        rig.lose(&meta, shard);
    }
    expect(&*rig.cluster, &made, 0..300_000).await;
}

#[tokio::test]
async fn without_an_osd_to_go_to_nothing_is_made() {
    let rig = Rig::new(6, Domains::Each);
    let meta = written(&rig, 300_000).await;
    rig.home(&meta, 3).state.lock().down = true;
    let answer = rig.cluster.rebuild(rebuild(&meta, 0b1000, 0)).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    assert_eq!(rig.gets().0, 0, "nothing was read for it");
}

#[tokio::test]
async fn an_osd_that_is_left_gets_nothing_new_and_its_shards_are_copied_away() {
    let rig = Rig::new(7, Domains::One);
    let meta = written(&rig, 4 << 20).await;
    let osd = meta.osds[0];
    rig.cluster.set_leaving(osd, true);
    let made = rig.cluster.rebuild(rebuild(&meta, 1, 1)).await.unwrap();
    assert!(made.osds[0] != osd && made.osds[1..] == meta.osds[1..]);
    assert_eq!(rig.gets(), (2, 2 << 20), "what can be read is copied, not decoded, and read back");
    for counter in 1..20 {
        let fresh = rig.cluster.write(stripe(counter, CODE, 100_000)).await.unwrap();
        assert!(!fresh.osds.contains(&osd) && fresh.missing == 0);
    }
    rig.cluster.discard(vec![(osd, Rig::key(&meta, 0))]).await.unwrap();
    expect(&*rig.cluster, &made, 0..4 << 20).await;
}

#[tokio::test]
async fn an_osd_takes_the_place_of_another_while_the_cluster_runs() {
    let rig = Rig::new(6, Domains::Each);
    let meta = written(&rig, 300_000).await;
    let lost = meta.osds[4];
    let new = MemOsd::new(lost.0, 999);
    let osds = rig.osds.iter().map(|o| if o.osd() == lost { new.clone() } else { o.clone() } as Arc<dyn ShardService>).collect();
    rig.cluster.set_osds(osds);
    assert_eq!(rig.cluster.examine(&meta, 0).await.absent, 0b10000);
    let made = rig.cluster.rebuild(rebuild(&meta, 0b10000, 0)).await.unwrap();
    assert_eq!(made.osds, meta.osds);
    assert!(new.holds(Rig::key(&meta, 4)));
    let fresh = rig.cluster.write(stripe(7, CODE, 300_000)).await.unwrap();
    assert!(fresh.osds.contains(&lost) && fresh.missing == 0);
}
