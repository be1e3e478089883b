//! What really happened in a run, counted: a promise that was never put to the test is not kept by a green run.
//!
//! What always holds: everything in [`REACHED`] happens over the seeds of CI, which the test asserts; the counts are a part of a
//! run's report, so two runs of one seed have the same.

use holdfast_fs_vfs::Vfs;
use holdfast_meta_log::metrics::Metrics as LogMetrics;
use holdfast_meta_server::{Metrics as MetaMetrics, Service};
use holdfast_objstore_client::{Cluster, Objects};
use holdfast_objstore_osd::Metrics as OsdMetrics;
use holdfast_objstore_repair::{Metrics as RepairMetrics, Reconciler, Repair};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What must happen somewhere in the seeds of CI.
pub const REACHED: &[&str] = &[
    "calls answered",
    "calls cut off",
    "starts from a torn tail",
    "osd checkpoints",
    "segments recycled",
    "segments cleaned",
    "bytes moved by cleaning",
    "grants",
    "recalls",
    "state checkpoints",
    "orphans freed",
    "stripes deleted",
    "packs made",
    "packs rewritten",
    "small stripes gathered",
    "stripes repaired",
    "shards rebuilt",
    "shards dropped",
    "garbage found by walks",
    "bytes decoded",
    "corrupt shards met",
    "write hedges",
    "mirror sets",
    "log segments retired",
    "evictions",
    "late shards refused",
    "stripes reconciled away",
    "devices that went back in time",
    "osds given up",
    "shards scrubbed",
    "osds replaced",
    "osds added",
    "osds drained",
    "osds removed",
    "changes refused",
    "times full",
    "times healed",
];

/// How often each thing happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn add(&mut self, what: &'static str, n: u64) {
        *self.0.entry(what).or_default() += n;
    }

    pub fn join(&mut self, other: &Coverage) {
        other.0.iter().for_each(|(what, n)| self.add(what, *n));
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// What never happened of what must.
    pub fn lacking(&self) -> Vec<&'static str> {
        REACHED.iter().copied().filter(|what| self.of(what) == 0).collect()
    }

    /// A line for each.
    pub fn table(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(|(what, n)| format!("{n:>12}  {what}")).collect();
        lines.join("\n")
    }
}

/// The counters of one life, which outlive its components.
pub struct Meters {
    osds: Mutex<Vec<OsdMetrics>>,
    objects: Arc<Cluster>,
    log: LogMetrics,
    service: Option<MetaMetrics>,
    repair: Option<RepairMetrics>,
    reconciler: Option<Arc<Reconciler>>,
    /// OSDs that the start found to have gone back in time.
    stale: u64,
}

impl Meters {
    pub fn new(osds: Vec<OsdMetrics>, objects: Arc<Cluster>, log: LogMetrics) -> Self {
        Self { osds: Mutex::new(osds), objects, log, service: None, repair: None, reconciler: None, stale: 0 }
    }

    /// The service and all background work have started.
    pub fn serving(mut self, service: &Service, repair: &Repair, reconciler: &Arc<Reconciler>, stale: u64) -> Self {
        (self.service, self.repair) = (Some(service.metrics().clone()), Some(repair.metrics().clone()));
        (self.reconciler, self.stale) = (Some(reconciler.clone()), stale);
        self
    }

    /// An OSD was made.
    pub fn more(&self, osd: OsdMetrics) {
        self.osds.lock().push(osd);
    }

    /// What they show now.
    pub fn count(&self, mounts: &[Arc<Vfs>]) -> Coverage {
        let mut c = Coverage::default();
        for o in self.osds.lock().iter() {
            c.add("starts from a torn tail", o.torn_tails.get());
            c.add("osd checkpoints", o.checkpoints.get());
            c.add("segments recycled", o.log.segments_recycled.get());
            c.add("segments cleaned", o.segments_cleaned.get());
            c.add("bytes moved by cleaning", o.cleaned_bytes.get());
            c.add("waits for cleaning", o.paced.get());
            c.add("faults found by starts", o.faults.get());
        }
        if let Some(m) = &self.service {
            c.add("grants", m.grants.get());
            c.add("recalls", m.recalls.get());
            c.add("evictions", m.evictions.get());
            c.add("state checkpoints", m.checkpoints.get());
            c.add("orphans freed", m.orphans_reaped.get());
            c.add("stripes deleted", m.stripes_deleted.get());
            c.add("packs made", m.packs_written.get());
            c.add("packs rewritten", m.packs_rewritten.get());
            c.add("small stripes gathered", m.stripes_gathered.get());
            c.add("inline bytes restaged", m.restaged_bytes.get());
            c.add("pack failures", m.pack_failures.get());
        }
        if let Some(r) = &self.repair {
            c.add("stripes repaired", r.stripes.get());
            c.add("stripes written wider", r.reencoded.get());
            c.add("repairs that lost a race", r.swaps_lost.get());
            c.add("shards dropped", r.dropped_shards.get());
            c.add("garbage found by walks", r.garbage_shards.get());
            c.add("shards scrubbed", r.scrubbed_shards.get());
            c.add("faults found by scrubs", r.scrub_faults.get());
        }
        if let Some(r) = &self.reconciler {
            c.add("stripes reconciled away", r.progress().deleted);
            c.add("passes of reconciling", r.progress().passes);
        }
        c.add("devices that went back in time", self.stale);
        let given_up = |o: &(_, Option<String>)| o.1.as_ref().is_some_and(|why| why.contains("was not answered"));
        c.add("osds given up", self.objects.osds().iter().filter(|o| given_up(o)).count() as u64);
        let o = self.objects.metrics();
        c.add("shards rebuilt", o.rebuilt_shards());
        c.add("bytes decoded", o.decoded_bytes());
        c.add("corrupt shards met", o.shards_corrupt());
        c.add("write hedges", o.write_hedges());
        c.add("late shards", o.late_shards());
        c.add("waits for space", o.full_waits());
        c.add("mirror sets", self.log.mirror_set_changes());
        c.add("log segments retired", self.log.segments_retired());
        c.add("evictions heard by mounts", mounts.iter().map(|v| v.metrics().vfs_evictions.get()).sum());
        c
    }
}
