//! Telling what a log's folder holds, in whatever state it is. Reads only.
//!
//! What always holds: every file of the log and every record in it is a line; what does not decode, though it once was
//! durable, is a line with an error at its offset. What a crash may leave (a torn tail, one torn slot of two) is told of and is no error.
//! What it leaves out: what the owner's records mean ([`Describe`]).

use super::format::head::{Head, KIND_MAX, KIND_SEAL};
use super::format::root::Root;
use super::format::segment::{Header, State};
use super::format::{Bad, DATA_START, Position};
use super::open::{self, Found, Recovered, Tail, Visitor};
use super::scan::Window;
use super::segment::{ROOT_FILE, Segment, number_of, path_of};
use super::{Fault, Mark, Recovery, Result, checkpoint};
use bytes::Bytes;
use holdfast_objstore_base::disk::{Disk, Open};
use holdfast_objstore_base::dump::{Line, Sink};
use holdfast_objstore_base::units::BLOCK;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the owner of a log knows of its records.
pub trait Describe: Sync {
    /// Whether `payload` is needed to tell of such a record.
    fn needs_payload(&self, kind: u8, meta: &[u8]) -> bool;
    /// Hands on `line`, completed, and further lines for what the record holds.
    fn record(&self, line: Line, kind: u8, meta: &[u8], payload: &[u8], sink: &mut Sink<'_>) -> io::Result<()>;
    /// The same for the content of a checkpoint.
    fn checkpoint(&self, line: Line, content: &[u8], sink: &mut Sink<'_>) -> io::Result<()>;
}

/// The root of the log in `dir`, without opening it.
pub fn identity(disk: &dyn Disk, dir: &Path) -> Result<Root> {
    open::read_root(disk, dir)
}

/// Tells of root, checkpoints, segments by life, and every record of each. An error is the sink's.
pub async fn dump(disk: &dyn Disk, dir: &Path, owner: &dyn Describe, sink: &mut Sink<'_>) -> io::Result<()> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(e) => return sink(Line::new("log", dir).bad(e)),
    };
    let Some(root) = root(disk, dir, &names, sink).await? else { return Ok(()) };
    let blocks = (root.segment_bytes / BLOCK as u64) as u32;
    let from = checkpoints(disk, dir, &root, owner, sink).await?;
    let mut dump = Dump { dir, log_id: root.log_id, blocks, owner, verdict: Verdict::default() };
    let found = dump.segments(disk, &root, &names, sink).await?;
    let mut recovery = Recovery::default();
    match open::judge_all(&found, root.log_id, blocks, from, &mut Nobody, &mut recovery).await {
        Ok(tail) => dump.verdict = Verdict::new(tail, recovery, from),
        Err(e) => sink(Line::new("log", dir).bad(e))?,
    }
    for (life, segment) in &found.in_service {
        dump.segment(*life, segment, sink).await?;
    }
    dump.ending(sink)
}

/// The root; where it cannot be had, what the segments say of it.
async fn root(disk: &dyn Disk, dir: &Path, names: &[String], sink: &mut Sink<'_>) -> io::Result<Option<Root>> {
    let line = Line::new("log-root", &dir.join(ROOT_FILE));
    let why = match disk.read_small(&dir.join(ROOT_FILE)) {
        Ok(Some(bytes)) => match Root::decode(&bytes) {
            Ok(r) if r.segment_bytes >= 4 * BLOCK as u64 && r.segment_bytes.is_multiple_of(BLOCK as u64) && r.segment_bytes >> 44 == 0 => {
                let line = line.show("log", format!("{:032x}", r.log_id)).with("epoch", r.epoch).with("segments", r.segments);
                let line = line.with("segment_bytes", r.segment_bytes).with("life_next", r.life_next).with("checkpointed", r.checkpointed);
                sink(line)?;
                return Ok(Some(r));
            }
            Ok(_) => "a segment length that cannot be".to_string(),
            Err(bad) => bad.to_string(),
        },
        Ok(None) => "it is missing".to_string(),
        Err(e) => e.to_string(),
    };
    let mut guess: Option<Root> = None;
    for number in names.iter().filter_map(|n| number_of(n)) {
        let Ok(file) = disk.open(&path_of(dir, number), Open::Existing) else { continue };
        let mut window = Window::new(&*file, 2);
        for slot in 0..2 {
            let Ok(h) = window.get(slot, 1).await.and_then(|b| Header::decode(&b)) else { continue };
            let root = guess.get_or_insert(Root {
                log_id: h.log_id,
                segment_bytes: h.blocks as u64 * BLOCK as u64,
                epoch: 0,
                segments: 0,
                life_next: 1,
                checkpointed: false,
            });
            root.segments = root.segments.max(number + 1);
        }
    }
    let line = line.bad(why);
    sink(match &guess {
        Some(r) => line.show("log_by_segments", format!("{:032x}", r.log_id)),
        None => line,
    })?;
    Ok(guess)
}

/// Tells of both slots; answers where the newest valid one lets a start begin.
async fn checkpoints(disk: &dyn Disk, dir: &Path, root: &Root, owner: &dyn Describe, sink: &mut Sink<'_>) -> io::Result<Option<Mark>> {
    let mut slots = Vec::new();
    for slot in 0..2 {
        let loaded = checkpoint::load(disk, dir, root.log_id, slot).await;
        slots.push((checkpoint::slot_path(dir, slot), loaded.unwrap_or_else(|e| Err(Bad::Unreadable(e.to_string())))));
    }
    let any = slots.iter().any(|s| s.1.is_ok());
    let mut newest: Option<(u64, Mark)> = None;
    for (path, loaded) in slots {
        let line = Line::new("checkpoint", &path).at(0);
        match loaded {
            Ok(slot) => {
                let h = slot.header;
                if newest.is_none_or(|n| h.generation > n.0) {
                    newest = Some((h.generation, Mark { position: h.position, seq: h.seq }));
                }
                let line = line.with("generation", h.generation).with("from_seq", h.seq).show("from", h.position);
                owner.checkpoint(line.with("bytes", h.content_bytes), &slot.content, sink)?;
            }
            Err(Bad::Blank) if any || !root.checkpointed => {}
            // The other slot is the one before it: what a crash while this was written leaves.
            Err(bad) if any || !root.checkpointed => sink(line.with("torn", bad.to_string()))?,
            Err(bad) => sink(line.bad(bad))?,
        }
    }
    Ok(newest.map(|n| n.1))
}

struct Nobody;

impl Visitor for Nobody {
    fn checkpoint(&mut self, _: u64, _: Bytes) -> std::result::Result<(), String> {
        Ok(())
    }
    fn record(&mut self, _: Recovered<'_>) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// What a start would decide.
#[derive(Default)]
struct Verdict {
    /// What was durable and is not readable, by where it begins.
    faults: Vec<(Position, String)>,
    /// From here on nothing counts.
    cut: Option<Position>,
    torn: Option<String>,
    /// Lives that an earlier recovery dropped, or this one would.
    orphans: BTreeSet<u32>,
    /// Where a start begins to read.
    from: Position,
}

impl Verdict {
    fn new(tail: Tail, recovery: Recovery, from: Option<Mark>) -> Self {
        let records = recovery.faults.into_iter().filter_map(|f| match &f {
            Fault::Records { at, .. } => Some((*at, f.to_string())),
            _ => None,
        });
        Self {
            faults: records.collect(),
            cut: tail.cut.map(|c| c.0),
            torn: recovery.torn.map(|t| t.why),
            orphans: tail.orphans.into_iter().collect(),
            from: from.map_or_else(Position::default, |m| m.position),
        }
    }
    fn counts(&self, at: Position) -> bool {
        self.cut.is_none_or(|cut| at < cut) && !self.orphans.contains(&at.life)
    }
}

struct Dump<'a> {
    dir: &'a Path,
    log_id: u128,
    blocks: u32,
    owner: &'a dyn Describe,
    verdict: Verdict,
}

impl Dump<'_> {
    /// Tells of every segment file that is not in service, and gathers those that are.
    async fn segments(&self, disk: &dyn Disk, root: &Root, names: &[String], sink: &mut Sink<'_>) -> io::Result<Found> {
        let mut found = Found::default();
        let there: BTreeSet<u32> = names.iter().filter_map(|n| number_of(n)).collect();
        for number in (0..root.segments).filter(|n| !there.contains(n)) {
            sink(Line::new("segment", &path_of(self.dir, number)).bad("the file is missing"))?;
        }
        for number in there {
            let line = Line::new("segment", &path_of(self.dir, number)).at(0).with("number", number);
            let opened = disk.open(&path_of(self.dir, number), Open::Existing).and_then(|f| Ok((f.len()?, f)));
            let (len, file) = match opened {
                Ok(f) => f,
                Err(e) => {
                    sink(line.bad(e))?;
                    continue;
                }
            };
            if len < self.blocks as u64 * BLOCK as u64 {
                let line = line.with("bytes", len);
                // A file the root does not count yet is one that was being made.
                sink(if number < root.segments { line.bad("the file is cut short") } else { line.with("state", "half made") })?;
                continue;
            }
            match open::identify(&*file, self.log_id, number, self.blocks).await {
                Ok(None) => sink(line.with("state", "never used"))?,
                Err(bad) => sink(line.bad(bad))?,
                Ok(Some(h)) if h.state == State::Free => {
                    sink(line.with("state", "free").with("life", h.life).with("generation", h.generation))?
                }
                Ok(Some(h)) if found.in_service.contains_key(&h.life) => {
                    sink(line.with("life", h.life).bad("it has the same life as another segment: one of them is a copy"))?
                }
                Ok(Some(header)) => drop(found.in_service.insert(header.life, Arc::new(Segment { header, file }))),
            }
        }
        Ok(found)
    }

    /// Tells of a segment in service and of all records in it.
    async fn segment(&self, life: u32, segment: &Segment, sink: &mut Sink<'_>) -> io::Result<()> {
        let path = path_of(self.dir, segment.header.number);
        let orphan = self.verdict.orphans.contains(&life);
        let line = Line::new("segment", &path).at(0).with("number", segment.header.number).with("state", "in service").with("life", life);
        let line = line.with("generation", segment.header.generation).with("seq_floor", segment.header.seq_floor);
        sink(if orphan { line.with("dropped", true) } else { line })?;
        let mut window = Window::new(&*segment.file, self.blocks);
        let (mut block, mut gap) = (DATA_START, None::<(u32, Bad)>);
        while block < self.blocks {
            let at = Position { life, block };
            match window.head(self.log_id, at).await {
                Ok(head) => {
                    self.gap(&path, life, gap.take(), Some(&head), sink)?;
                    block += head.location.blocks();
                    let end = head.kind == KIND_SEAL;
                    self.record(&path, &mut window, &head, sink).await?;
                    if end {
                        return Ok(());
                    }
                }
                Err(bad) => {
                    gap.get_or_insert((block, bad));
                    block += 1;
                }
            }
        }
        self.gap(&path, life, gap, None, sink)
    }

    /// Tells of blocks where a record should begin, and none does. `next`: what was found behind them.
    fn gap(&self, path: &PathBuf, life: u32, gap: Option<(u32, Bad)>, next: Option<&Head>, sink: &mut Sink<'_>) -> io::Result<()> {
        let Some((block, why)) = gap else { return Ok(()) };
        let at = Position { life, block };
        let line = Line::new("gap", path).at(block as u64 * BLOCK as u64).show("at", at);
        if let Some((_, fault)) = self.verdict.faults.iter().find(|f| f.0 == at) {
            return sink(line.bad(fault));
        }
        // What a start no longer reads was whole when the checkpoint was made.
        if next.is_some() && at < self.verdict.from && self.verdict.counts(at) {
            return sink(line.bad(why));
        }
        match &self.verdict.torn {
            Some(torn) if self.verdict.cut == Some(at) => sink(line.named("torn-tail").with("why", torn)),
            _ => Ok(()),
        }
    }

    async fn record(&self, path: &Path, window: &mut Window<'_>, head: &Head, sink: &mut Sink<'_>) -> io::Result<()> {
        let at = head.location.position;
        let counts = self.verdict.counts(at);
        let line = Line::new(if head.kind == KIND_SEAL { "seal" } else { "record" }, path).at(at.block as u64 * BLOCK as u64);
        let line = line.show("at", at).with("seq", head.seq).with("epoch", head.epoch).with("durable", head.durable);
        let mut line = if counts { line } else { line.with("dropped", true) };
        if head.kind > KIND_MAX {
            return sink(line);
        }
        line = line.with("payload_bytes", head.location.payload_bytes);
        if let Some(n) = window.payload_fault(head).await {
            let why = format!("block {n} of its payload does not match its checksum");
            let offset = (at.block + head.location.head_blocks + n) as u64 * BLOCK as u64;
            line = if counts { line.with("bad_block_offset", offset).bad(why) } else { line.with("torn", why) };
        }
        let payload = match self.owner.needs_payload(head.kind, &head.meta) {
            false => Bytes::new(),
            true => match window.get(at.block + head.location.head_blocks, head.location.blocks() - head.location.head_blocks).await {
                Ok(all) => all.slice(..head.location.payload_bytes as usize),
                Err(bad) => return sink(line.bad(bad)),
            },
        };
        self.owner.record(line, head.kind, &head.meta, &payload, sink)
    }

    /// What the verdict names and no segment in service showed.
    fn ending(&self, sink: &mut Sink<'_>) -> io::Result<()> {
        match (&self.verdict.cut, &self.verdict.torn) {
            (Some(cut), torn) => sink(Line::new("log-end", self.dir).show("at", cut).with("torn", torn)),
            (None, _) => sink(Line::new("log-end", self.dir)),
        }
    }
}
