//! The whole service on the machine's disk, on a data thread with a ring.

use super::rig::*;
use crate::{Deps, Service, StateConfig, format};
use holdfast_meta_log::raft;
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_base::real::{RealClock, RealDisk, runtime};
use std::sync::Arc;

const FILES: usize = 400;

/// Cold reads of the state wait for the disk on the data thread, whose own ring nobody polls meanwhile: they must not need it.
#[test]
fn cold_reads_on_a_data_thread_with_a_ring_come_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let meta = dir.path().join("meta");
    let names: Vec<&'static str> = (0..FILES).map(|i| &*Box::leak(format!("{i:0200}").into_boxed_str())).collect();
    let deps = || Deps {
        disk: Arc::new(RealDisk::new()),
        dir: meta.clone(),
        cluster: None,
        clock: Arc::new(RealClock),
        // Next to no cache: every look goes to the disk.
        config: crate::Config { state: StateConfig { cache_bytes: 16 << 10, ..StateConfig::default() }, ..config() },
        log: log_config(),
    };
    let run = async {
        format(Arc::new(RealDisk::new()), &meta, [3; 16], Arc::new(RealClock), log_config()).await.expect("formats");
        let service = Service::open(deps()).await.expect("opens");
        let a = Client::mount(&service, "a").await;
        let root = home(&a).await;
        for name in &names {
            a.file(root, name).await;
        }
        service.shutdown().await.expect("stops");

        let service = Service::open(deps()).await.expect("opens again");
        let b = Client::gateway(&service).await;
        // Several in hand: this thread's disk calls would go by its ring.
        let _busy = (InHand::new(), InHand::new());
        for name in names.iter().rev() {
            assert!(b.meta.lookup(root, n(name)).await.expect("looks").entry.is_some());
        }
        assert_eq!(b.meta.readdir(root, 0, FILES + 1).await.expect("reads").0.len(), FILES);
        service.shutdown().await.expect("stops");
    };
    runtime::block_on(async { tokio::time::timeout(std::time::Duration::from_secs(100), run).await.expect("in time") }).expect("a runtime");
}

fn log_config() -> raft::Config {
    let mut c = raft::Config::new(5, false);
    c.log.segment_bytes = 1 << 20;
    c.wal_bytes_max = 8 << 20;
    c.log.segments_max = 32;
    c
}
