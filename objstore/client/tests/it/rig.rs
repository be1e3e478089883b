//! A cluster over OSDs in memory.

use crate::mem_osd::MemOsd;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_client::{Cluster, Config, RepairSink, ShardFault};
use holdfast_objstore_proto::shard::{ShardKey, ShardService};
use holdfast_objstore_proto::{OsdId, StripeMeta};
use parking_lot::Mutex;
use std::sync::Arc;

/// Keeps what was reported.
#[derive(Default)]
pub struct Reports(pub Mutex<Vec<(u64, u8, ShardFault)>>);

impl RepairSink for Reports {
    fn report(&self, stripe: Arc<StripeMeta>, shard: u8, why: ShardFault) {
        self.0.lock().push((stripe.id.counter, shard, why));
    }
}

pub struct Rig {
    pub osds: Vec<Arc<MemOsd>>,
    pub budget: Budget,
    pub reports: Arc<Reports>,
    pub cluster: Arc<Cluster>,
}

pub enum Domains {
    One,
    Each,
}

impl Rig {
    pub fn new(osds: u16, domains: Domains) -> Rig {
        Self::with(osds, domains, Config::default())
    }

    pub fn with(osds: u16, domains: Domains, config: Config) -> Rig {
        let domain = |i| if matches!(domains, Domains::One) { 1 } else { 100 + i as u64 };
        let osds: Vec<_> = (0..osds).map(|i| MemOsd::new(i, domain(i))).collect();
        let services = osds.iter().map(|o| o.clone() as Arc<dyn ShardService>).collect();
        let budget = Budget::new(64 << 20);
        let reports = Arc::new(Reports::default());
        let cluster = Cluster::with_repair(services, budget.clone(), config, reports.clone());
        Rig { osds, budget, reports, cluster }
    }

    /// An empty OSD in the place of another.
    pub fn replace(&mut self, id: OsdId) {
        let at = id.0 as usize;
        self.osds[at] = MemOsd::new(id.0, self.osds[at].domain());
        self.cluster.set_osds(self.osds.iter().map(|o| o.clone() as Arc<dyn ShardService>).collect());
    }

    /// The OSD that shard `shard` was sent to.
    pub fn home(&self, meta: &StripeMeta, shard: usize) -> &Arc<MemOsd> {
        &self.osds[meta.osds[shard].0 as usize]
    }

    pub fn key(meta: &StripeMeta, shard: usize) -> ShardKey {
        ShardKey { stripe: meta.id, shard: shard as u8 }
    }

    /// Drops a shard, stable or not, behind everybody's back.
    pub fn lose(&self, meta: &StripeMeta, shard: usize) {
        let mut s = self.home(meta, shard).state.lock();
        s.shards.remove(&Self::key(meta, shard));
        s.stable.insert(Self::key(meta, shard));
    }

    pub fn gets(&self) -> (u64, u64) {
        self.osds.iter().fold((0, 0), |(gets, bytes), osd| {
            let s = osd.state.lock();
            (gets + s.gets, bytes + s.get_bytes)
        })
    }
}
