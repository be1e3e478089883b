//! The set of copies in force, as every known device stores it, and what a start may conclude from the ones it could read.
//!
//! ```text
//!  0   8  magic "HFSTMIRR"
//!  8   4  version (1)
//! 12   4  length of all, bytes
//! 16  16  identity of the log, drawn when it was made
//! 32   8  promised: the number of the newest start this device has seen
//! 40   8  epoch: number of the start that made the set
//! 48   4  epoch: number of the change within that start
//! 52   2  known devices, K
//! 54   2  members, M
//! 56   2  version 2 only: devices known before, B; where there are none, version 1 is written, which has neither this nor the list
//!  …  2K  the known devices
//!  …  2M  the members; some of the known devices
//!  …  2B  version 2 only: the devices known before
//!  …   4  CRC-32C of all before
//! ```
//! Numbers are little-endian; a device is named by the place of its folder in the cluster file. Valid: length, magic, checksum; a higher
//! version is refused before anything that follows it is looked at. The file is replaced atomically.
//!
//! What always holds: quorums of one set of known devices meet. The known devices change by a set that names those before too and needs a
//! quorum of each; whoever has a quorum of the old ones sees it. A start first makes a quorum promise its number, so that sets of two
//! starts never have the same epoch; the highest epoch read from a quorum is, or comes after, every set that ever counted.

use super::folders::{Folder, Folders};
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_osd::log::Blocking;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub const FILE: &str = "mirrors";
const MAGIC: &[u8; 8] = b"HFSTMIRR";
/// Of a set whose known devices change.
const VERSION: u32 = 2;
/// Of all others.
const STEADY: u32 = 1;
const HEAD: usize = 56;
/// What version 2 has more in its head.
const HEAD_MORE: usize = 2;
/// More folders than one process can have.
const PLACES_MAX: usize = 1024;

/// A device, by the place of its folder among those the log was opened with.
pub type Place = u16;

/// Which set: by the start that made it, and the change within it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    pub start: u64,
    pub change: u32,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.start, self.change)
    }
}

/// Which copies count.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    pub epoch: Epoch,
    /// Devices that store the set; a quorum of them decides.
    pub known: Vec<Place>,
    /// Devices known until this set counts: a quorum of them too. None where they do not change.
    pub before: Vec<Place>,
    /// Devices whose copies are whole.
    pub members: Vec<Place>,
}

impl Set {
    /// Copies that must have a record before it is acknowledged.
    pub fn need(&self) -> usize {
        self.members.len().min(2)
    }

    /// Devices that store it.
    pub fn stores(&self) -> Vec<Place> {
        let only_before = self.before.iter().filter(|b| !self.known.contains(b));
        self.known.iter().chain(only_before).copied().collect()
    }

    /// Whether it counts once these have it; and whether these tell that it is the newest.
    pub fn decided_by(&self, have: &[Place]) -> bool {
        is_quorum(&self.known, have) && (self.before.is_empty() || is_quorum(&self.before, have))
    }
}

/// What one device stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Super {
    pub log: u128,
    pub promised: u64,
    pub set: Set,
}

/// What was found on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Absent,
    Unreadable(String),
    Here(Super),
}

impl Super {
    pub fn encode(&self) -> Vec<u8> {
        let (known, members, before) = (&self.set.known, &self.set.members, &self.set.before);
        let (version, more) = if before.is_empty() { (STEADY, 0) } else { (VERSION, HEAD_MORE) };
        let len = HEAD + more + 2 * (known.len() + members.len() + before.len()) + 4;
        let mut b = Vec::with_capacity(len);
        b.extend_from_slice(MAGIC);
        b.extend_from_slice(&version.to_le_bytes());
        b.extend_from_slice(&(len as u32).to_le_bytes());
        b.extend_from_slice(&self.log.to_le_bytes());
        b.extend_from_slice(&self.promised.to_le_bytes());
        b.extend_from_slice(&self.set.epoch.start.to_le_bytes());
        b.extend_from_slice(&self.set.epoch.change.to_le_bytes());
        b.extend_from_slice(&(known.len() as u16).to_le_bytes());
        b.extend_from_slice(&(members.len() as u16).to_le_bytes());
        if more > 0 {
            b.extend_from_slice(&(before.len() as u16).to_le_bytes());
        }
        known.iter().chain(members).chain(before).for_each(|p| b.extend_from_slice(&p.to_le_bytes()));
        let crc = crc32c(&b);
        b.extend_from_slice(&crc.to_le_bytes());
        b
    }

    pub fn decode(b: &[u8]) -> Result<Self, String> {
        fn at<const N: usize>(b: &[u8], from: usize) -> Option<[u8; N]> {
            b.get(from..from.checked_add(N)?)?.try_into().ok()
        }
        let short = || "it is cut short".to_string();
        if at(b, 0) != Some(*MAGIC) {
            return Err("it does not begin as one".into());
        }
        let version = u32::from_le_bytes(at(b, 8).ok_or_else(short)?);
        if version > VERSION {
            return Err(format!("it was written by a newer program (version {version})"));
        }
        let len = u32::from_le_bytes(at(b, 12).ok_or_else(short)?) as usize;
        if version == 0 || len != b.len() || len < HEAD + 4 {
            return Err("wrong version or length".into());
        }
        let crc = u32::from_le_bytes(at(b, len - 4).ok_or_else(short)?);
        if crc != crc32c(&b[..len - 4]) {
            return Err("wrong checksum".into());
        }
        let count = |from| Ok::<_, String>(u16::from_le_bytes(at(b, from).ok_or_else(short)?) as usize);
        let (known, members) = (count(52)?, count(54)?);
        let (before, head) = if version == STEADY { (0, HEAD) } else { (count(HEAD)?, HEAD + HEAD_MORE) };
        if known > PLACES_MAX || before > PLACES_MAX || head + 2 * (known + members + before) + 4 != len {
            return Err("wrong number of devices".into());
        }
        let places: Vec<Place> = b[head..len - 4].chunks_exact(2).map(|p| Place::from_le_bytes(p.try_into().expect("two bytes"))).collect();
        let (known, others) = places.split_at(known);
        let (members, before) = others.split_at(members);
        let epoch =
            Epoch { start: u64::from_le_bytes(at(b, 40).ok_or_else(short)?), change: u32::from_le_bytes(at(b, 48).ok_or_else(short)?) };
        let unique = |p: &[Place]| p.iter().enumerate().all(|(i, x)| !p[..i].contains(x));
        if known.is_empty() || !unique(known) || !unique(members) || !unique(before) || !members.iter().all(|m| known.contains(m)) {
            return Err("a member that is not known".into());
        }
        Ok(Super {
            log: u128::from_le_bytes(at(b, 16).ok_or_else(short)?),
            promised: u64::from_le_bytes(at(b, 32).ok_or_else(short)?),
            set: Set { epoch, known: known.to_vec(), before: before.to_vec(), members: members.to_vec() },
        })
    }
}

/// Whether the devices at hand decide for the known ones: more than half of them, or half with the first one.
pub fn is_quorum(known: &[Place], have: &[Place]) -> bool {
    let n = known.iter().filter(|k| have.contains(k)).count();
    2 * n > known.len() || (2 * n == known.len() && n > 0 && have.contains(&known[0]))
}

/// What can be concluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// No device has ever had a log, or one was made and never started.
    Never,
    /// The newest set, and the highest number of a start that was promised. `quorum`: whether it is surely the newest.
    Newest { log: u128, set: Set, promised: u64, quorum: bool },
    /// No device says anything that can be read, but something is there.
    Unknown(String),
}

/// Concludes from what every folder's device says, by place.
pub fn judge(seen: &[Seen]) -> Judged {
    let here: Vec<(Place, &Super)> =
        seen.iter().enumerate().filter_map(|(i, s)| if let Seen::Here(s) = s { Some((i as Place, s)) } else { None }).collect();
    let Some((_, newest)) = here.iter().max_by_key(|(_, s)| s.set.epoch) else {
        let why = seen.iter().find_map(|s| if let Seen::Unreadable(why) = s { Some(why.clone()) } else { None });
        return why.map_or(Judged::Never, Judged::Unknown);
    };
    let promised = here.iter().map(|(_, s)| s.promised.max(s.set.epoch.start)).max().unwrap_or(0);
    if promised == 0 && newest.set.epoch == Epoch::default() {
        return Judged::Never;
    }
    // A device of another log, from before a restore, has no say.
    let have: Vec<Place> = here.iter().filter(|(_, s)| s.log == newest.log).map(|(p, _)| *p).collect();
    Judged::Newest { log: newest.log, set: newest.set.clone(), promised, quorum: newest.set.decided_by(&have) }
}

/// What the device of `dir` stores.
pub fn read(disk: &dyn Disk, dir: &Path) -> Seen {
    match disk.read_small(&dir.join(FILE)) {
        Ok(None) => Seen::Absent,
        Ok(Some(bytes)) => match Super::decode(&bytes) {
            Ok(s) => Seen::Here(s),
            Err(why) => Seen::Unreadable(format!("{}: {why}", dir.join(FILE).display())),
        },
        Err(e) => Seen::Unreadable(e.to_string()),
    }
}

/// The devices that are to be known: those that are and are `kept` (all, where nothing is said), then the others of `devices`.
pub fn wanted(known: &[Place], devices: &[Place], kept: Option<&[Place]>) -> Vec<Place> {
    let stays = known.iter().copied().filter(|p| kept.is_none_or(|kept| kept.contains(p)));
    let fresh = devices.iter().copied().filter(|p| !known.contains(p));
    stays.chain(fresh).take(PLACES_MAX).collect()
}

/// Stores it durably. Blocks.
pub fn write(disk: &dyn Disk, folder: &Folder, what: &Super) -> Result<(), String> {
    let there = || if folder.is_there(disk) { Ok(()) } else { Err("its folder is not there".to_string()) };
    there()?;
    disk.create_dir_all(&folder.dir).map_err(|e| e.to_string())?;
    disk.write_small(&folder.dir.join(FILE), &what.encode(), 0o600).map_err(|e| e.to_string())?;
    // It does not count on what took its place meanwhile.
    there()
}

/// Stores it on those devices that are there, at once; whether `enough` of them have it. A device that takes its time with an
/// earlier one is passed by: were both under way, the older could come out on top. Devices that have not answered when the others decide go on.
pub async fn store(
    disk: &Arc<dyn Disk>,
    folders: &Folders,
    places: &[Place],
    what: &Super,
    enough: impl Fn(&[Place]) -> bool,
    blocking: Blocking,
    writing: &Arc<Mutex<BTreeSet<Place>>>,
) -> bool {
    let mut tasks = tokio::task::JoinSet::new();
    let mut have = Vec::new();
    for place in places.iter().copied() {
        let Some(folder) = folders.get(place).filter(|f| f.present) else { continue };
        if !writing.lock().insert(place) {
            continue;
        }
        let (disk, what, writing) = (disk.clone(), what.clone(), writing.clone());
        let store = move || {
            let stored = write(&*disk, &folder, &what);
            writing.lock().remove(&place);
            if let Err(why) = &stored {
                failpoint::reached("wal.set_not_stored");
                tracing::warn!(dir = %folder.dir.display(), %why, "which copies of the metadata log count could not be stored here");
            }
            stored.is_ok().then_some(place)
        };
        match blocking {
            Blocking::Here => have.extend(store()),
            Blocking::Pool => drop(tasks.spawn_blocking(store)),
        }
    }
    while !enough(&have) {
        match tasks.join_next().await {
            Some(Ok(stored)) => have.extend(stored),
            Some(Err(_)) => {}
            None => return false,
        }
    }
    tasks.detach_all();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Super {
        let set = Set { epoch: Epoch { start: 3, change: 2 }, known: vec![0, 1, 2, 5], before: vec![], members: vec![1, 5] };
        Super { log: 77, promised: 4, set }
    }

    #[test]
    fn a_mirror_superblock_survives_both_ways_and_no_other_bytes_pass() {
        let mut changing = sample();
        changing.set.before = vec![0, 1, 2, 3];
        for (what, version, len) in [(sample(), 1, 72), (changing, 2, 82)] {
            let bytes = what.encode();
            assert_eq!((bytes.len(), bytes[8], Super::decode(&bytes)), (len, version, Ok(what)));
            for n in 0..bytes.len() {
                assert!(Super::decode(&bytes[..n]).is_err(), "cut at {n}");
                for bit in 0..8 {
                    let mut bad = bytes.clone();
                    bad[n] ^= 1 << bit;
                    assert!(Super::decode(&bad).is_err(), "byte {n} bit {bit}");
                }
            }
            let mut newer = bytes;
            newer[8] = 3;
            assert!(Super::decode(&newer[..16]).is_err_and(|e| e.contains("newer")));
        }
    }

    #[test]
    fn any_two_quorums_of_the_known_devices_meet() {
        for n in 1..=7u16 {
            let known: Vec<Place> = (0..n).collect();
            let subset = |bits: u32| known.iter().copied().filter(|p| bits >> p & 1 == 1).collect::<Vec<_>>();
            let all: Vec<_> = (0..1u32 << n).map(subset).filter(|s| is_quorum(&known, s)).collect();
            for a in &all {
                for b in &all {
                    assert!(a.iter().any(|p| b.contains(p)), "{a:?} and {b:?} of {n}");
                }
            }
            assert!(is_quorum(&known, &known) && !is_quorum(&known, &[]));
        }
        // Two devices: the first alone decides, the second alone does not.
        assert!(is_quorum(&[0, 1], &[0]) && !is_quorum(&[0, 1], &[1]));
        // Six devices lose any two.
        assert!(is_quorum(&[0, 1, 2, 3, 4, 5], &[2, 3, 4, 5]) && !is_quorum(&[0, 1, 2, 3, 4, 5], &[3, 4, 5]));
    }

    #[test]
    fn the_newest_set_is_known_only_from_a_quorum() {
        let s = |start, change, members: &[Place]| {
            let set = Set { epoch: Epoch { start, change }, known: vec![0, 1, 2], before: vec![], members: members.to_vec() };
            Seen::Here(Super { log: 1, promised: start, set })
        };
        let newest = |seen: &[Seen]| match judge(seen) {
            Judged::Newest { set, quorum, .. } => (set.members, quorum),
            other => panic!("{other:?}"),
        };
        assert_eq!(newest(&[s(2, 1, &[0, 1]), s(2, 2, &[1]), Seen::Absent]), (vec![1], true));
        assert_eq!(newest(&[Seen::Unreadable("x".into()), s(2, 2, &[1]), Seen::Absent]), (vec![1], false));
        assert_eq!(judge(&[Seen::Absent, Seen::Absent]), Judged::Never);
        assert!(matches!(judge(&[Seen::Absent, Seen::Unreadable("x".into())]), Judged::Unknown(_)));
        // Made, and never started: nothing can be in it.
        assert_eq!(judge(&[s(0, 0, &[0, 1]), Seen::Absent]), Judged::Never);
        // A device of the log from before a restore has no say, though it makes the number of starts go on.
        let mut other = sample();
        other.set = Set { epoch: Epoch { start: 9, change: 0 }, known: vec![0, 1, 2], before: vec![], members: vec![2] };
        let seen = [s(2, 1, &[0, 1]), s(2, 1, &[0, 1]), Seen::Here(Super { log: 1, ..other.clone() })];
        assert_eq!(newest(&seen).0, [2]);
        let seen = [s(2, 1, &[0, 1]), Seen::Here(Super { log: 9, ..other.clone() }), Seen::Here(Super { log: 9, ..other })];
        assert_eq!(newest(&seen), (vec![2], true));
    }

    /// Devices that store sets, and a process that changes which of them are known.
    struct World {
        rng: holdfast_objstore_base::sim::Rng,
        stored: Vec<Option<Super>>,
        /// The epoch of the newest set that counted.
        counted: Epoch,
        sets: std::collections::BTreeMap<Epoch, Set>,
        changes: u64,
    }

    impl World {
        fn some(&mut self, of: &[Place]) -> Vec<Place> {
            let all = self.rng.below(3) == 0;
            of.iter().copied().filter(|_| all || self.rng.below(4) > 0).collect()
        }

        /// Stores a set on some of those devices; whether it counts.
        fn store(&mut self, set: &Set, promised: u64, on: &[Place]) -> bool {
            let other = self.sets.insert(set.epoch, set.clone()).filter(|s| s != set);
            assert_eq!(other, None, "two sets of one epoch");
            let have = self.some(on);
            for p in &have {
                self.stored[*p as usize] = Some(Super { log: 1, promised, set: set.clone() });
            }
            let counts = set.decided_by(&have);
            if counts {
                self.counted = self.counted.max(set.epoch);
            }
            counts
        }

        /// A start that reads some of the devices; the set it goes on with.
        fn start(&mut self) -> Option<Set> {
            let all: Vec<Place> = (0..self.stored.len() as Place).collect();
            let there = self.some(&all);
            let see = |(p, s): (usize, &Option<Super>)| match s {
                Some(s) if there.contains(&(p as Place)) => Seen::Here(s.clone()),
                _ => Seen::Absent,
            };
            let seen: Vec<Seen> = self.stored.iter().enumerate().map(see).collect();
            let Judged::Newest { set, promised, quorum: true, .. } = judge(&seen) else { return None };
            assert!(set.epoch >= self.counted, "{} is taken for the newest, and {} counted", set.epoch, self.counted);
            let promised = promised + 1;
            let stores: Vec<Place> = set.stores().into_iter().filter(|p| matches!(seen[*p as usize], Seen::Here(_))).collect();
            let have = self.some(&stores);
            for p in &have {
                self.stored[*p as usize].as_mut().expect("it was seen").promised = promised;
            }
            if !set.decided_by(&have) {
                return None;
            }
            let set = Set { epoch: Epoch { start: promised, change: 1 }, ..set };
            let on: Vec<Place> = set.stores().into_iter().filter(|p| there.contains(p)).collect();
            self.store(&set, promised, &on).then_some(set)
        }

        /// A life: changes of the known devices, until something cannot be stored that must be.
        fn serve(&mut self, mut set: Set) {
            let promised = set.epoch.start;
            let mut change = set.epoch.change;
            for _ in 0..self.rng.below(8) {
                let mut next = set.clone();
                next.before = Vec::new();
                if set.before.is_empty() {
                    let n = self.stored.len() as u64;
                    next.known = (0..n as Place).filter(|_| self.rng.coin()).collect();
                    if next.known.is_empty() || next.known == set.known {
                        continue;
                    }
                    next.before = set.known.clone();
                    next.members = vec![next.known[0]];
                }
                change += 1;
                next.epoch.change = change;
                let on = next.stores();
                match self.store(&next, promised, &on) {
                    true => {
                        self.changes += u64::from(!next.before.is_empty());
                        set = next;
                    }
                    false if !next.before.is_empty() => {
                        change += 1;
                        let undone = Set { epoch: Epoch { change, ..set.epoch }, before: Vec::new(), ..set.clone() };
                        if !self.store(&undone, promised, &undone.stores()) {
                            return;
                        }
                        set = undone;
                    }
                    false => return,
                }
            }
        }
    }

    #[test]
    fn no_start_goes_on_with_an_older_set_however_the_known_devices_changed() {
        let (mut starts, mut changes) = (0, 0);
        for seed in 0..3000 {
            let first = Set { epoch: Epoch { start: 0, change: 0 }, known: vec![0, 1, 2], before: vec![], members: vec![0] };
            let stored = |p| (p < 3).then(|| Super { log: 1, promised: 1, set: first.clone() });
            let rng = holdfast_objstore_base::sim::Rng::new(seed);
            let stored = (0..6).map(stored).collect();
            let mut world = World { rng, stored, counted: first.epoch, sets: Default::default(), changes: 0 };
            for _ in 0..12 {
                if let Some(set) = world.start() {
                    starts += 1;
                    world.serve(set);
                }
            }
            changes += world.changes;
        }
        assert!(starts > 10_000 && changes > 3_000, "{starts} starts, {changes} changes");
    }
}
