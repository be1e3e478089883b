//! Rewriting worn stripes: what lives of stripes that overwrites have mostly killed is copied into new ones, so that the old end whole.
//!
//! What always holds: nothing is rewritten while there is room and more than half of what is stored lives, so debt is at most as much again as
//! the data. A pass begins with a choice: the deadest stripes, for they give most for the work, and no more of them than there is room to
//! copy; only users' writes on the way keep one of them from ending with the pass. A copy is durable before it is committed, and the
//! commit moves only runs that are still where they were copied from.
//! What it leaves out: which maps to look at (`meta/core`'s passes); slowing writers meanwhile (the object cluster's pace); keeping users
//! out of the room that copies need (the OSDs').

use super::super::core::Core;
use super::packs::{Fault, PackWrite, Packer, READS_AT_ONCE};
use futures::future::join_all;
use holdfast_meta_core::read::{self, Cursor, Stats, Victims, WornBounds, WornRun};
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::meta::{Command, Relocate, Reply, Run};
use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Pieces of maps one look takes.
const PIECES: usize = 4096;
/// Records of stripes one look takes.
const STRIPES: usize = 1024;
/// Runs of one new stripe: 4 KiB each fill it.
const RUNS: usize = 1024;
/// Looks for one new stripe.
const LOOKS_MAX: usize = 64;
/// Of a stripe, in thousandths: worn below this while there is room.
const WORN: u32 = 500;
/// Above this much life a stripe is never worth its rewriting.
const WORN_MAX: u32 = 970;
/// Room is short when less than one part of this many is free: stripes deader than the average are rewritten …
const SHORT_PARTS: u64 = 12;
/// … and with less than this, whatever gives anything.
const TIGHT_PARTS: u64 = 24;
/// Also with less than this, in which users' writes may wait already.
const TIGHT_BYTES: u64 = 16 << 20;
/// Of a new stripe, when larger ones find no room.
const COPY_BYTES_MIN: u64 = 256 << 10;
/// Less than a part of this many of what is stored is not worth a pass.
const WORTH_PARTS: u64 = 64;

/// Where the pass under way is, and what came of the last one.
pub(super) struct Worn {
    pass: Option<Pass>,
    /// Of a new stripe, at most.
    bytes_max: u64,
}

/// After a pass that gave nothing: the least that was dead since, and how much alive its stripes might be. Only more is a reason to begin anew.
#[derive(Default)]
pub(crate) struct Rest(Mutex<Option<(u64, u32)>>);

impl Rest {
    fn holds(&self, dead: u64, below: u32) -> bool {
        let mut rest = self.0.lock();
        let Some((least, as_far_as)) = &mut *rest else { return false };
        *least = dead.min(*least);
        below <= *as_far_as && dead <= *least + STRIPE_BYTES_MAX as u64
    }
}

/// Over all maps, for the stripes that were chosen.
struct Pass {
    cursor: Cursor,
    /// How much alive they might be.
    below: u32,
    victims: BTreeSet<StripeId>,
    /// What lives of them and is not copied yet.
    left: u64,
    /// Runs moved.
    moved: u64,
}

impl Default for Worn {
    fn default() -> Self {
        Self { pass: None, bytes_max: STRIPE_BYTES_MAX as u64 }
    }
}

/// What rewriting could give back, if it is worth a pass.
fn worth(s: &Stats) -> u64 {
    let dead = s.dead_bytes();
    if dead < (STRIPE_BYTES_MAX as u64).max(s.bytes / WORTH_PARTS) { 0 } else { dead }
}

impl Core {
    /// Bytes that rewriting is about to give back while room is short.
    pub(crate) fn worn_bytes(&self) -> u64 {
        if !self.work.packs() {
            return 0;
        }
        let dead = self.view(|kv| read::stats(kv)).map_or(0, |s| worth(&s));
        if self.work.worn_rest.holds(dead, WORN_MAX) { 0 } else { dead }
    }
}

impl Packer {
    /// Below how many thousandths of life stripes are to be rewritten now; `None`: there is no need.
    pub(super) fn worn_below(&self) -> Option<u32> {
        let stats = self.core.view(|kv| read::stats(kv)).ok()?;
        let dead = worth(&stats);
        let below = match self.store.room() {
            _ if dead == 0 => return None,
            room if room.free < (room.total / TIGHT_PARTS).max(TIGHT_BYTES) => WORN_MAX,
            room if room.free < room.total / SHORT_PARTS => {
                let live = stats.bytes.saturating_sub(dead) as u128;
                ((live * 1000 / stats.bytes.max(1) as u128) as u32).clamp(WORN, WORN_MAX)
            }
            _ if dead * 2 > stats.bytes => WORN,
            _ => return None,
        };
        (!self.core.work.worn_rest.holds(dead, below)).then_some(below)
    }

    fn is_short(&self) -> bool {
        let room = self.store.room();
        room.free < (room.total / SHORT_PARTS).max(TIGHT_BYTES)
    }

    /// Rewrites as long as there is need; what is staged has its turn in between.
    pub(super) async fn rewrite_worn(&mut self) -> Result<(), Fault> {
        while let Some(below) = self.worn_below() {
            if self.worn.pass.as_ref().is_none_or(|p| p.below < below) {
                self.worn.pass = Some(self.begin_pass(below).await?);
            }
            let Some(pass) = &self.worn.pass else { break };
            let (found, runs, next) = self.gather_worn(pass)?;
            if !runs.is_empty() {
                self.rewrite(found, runs).await?;
            }
            match (&mut self.worn.pass, next) {
                (Some(pass), Some(next)) if pass.left > 0 => pass.cursor = next,
                _ => self.end_pass(),
            }
            self.drain_if_due().await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Chooses what to rewrite: no more than finds room even if users take half of theirs meanwhile.
    async fn begin_pass(&self, below: u32) -> Result<Pass, Fault> {
        let room = self.store.room();
        let live_max = (room.own.saturating_sub(room.free / 2) / 4 * 3).max(STRIPE_BYTES_MAX as u64);
        let (mut victims, mut after) = (Victims::new(live_max, below), None);
        while let Some(next) = self.core.view(|kv| read::choose_worn(kv, after, STRIPES, &mut victims))? {
            after = Some(next);
            tokio::task::yield_now().await;
        }
        Ok(Pass { cursor: Cursor::default(), below, victims: victims.ids(), left: victims.live(), moved: 0 })
    }

    /// A pass that moved something is followed by another; one that did not, by a rest.
    fn end_pass(&mut self) {
        let Some(pass) = self.worn.pass.take() else { return };
        self.core.metrics.worn_passes.inc();
        let dead = self.core.view(|kv| read::stats(kv)).map_or(u64::MAX / 2, |s| s.dead_bytes());
        *self.core.work.worn_rest.0.lock() = (pass.moved == 0).then_some((dead, pass.below));
    }

    /// Runs for one new stripe, as many as fit, of what they are, and where to go on.
    fn gather_worn(&self, pass: &Pass) -> Result<(read::Worn, Vec<WornRun>, Option<Cursor>), Fault> {
        let (mut cursor, mut bytes) = (pass.cursor, 0);
        let mut runs: Vec<WornRun> = Vec::new();
        let mut first: Option<read::Worn> = None;
        for _ in 0..LOOKS_MAX {
            let bounds = WornBounds { bytes_max: self.worn.bytes_max - bytes, runs_max: RUNS - runs.len(), pieces_max: PIECES };
            let mut found = self.core.view(|kv| read::gather_worn(kv, cursor, bounds, &pass.victims))?;
            let next = found.next;
            if !found.runs.is_empty() {
                if first.as_ref().is_some_and(|f| f.bucket != found.bucket) {
                    break;
                }
                bytes += found.bytes;
                runs.append(&mut found.runs);
                first.get_or_insert(found);
            }
            match next {
                Some(next) => cursor = next,
                None => return Ok((first.unwrap_or_else(read::Worn::none), runs, None)),
            }
            if bytes >= self.worn.bytes_max.min(pass.left) || runs.len() >= RUNS {
                break;
            }
        }
        Ok((first.unwrap_or_else(read::Worn::none), runs, Some(cursor)))
    }

    /// Copies the runs into one new stripe and commits it.
    async fn rewrite(&mut self, of: read::Worn, runs: Vec<WornRun>) -> Result<(), Fault> {
        let all: u64 = runs.iter().map(|r| r.run.len as u64).sum();
        let mut copied = Vec::with_capacity(runs.len());
        for some in runs.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|r| {
                let (stripe, at) = &r.read;
                self.store.read(stripe, *at..*at + r.run.len)
            });
            for (r, data) in some.iter().zip(join_all(reads).await) {
                match data {
                    Ok(data) => copied.push((r.run, data)),
                    // It was overwritten meanwhile, or repair has to see to it first.
                    Err(why) => tracing::debug!(stripe = %r.run.from, error = %why, "not rewritten"),
                }
            }
        }
        if let Some(pass) = &mut self.worn.pass {
            pass.left = pass.left.saturating_sub(all);
        }
        if copied.is_empty() {
            return Ok(());
        }
        // Whole blocks first, so that they lie on blocks of the stripe.
        copied.sort_by_key(|(run, _)| !run.len.is_multiple_of(BLOCK as u32));
        let (mut runs, mut data, mut at) = (Vec::with_capacity(copied.len()), Vec::with_capacity(copied.len()), 0);
        for (run, bytes) in copied {
            runs.push(Run { at, ..run });
            data.extend(bytes);
            at += run.len;
        }
        let core = self.core.clone();
        let writer = self.writer().await?;
        let id = writer.stripe(&core).await?;
        let (session, epoch) = (writer.id, writer.epoch);
        let write = PackWrite { id, bucket: of.bucket, code: of.code, data, session, epoch };
        let written = self.store.write(write).await;
        // A smaller one may find the room that this one does not.
        let fits = if written.is_ok() { self.worn.bytes_max * 2 } else { at as u64 / 2 };
        self.worn.bytes_max = fits.clamp(COPY_BYTES_MIN, STRIPE_BYTES_MAX as u64);
        let stripe = match written {
            Ok(stripe) => stripe,
            Err(why) => {
                // What it was made of is where it was.
                self.worn.pass.iter_mut().for_each(|pass| pass.left += all);
                return Err(Fault::Later(why));
            }
        };
        let relocate = Relocate { bucket: of.bucket, stripe, runs };
        let Reply::Packed { moved } = self.writer().await?.run(&core, Command::Relocate(relocate)).await? else {
            return Err(Fault::Later("Relocate answered something else".into()));
        };
        self.worn.pass.iter_mut().for_each(|pass| pass.moved += moved as u64);
        core.metrics.worn_bytes.inc_by(at as u64);
        if self.is_short() {
            core.work.hurry()
        } else {
            core.work.stripes.notify()
        }
        Ok(())
    }
}
