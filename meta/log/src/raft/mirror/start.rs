//! A start: which copies count, which has the longest tail, and making the others its equals.
//!
//! 1. Read what every folder's device says of the copies. Without a quorum of the known devices the start is refused. Where the newest set changes
//!    them, it is a quorum of the old and of the new.
//! 2. Have a quorum promise the number of this start (where there is one device, step 5 alone does it).
//! 3. Open the copies of the newest set. The one with the last name, by (epoch, number), has everything that was acknowledged; where it is not
//!    whole, the next one has.
//! 4. To copies that end earlier in the same records, the missing ones are written.
//! 5. A set of those that are now equal is made durable on a quorum. Only then is anything written.
//!
//! What always holds: a copy outside the newest set is not read; nothing is changed before step 1 has passed.
//! What it leaves out: devices that came or are gone for good, and filling copies anew ([`super::fill`]); the log does that when it is open, before anybody is served where there is but one copy.

use super::super::Config;
use super::super::recover::{Collect, Replayed, Restage};
use super::super::wal::State;
use super::Doubt;
use super::fill::{copy_tail, format_anew};
use super::folders::Folders;
use super::member::Member;
use super::set::{self, Epoch, Judged, Place, Seen, Set, Super};
use crate::{Error, Result};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_osd::log::Log;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers of starts that one without a quorum leaves out: devices it could not read may have promised them.
const STARTS_SKIPPED: u64 = 1 << 32;

/// What a start hands on.
pub struct Started {
    pub members: Vec<Arc<Member>>,
    pub state: State,
    pub set: Set,
    pub id: u128,
    pub promised: u64,
    /// Places out of service, with the reason.
    pub out: BTreeMap<Place, String>,
    /// What could not be made sure of.
    pub notes: Vec<String>,
}

/// A copy that could be opened.
struct Copy {
    place: Place,
    log: Log,
    found: Collect,
}

/// What is to be recovered.
struct Newest {
    id: u128,
    set: Set,
    promised: u64,
    /// Not surely the newest.
    stale: bool,
}

/// Opens the copies, or makes them where the log is new. `state_index`: what the state holds; `restage`: what it is shown on the way.
pub async fn start(disk: &Arc<dyn Disk>, folders: &Folders, config: &Config, state_index: u64, restage: &Restage<'_>) -> Result<Started> {
    let seen: Vec<Seen> = folders.all().iter().map(|f| set::read(&**disk, &f.dir)).collect();
    let newest = choose(disk, folders, config, state_index, &seen)?;
    let mut notes = Vec::new();
    if newest.stale {
        failpoint::reached("wal.stale_start");
        config.mirrors.doubt(Doubt::Stale)?;
        notes.push("the metadata log was started without a majority of its devices: what was acknowledged after the copies at hand were left out is lost".into());
    }
    let promised = newest.promised + if newest.stale { STARTS_SKIPPED } else { 1 };
    let (mut known, mut before) = (newest.set.known.clone(), newest.set.before.clone());
    if newest.stale {
        // From now on those decide that are at hand.
        known = set::wanted(&newest.set.stores(), &devices(folders, config), config.mirrors.kept.as_deref());
        let at_hand = |p: &Place| !matches!(seen.get(*p as usize), Some(Seen::Unreadable(_)) | None);
        known.retain(|p| at_hand(p) && folders.get(*p).is_some_and(|f| f.is_there(&**disk)));
        before = Vec::new();
    } else if newest.set.stores().len() > 1 {
        promise(disk, folders, config, &newest, promised).await?;
    }
    let mut out = BTreeMap::new();
    let mut rotten = Vec::new();
    let mut copies = open_copies(disk, folders, config, &newest, &mut out, &mut rotten).await?;
    let (best, replayed) = first_whole(&mut copies, folders, restage, &mut out, &mut rotten).await?;
    let in_set = |c: &Copy| newest.set.members.contains(&c.place);
    let (of, whole) = (newest.set.members.len(), copies.iter().chain([&best]).filter(|c| in_set(c)).count());
    if of > 2 && of - whole >= newest.set.need() {
        failpoint::reached("wal.one_of_many");
        config.mirrors.doubt(Doubt::LastMoment)?;
        let lacks = "what was acknowledged in the very last moment may be missing from it";
        notes.push(format!("of {of} copies of the metadata log {whole} could be read: {lacks}"));
    }
    let state = replayed.taken(restage)?;
    config.metrics.mirrors_rotten.inc_by(rotten.len() as u64);
    notes.extend(rotten.iter().map(|why| format!("a copy of the metadata log is not whole, and another was taken: {why}")));
    let last = best.found.last();
    let mut members = Vec::new();
    for copy in copies {
        let place = copy.place;
        match equal(&best, copy, &folders.dir(place)).await {
            Ok(Some(member)) => members.push(member),
            // It has other records: it is filled anew, as a spare.
            Ok(None) => {}
            Err(why) => drop(out.insert(place, why)),
        }
    }
    let lives = best.found.lives();
    members.push(Member::new(best.place, folders.dir(best.place), best.log, lives, last.number));
    members.sort_by_key(|m| m.place);
    let places: Vec<Place> = members.iter().map(|m| m.place).collect();
    // One that is to be forgotten leaves when another has its copy.
    let leaving: Vec<Place> = places.iter().copied().filter(|p| !known.contains(p)).collect();
    known.extend(leaving);
    let set = Set { epoch: Epoch { start: promised, change: 1 }, known, before, members: places };
    decide(disk, folders, config, &newest, &set, promised).await?;
    Ok(Started { members, state, set, id: newest.id, promised, out, notes })
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

/// What is to be recovered; makes an empty log where it may.
fn choose(disk: &Arc<dyn Disk>, folders: &Folders, config: &Config, state_index: u64, seen: &[Seen]) -> Result<Newest> {
    let first = folders.first();
    let first = first.display();
    let judged = set::judge(seen);
    if config.mirrors.behind_state {
        // Whatever logs there are belong to what the state replaces.
        let promised = if let Judged::Newest { promised, .. } = &judged { promised + STARTS_SKIPPED } else { 0 };
        return format(disk, folders, config, promised);
    }
    match judged {
        Judged::Never if config.create && state_index == 0 => format(disk, folders, config, 0),
        Judged::Never => Err(Error::Failed(format!("the metadata log in {first} is missing"))),
        Judged::Unknown(why) => Err(Error::Failed(format!("no device tells which copies of the metadata log count: {why}"))),
        Judged::Newest { log, set, promised, quorum } => {
            if !quorum && !config.mirrors.accept_stale {
                let stores = set.stores();
                let there = stores.iter().filter(|p| matches!(seen.get(**p as usize), Some(Seen::Here(s)) if s.log == log)).count();
                return Err(Error::Failed(format!(
                    "{there} of {} devices tell which copies of the metadata log are the newest, and a majority must: bring back a device that is missing, \
                     or start with --accept-stale, which takes the newest copy at hand and loses whatever was acknowledged after it was left out",
                    stores.len()
                )));
            }
            Ok(Newest { id: log, set, promised, stale: !quorum })
        }
    }
}

/// Makes an empty log: its copies first, then what says that they are.
fn format(disk: &Arc<dyn Disk>, folders: &Folders, config: &Config, promised: u64) -> Result<Newest> {
    let known = devices(folders, config);
    let members: Vec<Place> = known.iter().copied().take(config.mirrors.copies.max(1)).collect();
    for place in &members {
        // Random, and each copy's own.
        let id = config.id.wrapping_add(*place as u128 + 1);
        format_anew(&**disk, &folders.dir(*place), id, &config.log).map_err(failed)?;
    }
    let set = Set { epoch: Epoch { start: promised, change: 0 }, known, before: Vec::new(), members };
    let what = Super { log: config.id, promised, set: set.clone() };
    for folder in set.known.iter().filter_map(|p| folders.get(*p)) {
        set::write(&**disk, &folder, &what).map_err(|why| failed(format!("{}: {why}", folder.dir.display())))?;
    }
    Ok(Newest { id: config.id, set, promised, stale: false })
}

/// The devices that are there.
fn devices(folders: &Folders, config: &Config) -> Vec<Place> {
    let all: Vec<Place> = (0..folders.len() as Place).collect();
    let devices = config.mirrors.devices.as_ref().unwrap_or(&all);
    devices.iter().copied().filter(|d| all.contains(d)).collect()
}

/// Has a quorum promise the number of this start, beside the sets they store.
async fn promise(disk: &Arc<dyn Disk>, folders: &Folders, config: &Config, newest: &Newest, promised: u64) -> Result<()> {
    let mut have = Vec::new();
    for place in newest.set.stores() {
        if let Some(folder) = folders.get(place)
            && let Seen::Here(s) = set::read(&**disk, &folder.dir)
            && s.log == newest.id
        {
            let what = Super { promised, ..s };
            // One by one: each repeats its own.
            let has = |have: &[Place]| !have.is_empty();
            set::store(disk, folders, &[place], &what, has, config.log.blocking, &Default::default()).await.then(|| have.push(place));
        }
    }
    if newest.set.decided_by(&have) { Ok(()) } else { Err(no_majority()) }
}

fn no_majority() -> Error {
    Error::Failed("which copies of the metadata log count could not be made durable on a majority of its devices".into())
}

/// Makes the set of this start durable.
async fn decide(disk: &Arc<dyn Disk>, folders: &Folders, config: &Config, newest: &Newest, set: &Set, promised: u64) -> Result<()> {
    let what = Super { log: newest.id, promised, set: set.clone() };
    let enough = |have: &[Place]| set.decided_by(have);
    let counts = set::store(disk, folders, &set.stores(), &what, enough, config.log.blocking, &Default::default()).await;
    if counts { Ok(()) } else { Err(no_majority()) }
}

/// Opens the copies of the newest set; where it is not surely the newest, also others, when none of it is left.
async fn open_copies(
    disk: &Arc<dyn Disk>,
    folders: &Folders,
    config: &Config,
    newest: &Newest,
    out: &mut BTreeMap<Place, String>,
    rotten: &mut Vec<String>,
) -> Result<Vec<Copy>> {
    let mut copies = Vec::new();
    let others = newest.set.known.iter().filter(|p| newest.stale && !newest.set.members.contains(p));
    let mut first_error = None;
    for place in newest.set.members.iter().chain(others).copied() {
        let in_set = newest.set.members.contains(&place);
        if !in_set && !copies.is_empty() {
            break;
        }
        let folder = folders.get(place).filter(|f| f.is_there(&**disk));
        let is_there = folder.is_some();
        let opened = match folder.map(|f| f.dir) {
            None => Err("its folder is not there".to_string()),
            Some(dir) if !Log::exists(&**disk, &dir) => Err(format!("the metadata log in {} is missing", dir.display())),
            Some(dir) => {
                let mut found = Collect::default();
                match Log::open(disk.clone(), &dir, config.log.clone(), &mut found).await {
                    Ok((log, recovery)) => {
                        tracing::debug!(records = recovery.records, dir = %dir.display(), "a copy of the metadata log read");
                        Ok(Copy { place, log, found })
                    }
                    Err(e) => {
                        rotten.push(format!("{}: {e}", dir.display()));
                        Err(e.to_string())
                    }
                }
            }
        };
        match opened {
            Ok(copy) => copies.push(copy),
            Err(why) => {
                failpoint::reached("wal.copy_unreadable");
                tracing::warn!(place, %why, "a copy of the metadata log cannot be read");
                first_error.get_or_insert(why.clone());
                if !is_there {
                    out.insert(place, why);
                }
            }
        }
    }
    match first_error {
        Some(_) if copies.is_empty() && rotten.len() > 1 => Err(none_whole(rotten)),
        Some(why) if copies.is_empty() => Err(Error::Failed(why)),
        _ => Ok(copies),
    }
}

/// Takes out the copy that has everything the others have, if its records can be read; else the next one. What was acknowledged is on two of them, or on
/// their only one, so that one of those left has it as long as fewer are lost than that.
async fn first_whole(
    copies: &mut Vec<Copy>,
    folders: &Folders,
    restage: &Restage<'_>,
    out: &mut BTreeMap<Place, String>,
    rotten: &mut Vec<String>,
) -> Result<(Copy, Replayed)> {
    let several = copies.len() > 1 || !rotten.is_empty();
    loop {
        let copy = copies.remove(longest(copies));
        let why = match copy.found.replay(&copy.log, restage).await {
            Ok(replayed) => return Ok((copy, replayed)),
            Err(Error::Failed(why)) => why,
            Err(e) => return Err(e),
        };
        failpoint::reached("wal.copy_rotten");
        let why = format!("{}: {why}", folders.dir(copy.place).display());
        tracing::error!(%why, "a copy of the metadata log is not whole");
        rotten.push(why.clone());
        // It is filled anew when nothing of it is under way any more.
        if let Err(e) = copy.log.close().await {
            out.insert(copy.place, e.to_string());
        }
        if copies.is_empty() {
            return Err(if several { none_whole(rotten) } else { Error::Failed(why) });
        }
    }
}

fn none_whole(rotten: &[String]) -> Error {
    Error::Failed(format!("no copy of the metadata log is whole: {}", rotten.join("; ")))
}

/// The copy that has everything the others have.
fn longest(copies: &[Copy]) -> usize {
    // The first of those that are equal.
    let best = copies.iter().enumerate().max_by_key(|(i, c)| (c.found.last(), usize::MAX - i));
    best.map(|(i, _)| i).expect("a start without copies was refused")
}

/// Makes a copy equal to the best one where it lacks only the end. `None`: its records are others.
async fn equal(best: &Copy, copy: Copy, dir: &std::path::Path) -> std::result::Result<Option<Arc<Member>>, String> {
    let (last, end) = (copy.found.last(), best.found.last());
    let mut lives = copy.found.lives();
    if last != end {
        // An empty copy takes them all: together they are all a reader needs.
        let from = if copy.found.0.is_empty() { Some(0) } else { best.found.0.iter().rposition(|f| f.key == last).map(|at| at + 1) };
        let Some(from) = from else {
            // Nothing of it may be under way when it is opened again.
            copy.log.close().await.map_err(|e| e.to_string())?;
            return Ok(None);
        };
        let missing = &best.found.0[from..];
        failpoint::reached("wal.copy_lacks_end");
        tracing::info!(records = missing.len(), dir = %dir.display(), "a copy of the metadata log lacks its end, which is written to it");
        copy_tail(&best.log, missing, &copy.log, &mut lives).await?;
    }
    Ok(Some(Member::new(copy.place, dir.to_path_buf(), copy.log, lives, end.number)))
}
