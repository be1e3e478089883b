//! What an operator does to a running cluster: replaces, adds, drains and removes OSDs, in the steps of `holdfast admin osd`.
//!
//! What always holds: what can be refused is looked at before anything is changed; what is known of the OSDs is written down before it
//! is made true, so a start after a crash ends what was begun.

use crate::cluster::{Running, form};
use crate::places::{self, Place, Standing};
use holdfast_objstore_client::DownOsd;
use holdfast_objstore_osd::{Inspect, Osd, inspect};
use holdfast_objstore_proto::OsdId;
use holdfast_objstore_proto::shard::ShardService;
use holdfast_objstore_repair::Begun;
use std::sync::Arc;
use std::time::Duration;

/// How long an OSD that is taken out may take to end what it has in hand.
const STOPPING: Duration = Duration::from_secs(5);
/// A stripe written before a change may be published after it: everything is looked at once more, this much later.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// A change that is refused is asked for again, so often and this much later.
const TRIES: u32 = 10;
const AGAIN: Duration = Duration::from_secs(3);
/// Stripes looked at in one step.
const PAGE: usize = 1024;

/// What is asked. OSDs have the numbers of their devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Makes an OSD anew in its place.
    Replace(usize),
    /// Makes one on a device that has none.
    Add(usize),
    /// Moves everything off one.
    Drain(usize),
    /// Takes out one that no stripe names.
    Remove(usize),
}

#[derive(Default)]
struct Named {
    stripes: u64,
    needed: u64,
}

fn said(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Running {
    /// Asks until it is done or there is no hope of it; whether it was done.
    pub async fn ask(&self, change: Change) -> bool {
        for _ in 0..TRIES {
            let done = self.change(change).await;
            self.trace.note(format_args!("operator: {change:?}: {done:?}"));
            if done.is_ok() {
                self.repair.look_at_all();
                let repair = self.repair.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    repair.look_at_all();
                });
                return true;
            }
            tokio::time::sleep(AGAIN).await;
        }
        false
    }

    async fn change(&self, change: Change) -> Result<(), String> {
        let _one = self.changing.lock().await;
        match change {
            Change::Replace(device) => self.replace(device).await,
            Change::Add(device) => self.add(device).await,
            Change::Drain(device) => self.drain(device),
            Change::Remove(device) => self.remove(device).await,
        }
    }

    async fn replace(&self, device: usize) -> Result<(), String> {
        let id = OsdId(device as u16);
        let known = places::load(&self.devices).contains_key(&id.0);
        let old = self.osd(id);
        let up = old.as_ref().is_some_and(|o| o.failure().is_none()) && self.failure(id).is_none();
        let empty = matches!(inspect(&self.devices, &crate::cluster::osd_folder(device)), Ok(Inspect::Empty));
        if !known {
            return Err("there is no such OSD".into());
        }
        if up || !empty {
            let named = self.named(id).await?;
            if named.needed > 0 {
                return Err(format!("{} of its {} stripes could not be read without it", named.needed, named.stripes));
            }
        }
        let why = "it is being replaced";
        if !stop(old.as_ref(), why).await {
            return Err("it does not end what it has in hand".into());
        }
        self.put(Arc::new(DownOsd { osd: id, why: why.into() }));
        self.make(device).await
    }

    async fn add(&self, device: usize) -> Result<(), String> {
        if places::load(&self.devices).contains_key(&(device as u16)) {
            return Err("it is there already".into());
        }
        self.make(device).await
    }

    fn drain(&self, device: usize) -> Result<(), String> {
        let id = OsdId(device as u16);
        let places = places::load(&self.devices);
        let stays = |osd: &OsdId| *osd != id && places.get(&osd.0).is_some_and(|p| p.standing == Standing::In);
        let left = self.objects.osds().iter().filter(|(osd, failed)| failed.is_none() && stays(osd)).count();
        if left < self.plan.code.n() || !places.contains_key(&id.0) {
            return Err(format!("{left} OSDs would be left to write to"));
        }
        places::change(&self.devices, |places| places.entry(id.0).and_modify(|p| p.standing = Standing::Draining).or_default().standing)?;
        self.cluster.set_leaving(id, true);
        Ok(())
    }

    async fn remove(&self, device: usize) -> Result<(), String> {
        let id = OsdId(device as u16);
        let left = self.services.lock().len().saturating_sub(1);
        // Nothing new is written to it from here on, so that what is looked at stays true.
        self.cluster.set_leaving(id, true);
        let named = self.named(id).await?;
        if left < self.plan.code.n() || named.stripes > 0 || !places::load(&self.devices).contains_key(&id.0) {
            self.share();
            return Err(format!("{left} OSDs would be left, and {} stripes are on it", named.stripes));
        }
        places::change(&self.devices, |places| places.remove(&id.0))?;
        self.services.lock().retain(|s| s.osd() != id);
        self.share();
        let old = self.osd(id);
        self.osds.lock().retain(|o| o.osd() != id);
        stop(old.as_ref(), "it was removed").await;
        Ok(())
    }

    /// What stripes' records say of an OSD.
    async fn named(&self, id: OsdId) -> Result<Named, String> {
        let came = self.came.lock().clone();
        let looked_through = |osd: &OsdId| self.repair.looked_since(came.get(osd).copied().unwrap_or_default());
        let up: Vec<OsdId> = self.objects.osds().into_iter().filter(|o| o.1.is_none() && looked_through(&o.0)).map(|o| o.0).collect();
        let (mut named, mut after) = (Named::default(), None);
        loop {
            let page = self.service.stripes(after, PAGE).map_err(said)?;
            let Some(last) = page.last() else { return Ok(named) };
            after = Some(last.id);
            for stripe in page.iter().filter(|s| s.osds.contains(&id)) {
                let gone = stripe.missing | self.repair.suspects_of(stripe.id);
                let there = |(shard, osd): &(usize, &OsdId)| **osd != id && gone >> shard & 1 == 0 && up.contains(osd);
                named.stripes += 1;
                named.needed += (stripe.osds.iter().enumerate().filter(there).count() < stripe.code.k as usize) as u64;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Makes an OSD, empty, and puts it into service.
    async fn make(&self, device: usize) -> Result<(), String> {
        let id = OsdId(device as u16);
        let log_id = self.new_log_id(device);
        let place = Place { log_id, standing: Standing::Forming, ..Place::default() };
        places::change(&self.devices, |places| places.insert(id.0, place))?;
        form(&self.plan, &self.devices, device, log_id, self.clock.now_ns())?;
        let opened = crate::cluster::open_osd(&self.disk, &self.plan, device, Some(&place)).await;
        let osd = match opened {
            Ok(osd) => osd,
            Err(why) => {
                self.put(Arc::new(DownOsd { osd: id, why: format!("it could not be made: {why}") }));
                return Err(why);
            }
        };
        self.came.lock().insert(id, Begun::NEVER);
        {
            let mut osds = self.osds.lock();
            osds.retain(|o| o.osd() != id);
            osds.push(osd.clone());
            osds.sort_by_key(|o| o.osd());
        }
        self.meters.more(osd.metrics().clone());
        self.put(self.reach(&osd));
        self.came.lock().insert(id, self.repair.now());
        places::remember(&self.devices, [&osd].into_iter())?;
        crate::cluster::put_mark(&self.devices, device)?;
        Ok(())
    }

    fn osd(&self, id: OsdId) -> Option<Osd> {
        self.osds.lock().iter().find(|o| o.osd() == id).cloned()
    }

    fn failure(&self, id: OsdId) -> Option<String> {
        self.services.lock().iter().find(|s| s.osd() == id).and_then(|s| s.failure())
    }

    /// Puts a service in the place of the one with its number, or beside the others.
    fn put(&self, service: Arc<dyn ShardService>) {
        {
            let mut services = self.services.lock();
            services.retain(|s| s.osd() != service.osd());
            services.push(service);
            services.sort_by_key(|s| s.osd());
        }
        self.share();
    }

    /// Tells the object cluster of the set as it is now.
    fn share(&self) {
        let services = self.services.lock().clone();
        self.cluster.set_osds(services.clone());
        let places = places::load(&self.devices);
        let open: Vec<OsdId> = self.osds.lock().iter().map(|o| o.osd()).collect();
        for s in services {
            let draining = places.get(&s.osd().0).is_some_and(|p| p.standing == Standing::Draining);
            // One that failed while it served will not come back.
            self.cluster.set_leaving(s.osd(), draining || open.contains(&s.osd()) && s.failure().is_some());
        }
    }
}

/// Fails the log of an OSD; whether nothing is written to its place any more.
async fn stop(osd: Option<&Osd>, why: &str) -> bool {
    match osd {
        Some(osd) => tokio::time::timeout(STOPPING, osd.stop(why)).await.is_ok(),
        None => true,
    }
}
