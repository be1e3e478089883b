//! One OSD as the cluster sees it: its service, its flush domain, and how many puts it owes us; and the set of all of them.
//!
//! What always holds: an OSD that owes more than the limit gets no new shards until it answers, so a hung one costs a bounded
//! amount of memory, and new stripes are written without it in full instead of with holes.

use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::ShardService;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) struct Slot {
    pub osd: OsdId,
    pub domain: u64,
    pub service: Arc<dyn ShardService>,
    /// Calls answered without: they still run.
    owed: AtomicU32,
    leaving: AtomicBool,
}

/// Every OSD that stripes may name.
pub(crate) struct Slots {
    /// In order of their ids.
    pub list: Vec<Arc<Slot>>,
    /// Those in service when the set was made share one flush domain.
    pub one_domain: bool,
}

impl Slots {
    /// `osds` have distinct ids. Of `before`, the slot of an OSD whose service is still the same is kept.
    pub fn new(osds: Vec<Arc<dyn ShardService>>, before: Option<&Slots>) -> Slots {
        let kept = |service: &Arc<dyn ShardService>| {
            let slot = before?.get(service.osd())?;
            std::ptr::addr_eq(Arc::as_ptr(&slot.service), Arc::as_ptr(service)).then(|| slot.clone())
        };
        let mut list: Vec<Arc<Slot>> = osds.into_iter().map(|s| kept(&s).unwrap_or_else(|| Slot::new(s))).collect();
        list.sort_by_key(|s| s.osd);
        assert!(list.windows(2).all(|w| w[0].osd < w[1].osd), "ids of OSDs are distinct");
        let mut domains = list.iter().filter(|s| s.service.failure().is_none()).map(|s| s.domain);
        let first = domains.next();
        let one_domain = domains.all(|d| Some(d) == first);
        Slots { list, one_domain }
    }

    pub fn get(&self, osd: OsdId) -> Option<&Arc<Slot>> {
        let at = self.list.binary_search_by_key(&osd, |s| s.osd).ok()?;
        Some(&self.list[at])
    }
}

impl Slot {
    pub fn new(service: Arc<dyn ShardService>) -> Arc<Slot> {
        Arc::new(Slot { osd: service.osd(), domain: service.domain(), service, owed: AtomicU32::new(0), leaving: AtomicBool::new(false) })
    }

    /// Whether it gets no new shards.
    pub fn leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Relaxed);
    }

    /// Why it is out of service, if it is.
    pub fn failure(&self) -> Option<String> {
        self.service.failure()
    }

    pub fn owed(&self) -> u32 {
        self.owed.load(Ordering::Relaxed)
    }

    /// Notes one more call that nobody waits for; `None` at the limit.
    pub fn owe(self: &Arc<Self>, owed_max: u32) -> Option<Owed> {
        self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < owed_max).then_some(n + 1)).ok()?;
        Some(Owed(self.clone()))
    }
}

/// A call that runs on without its caller.
pub(crate) struct Owed(Arc<Slot>);

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.owed.fetch_sub(1, Ordering::Relaxed);
    }
}
