//! A start: which copies count, which has the longest tail, and making the others its equals.
//!
//! 1. Read what every folder's device says of the copies. Without a quorum of the known devices the start is refused.
//! 2. Have a quorum promise the number of this start (where there is one device, step 5 alone does it).
//! 3. Open the copies of the newest set. The one with the last name, by (epoch, number), has everything that was acknowledged.
//! 4. To copies that end earlier in the same records, the missing ones are written.
//! 5. A set of those that are now equal is made durable on a quorum. Only then is anything written.
//!
//! What always holds: a copy outside the newest set is not read; nothing is changed before step 1 has passed.
//! What it leaves out: filling copies anew ([`super::fill`]); the log does that when it is open, before anybody is served where there is but one copy.

use super::super::Config;
use super::super::recover::{Collect, Restage};
use super::super::wal::State;
use super::Doubt;
use super::fill::{copy_tail, format_anew};
use super::member::Member;
use super::set::{self, Epoch, Judged, Place, Seen, Set, Super};
use crate::{Error, Result};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_osd::log::Log;
use std::collections::BTreeMap;
use std::path::PathBuf;
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
pub async fn start(disk: &Arc<dyn Disk>, dirs: &[PathBuf], config: &Config, state_index: u64, restage: &Restage<'_>) -> Result<Started> {
    let seen: Vec<Seen> = dirs.iter().map(|d| set::read(&**disk, d)).collect();
    let newest = choose(disk, dirs, config, state_index, &seen)?;
    let mut notes = Vec::new();
    if newest.stale {
        failpoint::reached("wal.stale_start");
        config.mirrors.doubt(Doubt::Stale)?;
        notes.push("the metadata log was started without a majority of its devices: what was acknowledged after the copies at hand were left out is lost".into());
    }
    let promised = newest.promised + if newest.stale { STARTS_SKIPPED } else { 1 };
    let mut known = known(&newest.set.known, dirs, config);
    if newest.stale {
        // From now on those decide that are at hand.
        known.retain(|p| {
            config.mirrors.present.as_ref().is_none_or(|there| there.contains(p))
                && !matches!(seen.get(*p as usize), Some(Seen::Unreadable(_)) | None)
        });
    }
    if known.len() > 1 && !newest.stale {
        promise(disk, dirs, config, &newest, promised).await?;
    }
    let mut out = BTreeMap::new();
    let mut copies = open_copies(disk, dirs, config, &newest, &mut out).await?;
    let best = longest(&copies);
    let state = copies[best].found.replay(&copies[best].log, restage).await?;
    let best = copies.swap_remove(best);
    if copies.is_empty() && newest.set.members.len() > 2 {
        failpoint::reached("wal.one_of_many");
        config.mirrors.doubt(Doubt::LastMoment)?;
        notes.push(format!(
            "of {} copies of the metadata log one could be read: what was acknowledged in the very last moment may be missing from it",
            newest.set.members.len()
        ));
    }
    let last = best.found.last();
    let mut members = Vec::new();
    for copy in copies {
        let place = copy.place;
        match equal(&best, copy, &dirs[place as usize]).await {
            Ok(Some(member)) => members.push(member),
            // It has other records: it is filled anew, as a spare.
            Ok(None) => {}
            Err(why) => drop(out.insert(place, why)),
        }
    }
    let lives = best.found.lives();
    members.push(Member::new(best.place, dirs[best.place as usize].clone(), best.log, lives, last.number));
    members.sort_by_key(|m| m.place);
    let places = members.iter().map(|m| m.place).collect();
    let set = Set { epoch: Epoch { start: promised, change: 1 }, known, members: places };
    decide(disk, dirs, config, &newest, &set, promised).await?;
    Ok(Started { members, state, set, id: newest.id, promised, out, notes })
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

/// What is to be recovered; makes an empty log where it may.
fn choose(disk: &Arc<dyn Disk>, dirs: &[PathBuf], config: &Config, state_index: u64, seen: &[Seen]) -> Result<Newest> {
    let first = dirs[0].display();
    let judged = set::judge(seen);
    if config.mirrors.behind_state {
        // Whatever logs there are belong to what the state replaces.
        let promised = if let Judged::Newest { promised, .. } = &judged { promised + STARTS_SKIPPED } else { 0 };
        return format(disk, dirs, config, promised);
    }
    match judged {
        Judged::Never if config.create && state_index == 0 => format(disk, dirs, config, 0),
        Judged::Never => Err(Error::Failed(format!("the metadata log in {first} is missing"))),
        Judged::Unknown(why) => Err(Error::Failed(format!("no device tells which copies of the metadata log count: {why}"))),
        Judged::Newest { log, set, promised, quorum } => {
            if !quorum && !config.mirrors.accept_stale {
                let there = set.known.iter().filter(|p| matches!(seen.get(**p as usize), Some(Seen::Here(s)) if s.log == log)).count();
                return Err(Error::Failed(format!(
                    "{there} of {} devices tell which copies of the metadata log are the newest, and a majority must: bring back a device that is missing, \
                     or start with --accept-stale, which takes the newest copy at hand and loses whatever was acknowledged after it was left out",
                    set.known.len()
                )));
            }
            Ok(Newest { id: log, set, promised, stale: !quorum })
        }
    }
}

/// Makes an empty log: its copies first, then what says that they are.
fn format(disk: &Arc<dyn Disk>, dirs: &[PathBuf], config: &Config, promised: u64) -> Result<Newest> {
    let known = known(&[], dirs, config);
    let members: Vec<Place> = known.iter().copied().take(config.mirrors.copies.max(1)).collect();
    for place in &members {
        // Random, and each copy's own.
        let id = config.id.wrapping_add(*place as u128 + 1);
        format_anew(&**disk, &dirs[*place as usize], id, &config.log).map_err(failed)?;
    }
    let set = Set { epoch: Epoch { start: promised, change: 0 }, known, members };
    let what = Super { log: config.id, promised, set: set.clone() };
    for place in &set.known {
        set::write(&**disk, &dirs[*place as usize], &what).map_err(failed)?;
    }
    Ok(Newest { id: config.id, set, promised, stale: false })
}

/// The known devices: those there were, and those that came. None is forgotten by itself: it may only be away.
fn known(before: &[Place], dirs: &[PathBuf], config: &Config) -> Vec<Place> {
    let all: Vec<Place> = (0..dirs.len() as Place).collect();
    let devices = config.mirrors.devices.as_ref().unwrap_or(&all);
    let fresh = devices.iter().copied().filter(|d| !before.contains(d) && (*d as usize) < dirs.len());
    before.iter().copied().chain(fresh).collect()
}

/// Has a quorum promise the number of this start, beside the sets they store.
async fn promise(disk: &Arc<dyn Disk>, dirs: &[PathBuf], config: &Config, newest: &Newest, promised: u64) -> Result<()> {
    let mut have = Vec::new();
    for place in &newest.set.known {
        if let Some(dir) = dirs.get(*place as usize)
            && let Seen::Here(s) = set::read(&**disk, dir)
            && s.log == newest.id
        {
            let what = Super { promised, ..s };
            let writing = Default::default();
            let present = config.mirrors.present.as_deref();
            // One by one: each repeats its own.
            set::store(disk, dirs, &[*place], present, &what, config.log.blocking, &writing).await.then(|| have.push(*place));
        }
    }
    if set::is_quorum(&newest.set.known, &have) { Ok(()) } else { Err(no_majority()) }
}

fn no_majority() -> Error {
    Error::Failed("which copies of the metadata log count could not be made durable on a majority of its devices".into())
}

/// Makes the set of this start durable: on a quorum of the devices known before, then on one of those known from now on.
async fn decide(disk: &Arc<dyn Disk>, dirs: &[PathBuf], config: &Config, newest: &Newest, set: &Set, promised: u64) -> Result<()> {
    let what = Super { log: newest.id, promised, set: set.clone() };
    let present = config.mirrors.present.as_deref();
    let store = |known: Vec<Place>| {
        let (disk, what) = (disk.clone(), what.clone());
        async move { set::store(&disk, dirs, &known, present, &what, config.log.blocking, &Default::default()).await }
    };
    let before = store(newest.set.known.clone()).await;
    let fresh: Vec<Place> = set.known.iter().copied().filter(|p| !newest.set.known.contains(p)).collect();
    for place in fresh {
        store(vec![place]).await;
    }
    if before || newest.stale { Ok(()) } else { Err(no_majority()) }
}

/// Opens the copies of the newest set; where it is not surely the newest, also others, when none of it is left.
async fn open_copies(
    disk: &Arc<dyn Disk>,
    dirs: &[PathBuf],
    config: &Config,
    newest: &Newest,
    out: &mut BTreeMap<Place, String>,
) -> Result<Vec<Copy>> {
    let mut copies = Vec::new();
    let others = newest.set.known.iter().filter(|p| newest.stale && !newest.set.members.contains(p));
    let mut first_error = None;
    for place in newest.set.members.iter().chain(others).copied() {
        let in_set = newest.set.members.contains(&place);
        if !in_set && !copies.is_empty() {
            break;
        }
        let opened = match dirs.get(place as usize).filter(|_| config.mirrors.present.as_ref().is_none_or(|p| p.contains(&place))) {
            None => Err("its folder is not there".to_string()),
            Some(dir) if !Log::exists(&**disk, dir) => Err(format!("the metadata log in {} is missing", dir.display())),
            Some(dir) => {
                let mut found = Collect::default();
                match Log::open(disk.clone(), dir, config.log.clone(), &mut found).await {
                    Ok((log, recovery)) => {
                        tracing::debug!(records = recovery.records, dir = %dir.display(), "a copy of the metadata log read");
                        Ok(Copy { place, log, found })
                    }
                    Err(e) => Err(e.to_string()),
                }
            }
        };
        match opened {
            Ok(copy) => copies.push(copy),
            Err(why) => {
                failpoint::reached("wal.copy_unreadable");
                tracing::warn!(place, %why, "a copy of the metadata log cannot be read");
                first_error.get_or_insert(why.clone());
                if config.mirrors.present.as_ref().is_some_and(|p| !p.contains(&place)) {
                    out.insert(place, why);
                }
            }
        }
    }
    match first_error {
        Some(why) if copies.is_empty() => Err(Error::Failed(why)),
        _ => Ok(copies),
    }
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
