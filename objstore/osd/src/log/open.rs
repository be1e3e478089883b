//! Making a log, and starting one: find the segments, load the checkpoint, judge the tail, seal it, go on in a fresh segment.
//!
//! What always holds: nothing is changed before everything was judged; the seal that ends a cut tail is stable, and what
//! was behind it is out of service, before the log answers its first append.

use super::checkpoint::{self, Slot};
use super::config::{Config, OnCorruption};
use super::error::{Fault, Recovery, Torn};
use super::format::head::{Head, KIND_MAX, KIND_SEAL};
use super::format::root::Root;
use super::format::segment::{Header, Slots, State as HeaderState, choose};
use super::format::{Bad, DATA_START, Location, Position, VERSION};
use super::recover::{Decided, Item, Judge, Next};
use super::scan::{Window, scan_segment};
use super::segment::{self, ROOT_FILE, Segment};
use super::state::{Active, Checkpoints, Counters, HeadWeight, InService, Shared, State};
use super::{Error, Log, Mark, Result};
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::BLOCK;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

/// What the owner of a log is told at a start.
pub trait Visitor: Send {
    /// At most once and before any record: the newest checkpoint. Records from `from_seq` on follow; some of them may be in
    /// the checkpoint already, so applying one again must change nothing. An error ends the start with [`Error::Refused`].
    fn checkpoint(&mut self, from_seq: u64, bytes: Bytes) -> std::result::Result<(), String>;
    /// Every record that counts, in order of sequence numbers.
    fn record(&mut self, record: Recovered<'_>) -> std::result::Result<(), String>;
}

/// A record found at a start; its payload can be read once the log is open.
#[derive(Debug, Clone, Copy)]
pub struct Recovered<'a> {
    pub kind: u8,
    pub seq: u64,
    pub epoch: u64,
    pub meta: &'a [u8],
    pub location: Location,
}

/// Lives left out after a segment was lost: more than one run of a log can give.
const LIVES_SKIPPED: u32 = 1 << 20;

/// The segment files of a folder, by what their headers say.
#[derive(Default)]
pub(super) struct Found {
    pub in_service: BTreeMap<u32, Arc<Segment>>,
    pub free: VecDeque<Arc<Segment>>,
    /// Ascending: the root's count must never pass a file that is not whole.
    pub raw: VecDeque<u32>,
    pub faults: Vec<Fault>,
}

impl Log {
    /// Makes an empty log in `dir` (made when missing). `id` must be random: it seeds every checksum. Blocks.
    pub fn format(disk: &dyn Disk, dir: &Path, id: u128, config: &Config) -> Result<()> {
        config.check()?;
        disk.create_dir_all(dir)?;
        let root = Root { log_id: id, segment_bytes: config.segment_bytes, epoch: 0, segments: 0, life_next: 1, checkpointed: false };
        Ok(disk.write_small(&dir.join(ROOT_FILE), &root.encode(), 0o644)?)
    }

    /// Whether `dir` holds a log (of any version).
    pub fn exists(disk: &dyn Disk, dir: &Path) -> bool {
        disk.exists(&dir.join(ROOT_FILE))
    }

    /// Starts a log: tells `visitor` what it holds, raises its open epoch, and goes on in a fresh segment. Where none can be
    /// had for want of room the log opens all the same, and appends answer `Full` until segments are retired.
    /// Errors before anything was changed: `NotALog`, `NewerFormat`, `Damaged`, `Refused`, `Io`. It must run within a runtime.
    pub async fn open(disk: Arc<dyn Disk>, dir: &Path, mut config: Config, visitor: &mut dyn Visitor) -> Result<(Log, Recovery)> {
        let root = read_root(&*disk, dir)?;
        config.segment_bytes = root.segment_bytes;
        config.check()?;
        let blocks = config.segment_blocks();
        let mut found = find_segments(&*disk, dir, &root, blocks).await?;
        let mut recovery = Recovery { faults: std::mem::take(&mut found.faults), ..Default::default() };
        let (checkpoints, newest) = load_checkpoints(&*disk, dir, &root, &mut recovery).await?;
        let from = match newest {
            Some(slot) => {
                visitor.checkpoint(slot.header.seq, slot.content).map_err(Error::Refused)?;
                Some(Mark { position: slot.header.position, seq: slot.header.seq })
            }
            None => None,
        };
        let tail = judge_all(&found, root.log_id, blocks, from, visitor, &mut recovery).await?;
        if config.on_corruption == OnCorruption::Refuse
            && let Some(fault) = recovery.faults.first()
        {
            return Err(Error::Damaged(fault.clone()));
        }
        recovery.epoch = root.epoch + 1;
        let lost = recovery.faults.iter().any(|f| matches!(f, Fault::Segment { .. }));
        let log = assemble(disk, dir, config, root, found, checkpoints, &tail, lost);
        settle(&log.0, tail, &mut recovery).await?;
        if log.0.config.segments_ahead > 0 {
            log.0.prepare_now();
        }
        Ok((log, recovery))
    }
}

pub(super) fn read_root(disk: &dyn Disk, dir: &Path) -> Result<Root> {
    let Some(bytes) = disk.read_small(&dir.join(ROOT_FILE))? else {
        return Err(Error::NotALog(format!("{} has no file '{ROOT_FILE}'", dir.display())));
    };
    match Root::decode(&bytes) {
        Ok(root) => Ok(root),
        Err(Bad::Newer(found)) => Err(Error::NewerFormat { found, known: VERSION }),
        Err(bad) => Err(Error::NotALog(format!("{}: {bad}", dir.join(ROOT_FILE).display()))),
    }
}

/// Opens every segment file and reads its header. Changes nothing.
pub(super) async fn find_segments(disk: &dyn Disk, dir: &Path, root: &Root, blocks: u32) -> Result<Found> {
    let mut found = Found::default();
    let numbers: std::collections::BTreeSet<u32> = disk.list(dir)?.iter().filter_map(|n| segment::number_of(n)).collect();
    for number in 0..root.segments {
        if !numbers.contains(&number) {
            failpoint::reached("osd.log.segment_missing");
            found.faults.push(Fault::Segment { number, why: "the file is missing".into() });
            found.raw.push_back(number);
        }
    }
    for number in numbers {
        let file = segment::open_existing(disk, dir, number)?;
        if file.len()? < blocks as u64 * BLOCK as u64 {
            if number < root.segments {
                failpoint::reached("osd.log.segment_short");
                found.faults.push(Fault::Segment { number, why: "the file is cut short".into() });
            } else {
                found.raw.push_back(number);
            }
            continue;
        }
        match identify(&*file, root.log_id, number, blocks).await {
            Ok(None) => found.raw.push_back(number),
            Ok(Some(header)) => {
                let segment = Arc::new(Segment { header, file });
                if header.state == HeaderState::Free {
                    found.free.push_back(segment);
                } else if let Some(other) = found.in_service.insert(header.life, segment) {
                    let why = format!("it has the same life ({}) as segment {}: one of them is a copy", header.life, other.header.number);
                    return Err(Error::Damaged(Fault::Segment { number, why }));
                }
            }
            Err(Bad::Newer(found)) => return Err(Error::NewerFormat { found, known: VERSION }),
            Err(bad) => {
                failpoint::reached("osd.log.segment_unreadable");
                found.faults.push(Fault::Segment { number, why: bad.to_string() })
            }
        }
    }
    found.raw.make_contiguous().sort_unstable();
    Ok(found)
}

/// What a segment is, from its two header slots and, where a slot is damaged, its first record. `None`: never in service.
pub(super) async fn identify(
    file: &dyn holdfast_objstore_base::disk::File,
    log_id: u128,
    number: u32,
    blocks: u32,
) -> std::result::Result<Option<Header>, Bad> {
    let mut window = Window::new(file, blocks);
    let mut slots = Vec::with_capacity(2);
    for slot in 0..2 {
        slots.push(match window.get(slot, 1).await {
            Ok(block) => Header::decode(&block),
            Err(bad) => Err(bad),
        });
    }
    if let Some(Bad::Newer(v)) = slots.iter().find_map(|s| s.as_ref().err().filter(|b| matches!(b, Bad::Newer(_)))) {
        return Err(Bad::Newer(*v));
    }
    let slots: [_; 2] = slots.try_into().expect("two slots");
    let chosen = choose(slots, |h| h.log_id == log_id && h.number == number && h.blocks == blocks && h.life > 0);
    if let Slots::Valid { header, other_torn: false } = chosen {
        return Ok(Some(header));
    }
    failpoint::reached("osd.log.header_torn");
    // The first record proves a life that no readable header tells of.
    let first = match window.get(DATA_START, 1).await.and_then(|b| Head::claimed_position(&b)) {
        Ok(claimed) => window.head(log_id, Position { life: claimed.life, block: DATA_START }).await.ok(),
        Err(_) => None,
    };
    let proven = first.map(|head| (head.location.position.life, head.seq));
    match (chosen, proven) {
        (Slots::Valid { header, .. }, Some((life, seq))) if life > header.life => {
            Ok(Some(Header { life, state: HeaderState::InService, generation: header.generation + 1, seq_floor: seq, ..header }))
        }
        (Slots::Valid { header, .. }, _) => Ok(Some(header)),
        (_, Some((life, seq))) => {
            Ok(Some(Header { log_id, number, life, state: HeaderState::InService, blocks, generation: 2, seq_floor: seq }))
        }
        (Slots::Blank, None) => Ok(None),
        (Slots::Unreadable(bad), None) => Err(bad),
    }
}

async fn load_checkpoints(disk: &dyn Disk, dir: &Path, root: &Root, recovery: &mut Recovery) -> Result<(Checkpoints, Option<Slot>)> {
    let mut slots = Vec::new();
    let mut why = None;
    for slot in 0..2 {
        match checkpoint::load(disk, dir, root.log_id, slot).await? {
            Ok(found) => slots.push(found),
            Err(Bad::Newer(found)) => return Err(Error::NewerFormat { found, known: VERSION }),
            Err(Bad::Blank) => {}
            Err(bad) => {
                failpoint::reached("osd.log.checkpoint_torn");
                why = Some(bad);
            }
        }
    }
    slots.sort_by_key(|s| s.header.generation);
    let newest = slots.pop();
    let older = slots.pop();
    if newest.is_none() && root.checkpointed {
        failpoint::reached("osd.log.checkpoint_lost");
        let why = why.map_or("both slots are blank".to_string(), |b| b.to_string());
        recovery.faults.push(Fault::Checkpoint { why });
    }
    let generation = newest.as_ref().map_or(0, |s| s.header.generation);
    let known = Checkpoints { generation, newest: newest.as_ref().map(|s| s.header.position), older: older.map(|s| s.header.position) };
    Ok((known, newest))
}

/// What the judging leaves to be done.
pub(super) struct Tail {
    /// Where to write a seal: the place and its number.
    pub cut: Option<(Position, u64)>,
    /// Lives that are out of service from now on.
    pub orphans: Vec<u32>,
    last_seq: u64,
    /// The least life the next segment may have, by the seal the log ends in when nothing is cut.
    sealed: Option<u32>,
    /// By life: the first record's number, the seal's, and the block behind the seal.
    scanned: BTreeMap<u32, Scanned>,
    from_seq: u64,
}

#[derive(Default, Clone, Copy)]
struct Scanned {
    first: Option<u64>,
    seal: Option<u64>,
    end: u32,
}

/// Hands decided items to the visitor and remembers what they say about segments.
struct Deliver<'a> {
    visitor: &'a mut dyn Visitor,
    recovery: &'a mut Recovery,
    scanned: BTreeMap<u32, Scanned>,
    last_seq: u64,
}

impl Deliver<'_> {
    fn record(&mut self, head: &Head) -> Result<()> {
        let position = head.location.position;
        let scanned = self.scanned.entry(position.life).or_default();
        scanned.first.get_or_insert(head.seq);
        scanned.end = position.block + head.location.blocks();
        if head.kind == KIND_SEAL {
            scanned.seal = Some(head.seq);
        }
        self.last_seq = head.seq;
        if head.kind > KIND_MAX {
            return Ok(());
        }
        self.recovery.records += 1;
        let record = Recovered { kind: head.kind, seq: head.seq, epoch: head.epoch, meta: &head.meta, location: head.location };
        self.visitor.record(record).map_err(Error::Refused)
    }

    fn drain(&mut self, judge: &mut Judge) -> Result<()> {
        while let Some(decided) = judge.decided() {
            match decided {
                Decided::Record(head) => self.record(&head)?,
                Decided::Fault(fault) => {
                    failpoint::reached("osd.log.corrupt_record");
                    self.recovery.faults.push(fault)
                }
            }
        }
        Ok(())
    }
}

pub(super) async fn judge_all(
    found: &Found,
    log_id: u128,
    blocks: u32,
    from: Option<Mark>,
    visitor: &mut dyn Visitor,
    recovery: &mut Recovery,
) -> Result<Tail> {
    let start = from.unwrap_or(Mark { position: Position { life: 0, block: DATA_START }, seq: 1 });
    recovery.scanned_from = start.seq;
    let mut judge = Judge::new(start.seq);
    let mut deliver = Deliver { visitor, recovery, scanned: BTreeMap::new(), last_seq: start.seq - 1 };
    let mut orphans = Vec::new();
    for (life, segment) in found.in_service.range(start.position.life..) {
        let at_checkpoint = *life == start.position.life;
        match judge.segment(*life, segment.header.seq_floor, at_checkpoint) {
            Next::Orphan => orphans.push(*life),
            Next::Scan => {
                deliver.scanned.entry(*life).or_default();
                let block = if at_checkpoint { start.position.block } else { DATA_START };
                scan_segment(&*segment.file, log_id, *life, blocks, block, &mut judge, |judge| deliver.drain(judge)).await?;
            }
        }
    }
    let durable = judge.durable();
    let mut sealed = judge.sealed();
    let mut cut = None;
    let mut torn: Option<Torn> = None;
    for item in judge.undecided() {
        match item {
            Item::Record(head) if cut.is_none() => {
                let segment = &found.in_service[&head.location.position.life];
                match Window::new(&*segment.file, blocks).payload_fault(&head).await {
                    None => deliver.record(&head)?,
                    Some(block) => {
                        failpoint::reached("osd.log.torn_payload");
                        cut = Some((head.location.position, head.seq));
                        let why = format!("block {block} of its payload was not written");
                        torn = Some(Torn { at: head.location.position, seq: head.seq, dropped: 0, why });
                    }
                }
            }
            Item::Gap(gap) if cut.is_none() => {
                cut = Some((gap.at, gap.seq.max(deliver.last_seq + 1)));
                if !gap.looks_clean() {
                    failpoint::reached("osd.log.torn_tail");
                    torn = Some(Torn { at: gap.at, seq: gap.seq, dropped: 0, why: gap.why.to_string() });
                }
            }
            Item::Record(head) => {
                failpoint::reached("osd.log.behind_a_cut");
                let (at, seq) = cut.expect("set above");
                let torn = torn.get_or_insert(Torn { at, seq, dropped: 0, why: "it was not written, though later ones were".into() });
                torn.dropped += (head.kind <= KIND_MAX) as u64;
            }
            Item::Gap(_) => {}
        }
    }
    if let Some((at, _)) = cut {
        sealed = None;
        // Everything behind the cut goes out of service with it.
        orphans.extend(deliver.scanned.keys().filter(|life| **life > at.life));
        deliver.scanned.retain(|life, _| *life <= at.life);
    }
    let (last_seq, scanned) = (deliver.last_seq, deliver.scanned);
    recovery.torn = torn;
    recovery.durable_seen = durable;
    recovery.last_seq = last_seq;
    recovery.orphans = orphans.len() as u32;
    Ok(Tail { cut, orphans, last_seq, sealed, scanned, from_seq: start.seq })
}

fn assemble(
    disk: Arc<dyn Disk>,
    dir: &Path,
    config: Config,
    root: Root,
    found: Found,
    checkpoints: Checkpoints,
    tail: &Tail,
    lost: bool,
) -> Log {
    let mut life_next = root.life_next.max(tail.sealed.unwrap_or(1));
    let mut seq_floor = tail.last_seq + 1;
    for segment in found.in_service.values().chain(&found.free) {
        life_next = life_next.max(segment.header.life + 1);
        seq_floor = seq_floor.max(segment.header.seq_floor);
    }
    if let Some(newest) = checkpoints.newest {
        life_next = life_next.max(newest.life + 1);
    }
    if lost {
        // A lost segment may have had any life given since the last start; none of them may come again.
        life_next += LIVES_SKIPPED;
    }
    let seq_next = match tail.cut {
        Some((_, seq)) => seq,
        // The segment that a seal names must go on with the very next number.
        None if tail.sealed == Some(life_next) => tail.last_seq + 1,
        None => seq_floor,
    };
    let segments = found
        .in_service
        .iter()
        .map(|(life, segment)| {
            let s = tail.scanned.get(life).copied().unwrap_or(Scanned {
                first: None,
                seal: Some(tail.from_seq.saturating_sub(1)),
                end: segment.header.blocks,
            });
            let sealed = Some(s.seal.unwrap_or(tail.last_seq));
            (*life, InService { segment: segment.clone(), first_seq: s.first, sealed, end: s.end.max(DATA_START) })
        })
        .collect();
    let state = State {
        segments,
        active: None,
        spare: None,
        free: found.free,
        raw: found.raw,
        // A file the root does not know yet is counted once it is whole.
        files: root.segments,
        preparing: false,
        supply: Default::default(),
        life_next,
        seq_next,
        in_flight: BTreeMap::new(),
        completed_max: seq_next - 1,
        durable: seq_next - 1,
        unflushed: Vec::new(),
        waiting: 0,
        watchers: 0,
        tasks: 0,
        writing: 0,
        failed: None,
        checkpoints,
        checkpointed: root.checkpointed,
    };
    let estimate = (config.cache_bytes / 1024).clamp(16, 1 << 20) as usize;
    let heads = quick_cache::sync::Cache::with(estimate, config.cache_bytes.max(1), HeadWeight, Default::default(), Default::default());
    Log(Arc::new(Shared {
        disk,
        dir: dir.to_path_buf(),
        id: root.log_id,
        epoch: root.epoch + 1,
        config,
        runtime: tokio::runtime::Handle::current(),
        domain: std::sync::OnceLock::new(),
        state: Mutex::new(state),
        changed: Notify::new(),
        turnstile: Semaphore::new(1),
        checkpointing: Semaphore::new(1),
        root_writes: Mutex::new(()),
        heads,
        counters: Counters::default(),
    }))
}

/// Writes what the judging decided, then puts a fresh segment into use.
async fn settle(shared: &Arc<Shared>, tail: Tail, recovery: &mut Recovery) -> Result<()> {
    shared.blocking(|s| s.write_root(|_| ())).await?;
    // What was readable may have been in a device's cache only; the seal says that it is stable.
    let mut files: Vec<Arc<Segment>> = Vec::new();
    for (_, s) in shared.state.lock().segments.iter().filter(|(life, _)| tail.scanned.contains_key(life)) {
        if !files.iter().any(|f| f.file.domain() == s.segment.file.domain()) {
            files.push(s.segment.clone());
        }
    }
    for segment in files {
        segment.file.flush().await?;
    }
    if let Some((at, _)) = tail.cut {
        seal_cut(shared, at).await?;
    }
    for life in &tail.orphans {
        failpoint::reached("osd.log.orphan_segment");
        let removed = shared.state.lock().segments.remove(life);
        if let Some(orphan) = removed {
            let seq_floor = shared.state.lock().seq_next;
            let free = orphan.segment.enter(*life, HeaderState::Free, seq_floor).await?;
            shared.state.lock().free.push_back(Arc::new(free));
        }
    }
    match shared.prepare().await {
        Ok((segment, _)) => {
            let segment = Arc::new(segment);
            let mut st = shared.state.lock();
            let in_service = InService { segment: segment.clone(), first_seq: None, sealed: None, end: 0 };
            st.segments.insert(segment.life(), in_service);
            st.active = Some(Active { segment, next_block: DATA_START });
        }
        Err(e) if segment::no_room(&e) => shared.state.lock().supply.starved = true,
        Err(e) => return Err(e),
    }
    let file = shared.state.lock().segments.last_key_value().map(|(_, s)| s.segment.file.clone());
    // Not a single segment: there is nothing to serve and no room to begin.
    let file = file.ok_or(Error::Full)?;
    shared.domain.get_or_init(|| file.domain());
    recovery.last_seq = shared.state.lock().seq_next - 1;
    Ok(())
}

/// Ends the cut segment with a seal at the cut, and makes it stable.
async fn seal_cut(shared: &Arc<Shared>, at: Position) -> Result<()> {
    let (segment, head) = {
        let mut st = shared.state.lock();
        let seq = st.seq_next; // the number expected at the cut
        st.seq_next += 1;
        st.completed_max = seq;
        st.durable = seq;
        let next_life = st.life_next;
        let s = st.segments.get_mut(&at.life).expect("a cut lies in a segment in service");
        s.sealed = Some(seq);
        s.end = at.block + 1;
        let mut meta = [0; 8];
        meta[..4].copy_from_slice(&next_life.to_le_bytes());
        let location = Location { position: at, head_blocks: 1, payload_bytes: 0 };
        let head = Head {
            kind: KIND_SEAL,
            epoch: shared.epoch,
            seq,
            durable: seq - 1,
            location,
            meta: Bytes::copy_from_slice(&meta),
            crcs: Arc::new([]),
        };
        (s.segment.clone(), head)
    };
    let mut block = AlignedBuf::copy_of(&head.encode(shared.id));
    block.set_len(BLOCK);
    segment.file.write_at(at.block as u64 * BLOCK as u64, vec![block.freeze()]).await?;
    segment.file.flush().await?;
    Ok(())
}
