//! Changing the set of OSDs while the cluster runs: replace, add, drain, remove.
//!
//! What always holds: what can be refused is looked at before anything is changed. The cluster file names what is being made before it is
//! made, so a start after a crash ends it; an OSD that leaves is in no stripe's record, or every stripe it is in has enough others.
//! What it leaves out: moving shards; that is repair's, which each change tells to look.

mod device;

use super::super::data::Running;
use super::super::mirrors;
use super::super::reconcile::ServiceRanges;
use super::super::room;
use super::super::storage::{self, Opening};
use super::{OsdSet, OsdState};
use crate::layout::{self, Layout, Life, OsdPlace, Standing, State};
use crate::lock;
use anyhow::{Context, bail, ensure};
use holdfast_meta_log::raft::mirror::Place;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_osd::{Inspect, inspect};
use holdfast_objstore_proto::{Code, OsdId, StripeId, StripeMeta};
use holdfast_objstore_repair::reconcile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Stripes looked at in one step.
const PAGE: usize = 1024;
/// How long an OSD that is taken out may take to end what it has in hand, and a disk to be looked at.
const STOPPING: Duration = Duration::from_secs(5);
/// A stripe written before a change may be published after it: everything is looked at once more, this much later.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Makes an OSD anew, empty, in its place or (`Some`) in another folder or on another device, which is formatted only if the last says so.
    Replace(OsdId, Option<PathBuf>, bool),
    /// Adds an OSD in a folder or on a device.
    Add(PathBuf, bool),
    /// Moves everything off an OSD, or (`false`) lets it take part again.
    Drain(OsdId, bool),
    /// Takes out an OSD that no stripe names.
    Remove(OsdId),
}

/// What stripes say of an OSD.
#[derive(Default)]
struct Named {
    /// Stripes with a shard on it.
    stripes: u64,
    /// Of those, the ones that could not be read without it.
    needed: u64,
}

/// The folder a new OSD goes to, as it is really called. On another thread than the data thread: one that lies in the mount is only found by
/// asking the mount, which the data thread serves.
pub fn settle(dir: &Path, mount: Option<&Path>) -> anyhow::Result<PathBuf> {
    ensure!(dir.is_absolute(), "{} is not an absolute path", dir.display());
    let real = |p: &Path| {
        let there = p.ancestors().find(|a| a.exists()).unwrap_or(Path::new("/"));
        let rest = p.strip_prefix(there).unwrap_or(Path::new(""));
        std::fs::canonicalize(there)
            .map(|r| r.join(rest).components().collect::<PathBuf>())
            .with_context(|| format!("cannot look at {}", p.display()))
    };
    let dir = real(dir)?;
    if let Some(point) = mount {
        let point = real(point)?;
        ensure!(
            !dir.starts_with(&point) && !point.starts_with(&dir),
            "{} and the mount point {} lie one in the other; nothing was changed",
            dir.display(),
            point.display()
        );
    }
    Ok(dir)
}

impl Running {
    /// Makes a change; answers a sentence for whoever asked. On the data thread, with folders that were settled.
    pub async fn change_osds(self: &Arc<Self>, change: Change) -> anyhow::Result<String> {
        let set = &self.osds;
        let Ok(_one) = set.change.try_lock() else { bail!("another change of the OSDs is under way; try again when it is done") };
        let said = match change {
            Change::Replace(id, dir, format) if device::on_devices(&set.layout()) => self.replace_device(id, dir, format).await?,
            Change::Add(dir, format) if device::on_devices(&set.layout()) => self.add_device(dir, format).await?,
            Change::Replace(id, dir, _) => self.replace(id, dir).await?,
            Change::Add(dir, _) => self.add(dir).await?,
            Change::Drain(id, on) => self.drain(id, on).await?,
            Change::Remove(id) => self.remove(id).await?,
        };
        self.repair.look_at_all();
        let repair = self.repair.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LOOK_AGAIN).await;
            repair.look_at_all();
        });
        Ok(said)
    }

    fn known(&self, id: OsdId) -> anyhow::Result<Arc<OsdState>> {
        let all = self.osds.list();
        let found = all.iter().find(|s| s.id == id).cloned();
        found.with_context(|| {
            format!("there is no {id}; this cluster has {}", all.iter().map(|s| s.id.to_string()).collect::<Vec<_>>().join(" "))
        })
    }

    async fn replace(self: &Arc<Self>, id: OsdId, dir: Option<PathBuf>) -> anyhow::Result<String> {
        let (set, state) = (&self.osds, self.known(id)?);
        let layout = set.layout();
        let place = layout.place(id).with_context(|| format!("{id} has no place"))?.clone();
        let (home, path) = match &dir {
            // The same asked again, of a change that a start has ended.
            Some(dir) if state.failure().is_none() && dir.join(format!("osd.{}", id.0)) == state.path => {
                return Ok(format!("{id} is in {} already; nothing was changed", dir.display()));
            }
            Some(dir) => self.new_place(&layout, dir, id)?,
            None => (None, state.path.clone()),
        };
        let there = inspect(&*set.disk, &path).with_context(|| format!("cannot look at {}", path.display()))?;
        if let Inspect::Foreign(name) = &there {
            bail!("{} holds files that are not Holdfast's ({name}); nothing was changed", path.display());
        }
        // What it has is lost either way: one that another has replaced is not believed when it comes back.
        if state.failure().is_none() || self.may_hold(&state).await {
            self.refuse_needed(&state).await?;
        }
        self.take_out(&state, dir.is_none()).await?;
        let made = self.make(place, home, path).await?;
        let note = self.log_takes_in(id).await;
        Ok(format!("{id} is new in {} and is being filled from the others: holdfast status shows how far it is{note}", made.display()))
    }

    async fn add(self: &Arc<Self>, dir: PathBuf) -> anyhow::Result<String> {
        let layout = self.osds.layout();
        let id = OsdId(layout.next_osd());
        ensure!(layout.places.len() < 64, "there are 64 OSDs already, the most for one process");
        let (home, path) = self.new_place(&layout, &dir, id)?;
        let place = OsdPlace { id: id.0, device: None, ..layout.places.first().context("a cluster has OSDs")?.clone() };
        let made = self.make(place, home, path).await?;
        let note = self.log_takes_in(id).await;
        Ok(format!("{id} is in service in {}{note}", made.display()))
    }

    async fn drain(&self, id: OsdId, on: bool) -> anyhow::Result<String> {
        let state = self.known(id)?;
        if on {
            let left = self.osds.list().iter().filter(|s| s.id != id && s.failure().is_none() && !s.draining()).count();
            let code = self.widest();
            ensure!(
                left >= code.n(),
                "{left} OSDs would be left to write to, and the code {code} needs {}; add one first (holdfast admin osd add), nothing was changed",
                code.n()
            );
        }
        let standing = if on { Standing::Draining } else { Standing::In };
        self.osds.write(|places| places.iter_mut().filter(|p| p.id == id.0).for_each(|p| p.life.state = standing))?;
        state.drain(on);
        self.objects.set_leaving(id, on);
        self.log_follows(&self.osds.layout(), Vec::new()).await;
        Ok(match on {
            true => format!("{id} gets nothing new and is being emptied: holdfast status shows how far it is"),
            false => format!("{id} takes part again"),
        })
    }

    async fn remove(&self, id: OsdId) -> anyhow::Result<String> {
        let state = self.known(id)?;
        let left = self.osds.list().len() - 1;
        let code = self.widest();
        ensure!(left >= code.n(), "{left} OSDs would be left, and the code {code} needs {}; nothing was changed", code.n());
        // Nothing new is written to it from here on, so that what is looked at stays true.
        self.objects.set_leaving(id, true);
        if let Err(why) = self.let_go(&state).await {
            self.objects.set_leaving(id, state.leaving());
            return Err(why);
        }
        self.osds.inner.lock().states.retain(|s| s.id != id);
        self.share();
        stop(&state, "it was removed").await;
        Ok(format!("{id} is out of the cluster; {} holds nothing that is needed and may be deleted", state.path.display()))
    }

    /// Takes an OSD that nothing new is written to out of the cluster file, if nothing it has is or may still become part of a file.
    async fn let_go(&self, state: &OsdState) -> anyhow::Result<()> {
        let id = state.id;
        let named = self.named(id).await?;
        ensure!(
            named.stripes == 0,
            "{} stripes have a shard on {id}; move them first (holdfast admin osd drain {}), nothing was changed",
            named.stripes,
            id.0
        );
        let unpublished = self.unpublished(state).await?;
        ensure!(unpublished == 0, "{unpublished} shards on {id} are of writes that are not published yet; try again, nothing was changed");
        // While it is still one of the cluster's: whoever takes its device away when this is answered takes no copy of the log with it.
        let mut without = self.osds.layout();
        without.change(|places| places.retain(|p| p.id != id.0));
        let relied_upon = self.log_follows(&without, Vec::new()).await;
        if !relied_upon.is_empty() {
            self.log_follows(&self.osds.layout(), Vec::new()).await;
            bail!(
                "{id} is needed: the metadata log relies on {}, and no other device could take that over; nothing was changed",
                names(&relied_upon)
            );
        }
        self.osds.write(|places| places.retain(|p| p.id != id.0))
    }

    /// Shards that an OSD in service has of stripes that a session may still publish.
    async fn unpublished(&self, state: &OsdState) -> anyhow::Result<usize> {
        let (mut found, mut after) = (0, None);
        while state.failure().is_none() {
            let page = state.service().list(after, PAGE).await?;
            let ids: Vec<StripeId> = page.iter().map(|k| k.stripe).collect();
            for (id, live) in ids.iter().zip(self.service.stripes_live(&ids)?) {
                found += (live && self.service.stripe(*id)?.is_none()) as usize;
            }
            after = page.last().copied();
            if page.len() < PAGE {
                break;
            }
        }
        Ok(found)
    }

    /// Has the copies of the metadata log lie where the layout says; answers folders that it relies on all the same.
    async fn log_follows(&self, layout: &Layout, renewed: Vec<Place>) -> Vec<PathBuf> {
        self.service.log_follows(mirrors::devices(layout, &*self.osds.disk, renewed)).await
    }

    /// Has the metadata log know the folder of an OSD that was made, and forget the one it had before; answers what is to be said about that.
    async fn log_takes_in(&self, id: OsdId) -> String {
        let layout = self.osds.layout();
        let renewed = layout.place(id).map(|p| p.dir as Place);
        let relied_upon = self.log_follows(&layout, renewed.into_iter().collect()).await;
        match relied_upon.is_empty() {
            true => String::new(),
            false => format!("; the metadata log still relies on {}: leave it as it is until the next start", names(&relied_upon)),
        }
    }

    /// The code that needs most OSDs, of all that buckets have.
    fn widest(&self) -> Code {
        let codes = self.service.status().buckets.into_iter().map(|(b, _)| b.code);
        codes.max_by_key(|c| c.n()).unwrap_or(self.layout.code)
    }

    /// Refuses to make an OSD anew while stripes need what it has.
    async fn refuse_needed(&self, state: &OsdState) -> anyhow::Result<()> {
        let id = state.id;
        let unknown = self.osds.list().iter().any(|s| s.failure().is_none() && !self.looked_through(s));
        let named = self.named(id).await?;
        ensure!(
            named.needed == 0,
            "{id} is needed: {} of its {} stripes have too few shards elsewhere{}, and replacing it would lose them; wait for repair (holdfast status){}, nothing was changed",
            named.needed,
            named.stripes,
            if unknown { " as far as OSDs were looked through yet" } else { "" },
            match state.failure() {
                None => String::new(),
                Some(_) => format!(" or bring it back by a new start (take {} away if that is gone for good)", state.path.display()),
            }
        );
        Ok(())
    }

    /// Whether there may be something in the place of an OSD out of service. A disk that does not answer may have it.
    async fn may_hold(&self, state: &OsdState) -> bool {
        let (disk, path) = (self.osds.disk.clone(), state.path.clone());
        let look = tokio::task::spawn_blocking(move || inspect(&*disk, &path));
        !matches!(tokio::time::timeout(STOPPING, look).await, Ok(Ok(Ok(Inspect::Empty | Inspect::HalfFormatted))))
    }

    /// What stripes' records say of an OSD. Another counts once it was looked through, and then but for what it lacks.
    async fn named(&self, id: OsdId) -> anyhow::Result<Named> {
        let counts = |s: &&Arc<OsdState>| s.failure().is_none() && self.looked_through(s);
        let up: Vec<OsdId> = self.osds.list().iter().filter(counts).map(|s| s.id).collect();
        let mut named = Named::default();
        let mut after = None;
        loop {
            let page = self.service.stripes(after, PAGE)?;
            let Some(last) = page.last() else { return Ok(named) };
            after = Some(last.id);
            for stripe in page.iter().filter(|s| s.osds.contains(&id)) {
                named.stripes += 1;
                named.needed += (others(stripe, self.repair.suspects_of(stripe.id), id, &up) < stripe.code.k as usize) as u64;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Where a new OSD goes in `dir`: the folder to take in, when it is no data folder yet, and the OSD's own.
    fn new_place(&self, layout: &Layout, dir: &Path, id: OsdId) -> anyhow::Result<(Option<PathBuf>, PathBuf)> {
        let disk = &*self.osds.disk;
        ensure!(!dir.exists() || dir.is_dir(), "{} is not a folder; nothing was changed", dir.display());
        let path = dir.join(format!("osd.{}", id.0));
        match layout::read(disk, dir)? {
            Some(file) => {
                ensure!(
                    file.cluster == format!("{:032x}", layout.cluster),
                    "{} belongs to another cluster; nothing was changed",
                    dir.display()
                );
                if !layout.dirs.iter().any(|d| d == dir) {
                    ensure!(
                        layout::is_only_named(disk, dir)?,
                        "{} was taken out of this cluster; empty it first, nothing was changed",
                        dir.display()
                    );
                    return Ok((Some(dir.to_path_buf()), path));
                }
                let there = inspect(disk, &path)?;
                ensure!(there == Inspect::Empty, "{} is in use already; nothing was changed", path.display());
                Ok((None, path))
            }
            None => {
                layout::refuse_foreign(disk, dir)?;
                for known in &layout.dirs {
                    ensure!(
                        !dir.starts_with(known) && !known.starts_with(dir),
                        "{} and the data folder {} lie one in the other; nothing was changed",
                        dir.display(),
                        known.display()
                    );
                }
                Ok((Some(dir.to_path_buf()), path))
            }
        }
    }

    /// Makes an OSD, puts it into service, and writes down each step. `home`: a folder that becomes a data folder.
    async fn make(self: &Arc<Self>, mut place: OsdPlace, home: Option<PathBuf>, path: PathBuf) -> anyhow::Result<PathBuf> {
        let (set, id) = (&self.osds, OsdId(place.id));
        let disk = set.disk.clone();
        let log_id = storage::random_u128();
        let folder = path.parent().context("an OSD's folder lies in another")?;
        let back = set.layout().dirs.iter().position(|d| d == folder).filter(|_| layout::read(&*disk, folder).is_ok_and(|f| f.is_none()));
        // One that was lost and is new and empty is a data folder again.
        let lock = match home.as_deref().or(back.map(|_| folder)) {
            Some(dir) => {
                if !dir.exists() {
                    disk.create_dir_all(dir)?;
                    // What is stored is its users' own business; a folder that was there keeps its mode.
                    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                        .with_context(|| format!("cannot set the mode of {}", dir.display()))?;
                }
                Some(lock::take(dir)?)
            }
            None => None,
        };
        let mut layout = set.layout();
        if let Some(index) = back {
            layout.give_back(&*disk, index)?;
        }
        place.dir = match &home {
            Some(dir) => layout.take_in(&*disk, dir)?,
            None => layout.dirs.iter().position(|d| folder == *d).unwrap_or(place.dir),
        };
        place.path = path.strip_prefix(&layout.dirs[place.dir]).unwrap_or(&path).to_str().context("the path is not UTF-8")?.to_string();
        place.life = Life { state: Standing::Forming, log: format!("{log_id:032x}"), opened: 0, stable: 0 };
        layout.change(|places| {
            places.retain(|p| p.id != place.id);
            places.push(place.clone());
        });
        layout.write(&*disk, State::Ready)?;
        {
            let mut inner = set.inner.lock();
            inner.layout = layout.clone();
            inner.locks.extend(lock);
        }
        let made = async {
            self.format_device(&place, &path).await?;
            let part = room::parts(&layout, &disk)?.get(&id).copied();
            storage::form(layout.cluster, id, &path, log_id, part.unwrap_or(0), &disk)?;
            let cache_bytes = set.shares.memory / 16 / layout.osds.len() as u64;
            let with = Opening { disk: disk.clone(), part, cache_bytes };
            let opened = storage::open_one(id, &path, &place.life, with).await.map_err(anyhow::Error::msg)?;
            // What ended sessions still send is refused from the first moment here too.
            reconcile::fence(&opened.osd, &ServiceRanges(self.service.clone())).await.map_err(anyhow::Error::msg)?;
            anyhow::Ok(opened)
        };
        let state = match made.await {
            Ok(opened) => OsdState::new(id, path.clone(), opened),
            Err(e) => {
                let why = format!("{e:#}");
                set.put(OsdState::lost(id, path.clone(), format!("it could not be made: {why}")));
                self.share();
                bail!("{id} could not be made in {}: {why}; the next start tries again, or replace it once more", path.display());
            }
        };
        set.put(state);
        set.write(|places| places.iter_mut().filter(|p| p.id == id.0).for_each(|p| p.life.state = Standing::In))?;
        set.remember()?;
        self.share();
        // A walk that begins from here on sees it.
        self.osds.get(id).context("it was put there")?.came_at(self.repair.now());
        Ok(path)
    }

    /// An OSD leaves service: its log fails first, so that it neither answers nor writes when its place is another's. `in_place`: that must be
    /// certain.
    async fn take_out(&self, state: &OsdState, in_place: bool) -> anyhow::Result<()> {
        let why = "it is being replaced";
        if !stop(state, why).await && in_place {
            self.share();
            bail!("{} does not end what it has in hand and is out of service: name another place for it, or start anew", state.id);
        }
        self.osds.put(OsdState::lost(state.id, state.path.clone(), why.into()));
        self.share();
        Ok(())
    }

    /// Tells the object cluster of the set as it is now.
    fn share(&self) {
        let all = self.osds.list();
        let mut domains = all.iter().filter_map(|s| s.domain());
        let first = domains.next();
        if domains.any(|d| Some(d) != first) {
            self.osds.disk.never_in_place();
        }
        self.objects.set_osds(all.iter().map(|s| s.service()).collect());
        self.roots.changed(all.clone());
        for state in all {
            self.objects.set_leaving(state.id, state.leaving());
        }
    }
}

impl OsdSet {
    /// Puts a state in the place of the one with its number, or beside the others.
    fn put(&self, state: OsdState) {
        let mut inner = self.inner.lock();
        inner.states.retain(|s| s.id != state.id);
        inner.states.push(Arc::new(state));
        inner.states.sort_by_key(|s| s.id);
    }

    /// Changes the places and writes the cluster file to every data folder.
    fn write(&self, change: impl FnOnce(&mut Vec<OsdPlace>)) -> anyhow::Result<()> {
        let mut layout = self.layout();
        layout.change(change);
        layout.write(&*self.disk, State::Ready)?;
        self.inner.lock().layout = layout;
        Ok(())
    }
}

/// Shards of a stripe that can be read without this OSD, as far as records, OSDs and repair (`suspect`, as bits) tell.
fn others(stripe: &StripeMeta, suspect: u32, id: OsdId, up: &[OsdId]) -> usize {
    let gone = stripe.missing | suspect;
    let there = |(shard, osd): &(usize, &OsdId)| **osd != id && gone >> shard & 1 == 0 && up.contains(osd);
    stripe.osds.iter().enumerate().filter(there).count()
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" ")
}

/// Fails the log of an OSD, whatever its state; whether nothing is written to its place any more.
async fn stop(state: &OsdState, why: &str) -> bool {
    let Some(osd) = &state.osd else { return true };
    let stopped = tokio::time::timeout(STOPPING, osd.stop(why)).await.is_ok();
    if !stopped {
        tracing::warn!("stopping {}: it does not answer", state.id);
    }
    stopped
}
