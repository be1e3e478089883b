//! Faults of devices: each is found, named, and survived.

use crate::rig::{CODE, Rig, osd_config};
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::{Disk, Open};
use holdfast_objstore_client::conformance::{expect, stripe};
use holdfast_objstore_client::{Objects, Upkeep};
use holdfast_objstore_osd::Osd;
use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_repair::Depth;

#[tokio::test]
async fn a_failed_flush_takes_the_osd_out_of_service_and_its_shards_are_made_elsewhere() {
    let mut rig = Rig::new(7).await;
    rig.fill(20, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    rig.devices[1].disk.fail_flush(1);
    while rig.devices[1].osd.as_ref().unwrap().failure().is_none() {
        rig.fill(1, 100_000).await;
    }
    let why = rig.devices[1].osd.as_ref().unwrap().failure().unwrap();
    assert!(why.contains("flush"), "{why}");
    // Final: who watches OSDs says that this one is to be left.
    rig.cluster.set_leaving(OsdId(1), true);
    rig.repair.look_at_all();
    rig.until("moved", || rig.map.stripes.lock().values().all(|s| !s.osds.contains(&OsdId(1)))).await;
    rig.settled().await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_failed_read_is_answered_from_others_and_repaired() {
    let mut rig = Rig::new(6).await;
    let id = rig.fill(1, 200_000).await[0];
    rig.repair.start();
    rig.settled().await;
    let meta = rig.record(id);
    rig.devices[meta.osds[0].0 as usize].disk.fail_read(1);
    assert_eq!(rig.cluster.examine(&meta, 1).await.corrupt, 1, "a device's EIO is a bad shard");
    expect(&*rig.cluster, &meta, 0..200_000).await;
    rig.repair.scrub(Depth::Deep);
    rig.until("scrubbed", || rig.repair.scrub_status().state.deep.is_some()).await;
    rig.settled().await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_lying_flush_shows_when_the_power_goes_and_is_repaired() {
    let mut rig = Rig::new(6).await;
    rig.devices[2].disk.lying_flush(true);
    rig.fill(20, 100_000).await;
    // The power of that device goes: what it said was stable is not.
    let device = &mut rig.devices[2];
    device.disk.cut_now();
    device.osd = None;
    device.disk = std::sync::Arc::new(device.disk.crash(5));
    match Osd::open(device.disk.clone(), &device.dir, osd_config()).await {
        Ok((osd, _)) => {
            device.osd = Some(osd);
            rig.changed();
        }
        Err(_) => rig.replace(2).await,
    }
    rig.repair.start();
    rig.settled().await;
    // Blocks that never reached the medium under records that did: a deep scrub reads them.
    rig.repair.scrub(Depth::Deep);
    rig.until("scrubbed", || rig.repair.scrub_status().state.deep.is_some()).await;
    rig.settled().await;
    rig.all_whole().await;
    rig.repair.stop().await;
}

#[tokio::test]
async fn a_device_that_refuses_writes_loses_no_stripe() {
    let mut rig = Rig::new(7).await;
    rig.repair.start();
    rig.settled().await;
    rig.devices[5].disk.fail_write(2);
    rig.fill(10, 100_000).await;
    let meta = rig.cluster.write(stripe(9_999, CODE, 100_000)).await.unwrap();
    assert!(rig.devices[5].osd.as_ref().unwrap().failure().is_some(), "a failed write is final for its log");
    expect(&*rig.cluster, &meta, 0..100_000).await;
    rig.repair.stop().await;
}

/// Blocks of a segment of a device, copied over others of it, or zeroed: what a misdirected write and a lost one leave.
async fn overwrite(rig: &Rig, id: usize, from: Option<u64>, to: u64, blocks: u64) {
    let device = &rig.devices[id];
    let log = device.dir.join("log");
    let name = device.disk.list(&log).unwrap().into_iter().find(|n| n.ends_with(".segment")).unwrap();
    let file = device.disk.open(&log.join(name), Open::Existing).unwrap();
    let mut buf = AlignedBuf::zeroed((blocks * 4096) as usize);
    if let Some(from) = from {
        buf = file.read_at(from, buf).await.unwrap();
    }
    file.write_at(to, vec![buf.freeze()]).await.unwrap();
    file.flush().await.unwrap();
}

#[tokio::test]
async fn lost_and_misdirected_writes_are_found_and_repaired() {
    let mut rig = Rig::new(6).await;
    rig.fill(30, 100_000).await;
    rig.repair.start();
    rig.settled().await;
    // A run of whole records of one place over those of another; and a run that never came.
    overwrite(&rig, 1, Some(64 << 10), 256 << 10, 40).await;
    overwrite(&rig, 4, None, 128 << 10, 40).await;
    let all: Vec<_> = rig.map.stripes.lock().values().cloned().collect();
    for meta in &all {
        expect(&*rig.cluster, meta, 0..meta.len).await;
    }
    rig.repair.scrub(Depth::Deep);
    rig.until("scrubbed", || rig.repair.scrub_status().state.deep.is_some()).await;
    let faults = rig.repair.scrub_status().state.deep.unwrap().faults;
    rig.settled().await;
    assert!(faults > 0 || rig.repair.progress().repaired_stripes > 0);
    rig.all_whole().await;
    rig.repair.stop().await;
}
