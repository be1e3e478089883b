//! Rewriting worn stripes: what lives of stripes that overwrites have mostly killed is copied into new ones, so that the old end whole.
//!
//! What always holds: nothing is rewritten while there is room and more than half of what is stored lives, so debt is at most as much again as
//! the data; when room is short, stripes that are deader than the average go first, for they give most for the work, and ever fuller ones
//! until nothing is to be gained. A copy is durable before it is committed, and the commit moves only runs that are still where they
//! were copied from.
//! What it leaves out: which maps to look at (`meta/core`'s passes); slowing writers meanwhile (the object cluster's pace).

use super::super::core::Core;
use super::packs::{Fault, PackWrite, Packer, READS_AT_ONCE};
use futures::future::join_all;
use holdfast_meta_core::read::{self, Cursor, Stats, WornBounds, WornRun};
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::meta::{Command, Relocate, Reply, Run};
use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;
use std::sync::atomic::Ordering;

/// Pieces of maps one look takes.
const PIECES: usize = 4096;
/// Runs of one new stripe: 4 KiB each fill it.
const RUNS: usize = 1024;
/// Looks for one new stripe.
const LOOKS_MAX: usize = 64;
/// Of a stripe, in thousandths: worn below this while there is room.
const WORN: u32 = 500;
/// Above this much life a stripe is never worth its rewriting.
const WORN_MAX: u32 = 970;
/// Room is short when less than one part of this many is free.
const SHORT_PARTS: u64 = 8;
/// Less than a part of this many of what is stored is not worth a pass.
const WORTH_PARTS: u64 = 64;

/// Where the pass under way is, and what came of the last one.
#[derive(Default)]
pub(super) struct Worn {
    cursor: Cursor,
    /// Runs moved in this pass.
    moved: u64,
    /// Raised by a pass that moved nothing while room was short.
    floor: u32,
    /// What was dead when the last floor gave nothing: only more than that is a reason to begin anew.
    rest: Option<u64>,
}

/// What rewriting could give back, if it is worth a pass.
fn worth(s: &Stats) -> u64 {
    let dead = s.dead_bytes();
    if dead < (STRIPE_BYTES_MAX as u64).max(s.bytes / WORTH_PARTS) { 0 } else { dead }
}

impl Core {
    /// Bytes that rewriting is about to give back while room is short.
    pub(crate) fn worn_bytes(&self) -> u64 {
        if !self.work.packs() || self.work.is_worn_out() {
            return 0;
        }
        self.view(|kv| read::stats(kv)).map_or(0, |s| worth(&s))
    }
}

impl Packer {
    /// Below how many thousandths of life stripes are to be rewritten now; `None`: there is no need.
    pub(super) fn worn_below(&self) -> Option<u32> {
        let stats = self.core.view(|kv| read::stats(kv)).ok()?;
        let dead = worth(&stats);
        if dead == 0 || self.worn.rest.is_some_and(|rest| dead <= rest + STRIPE_BYTES_MAX as u64) {
            return None;
        }
        if !self.is_short() {
            return (dead * 2 > stats.bytes).then_some(WORN);
        }
        let average = (stats.bytes.saturating_sub(dead) as u128 * 1000 / stats.bytes.max(1) as u128) as u32;
        Some(average.max(self.worn.floor).clamp(WORN, WORN_MAX))
    }

    fn is_short(&self) -> bool {
        let room = self.store.room();
        room.free < room.total / SHORT_PARTS
    }

    /// Rewrites as long as there is need; what is staged has its turn in between.
    pub(super) async fn rewrite_worn(&mut self) -> Result<(), Fault> {
        while let Some(below) = self.worn_below() {
            let (runs, next) = self.gather_worn(below)?;
            if !runs.1.is_empty() {
                self.rewrite(runs).await?;
            }
            match next {
                Some(next) => self.worn.cursor = next,
                None => self.end_pass(below),
            }
            self.drain_if_due().await?;
            tokio::task::yield_now().await;
        }
        if self.worn.rest.is_some() && !self.is_short() {
            (self.worn.rest, self.worn.floor) = (None, 0);
            self.core.work.worn_out.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A pass that moved something is followed by another like it; one that did not, by a stricter one, or by a rest.
    fn end_pass(&mut self, below: u32) {
        self.worn.cursor = Cursor::default();
        let moved = std::mem::take(&mut self.worn.moved);
        self.core.metrics.worn_passes.inc();
        if moved > 0 {
            (self.worn.floor, self.worn.rest) = (0, None);
            self.core.work.worn_out.store(false, Ordering::Relaxed);
        } else if below < WORN_MAX && self.is_short() {
            self.worn.floor = (below + 1000).div_ceil(2).min(WORN_MAX);
        } else {
            self.worn.rest = Some(self.core.view(|kv| read::stats(kv)).map_or(u64::MAX / 2, |s| s.dead_bytes()));
            self.core.work.worn_out.store(true, Ordering::Relaxed);
        }
    }

    /// Runs for one new stripe, as many as fit, and where to go on.
    #[expect(clippy::type_complexity, reason = "the bucket and its code go with the runs, to one caller")]
    fn gather_worn(&self, below: u32) -> Result<((read::Worn, Vec<WornRun>), Option<Cursor>), Fault> {
        let (mut cursor, mut bytes) = (self.worn.cursor, 0);
        let mut runs: Vec<WornRun> = Vec::new();
        let mut first: Option<read::Worn> = None;
        for _ in 0..LOOKS_MAX {
            let bounds = WornBounds {
                bytes_max: STRIPE_BYTES_MAX as u64 - bytes,
                runs_max: RUNS - runs.len(),
                pieces_max: PIECES,
                live_below: below,
            };
            let mut found = self.core.view(|kv| read::gather_worn(kv, cursor, bounds))?;
            let next = found.next;
            if !found.runs.is_empty() {
                if first.as_ref().is_some_and(|f| f.bucket != found.bucket) {
                    return Ok(((first.expect("just seen"), runs), Some(cursor)));
                }
                bytes += found.bytes;
                runs.append(&mut found.runs);
                first.get_or_insert(found);
            }
            match next {
                Some(next) => cursor = next,
                None => return Ok(((first.unwrap_or_else(read::Worn::none), runs), None)),
            }
            if bytes >= STRIPE_BYTES_MAX as u64 || runs.len() >= RUNS {
                break;
            }
        }
        Ok(((first.unwrap_or_else(read::Worn::none), runs), Some(cursor)))
    }

    /// Copies the runs into one new stripe and commits it.
    async fn rewrite(&mut self, (of, runs): (read::Worn, Vec<WornRun>)) -> Result<(), Fault> {
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
        let stripe = self.store.write(write).await.map_err(Fault::Later)?;
        let relocate = Relocate { bucket: of.bucket, stripe, runs };
        let Reply::Packed { moved } = self.writer().await?.run(&core, Command::Relocate(relocate)).await? else {
            return Err(Fault::Later("Relocate answered something else".into()));
        };
        self.worn.moved += moved as u64;
        core.metrics.worn_bytes.inc_by(at as u64);
        if self.is_short() {
            core.work.hurry()
        } else {
            core.work.stripes.notify()
        }
        Ok(())
    }
}
