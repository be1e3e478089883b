//! One OSD as the cluster sees it: its service, its flush domain, and how many puts it owes us; and the set of all of them.
//!
//! What always holds: an OSD that owes more than the limit gets no new shards until it answers, so a hung one costs a bounded
//! amount of memory, and new stripes are written without it in full instead of with holes. One that came in the place of another answers
//! only for what it acknowledged itself.

use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_proto::{OsdId, StripeId};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) struct Slot {
    pub osd: OsdId,
    pub domain: u64,
    pub service: Arc<dyn ShardService>,
    /// Calls answered without: they still run.
    owed: AtomicU32,
    leaving: AtomicBool,
    /// Of one that came in the place of another: the writings it acknowledged.
    acked: Option<Mutex<Acked>>,
}

/// Writings are remembered as long as so many others came after, at least: those that wait for a flush are fewer. One that is forgotten
/// costs a repair that finds its shard in place.
const ACKED_MAX: usize = 32_768;

/// Stripes with their digests, the newest and those before.
#[derive(Default)]
struct Acked {
    new: HashSet<(StripeId, u64)>,
    old: HashSet<(StripeId, u64)>,
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
        let came = |service: Arc<dyn ShardService>| match before.is_some_and(|b| b.get(service.osd()).is_some()) {
            true => Slot::in_place_of_another(service),
            false => Slot::new(service),
        };
        let mut list: Vec<Arc<Slot>> = osds.into_iter().map(|s| kept(&s).unwrap_or_else(|| came(s))).collect();
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
        Self::with(service, None)
    }

    fn in_place_of_another(service: Arc<dyn ShardService>) -> Arc<Slot> {
        Self::with(service, Some(Mutex::default()))
    }

    fn with(service: Arc<dyn ShardService>, acked: Option<Mutex<Acked>>) -> Arc<Slot> {
        let (osd, domain) = (service.osd(), service.domain());
        Arc::new(Slot { osd, domain, service, owed: AtomicU32::new(0), leaving: AtomicBool::new(false), acked })
    }

    /// A shard of this writing was put here.
    pub fn acknowledged(&self, stripe: StripeId, digest: u64) {
        let Some(acked) = &self.acked else { return };
        let mut acked = acked.lock();
        if acked.new.len() == ACKED_MAX {
            acked.old = std::mem::take(&mut acked.new);
        }
        acked.new.insert((stripe, digest));
    }

    /// Whether a shard of this writing that was put on the OSD of this number was put here, and not on the one before.
    pub fn answers_for(&self, stripe: StripeId, digest: u64) -> bool {
        self.acked.as_ref().is_none_or(|acked| {
            let acked = acked.lock();
            acked.new.contains(&(stripe, digest)) || acked.old.contains(&(stripe, digest))
        })
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
