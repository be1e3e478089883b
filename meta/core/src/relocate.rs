//! Relocation: runs of files that lie on mostly dead stripes are mapped to a copy in a new stripe, so that the old ones end.
//!
//! What always holds: a run is moved only where the file still maps it to the bytes that were copied, so a write, a truncation or a
//! deletion meanwhile wins; a file's attributes, numbers and grants know nothing of it, for what the file says does not change.
//! Whoever has the old map finds the old stripe gone and reads the map again.
//! What it leaves out: staged bytes (they are packed first), parts of uploads (nothing of them dies before they are joined).

use crate::apply::Ctx;
use crate::fail::{Done, invalid};
use crate::limits::RUNS_MAX;
use crate::map::{self, CHUNK};
use crate::record::{Body, Inode, Piece, load};
use crate::stripes::{self, Net};
use crate::tx::Tx;
use crate::{chunk, keys};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Relocate, Reply, Run};

/// The chunk a run lies in.
fn place(run: &Run) -> Done<(InodeId, u32)> {
    let chunk = u32::try_from(run.offset / CHUNK_BYTES);
    let start = run.offset % CHUNK_BYTES;
    match chunk {
        Ok(chunk) if run.len > 0 && start + run.len as u64 <= CHUNK as u64 => Ok((run.ino, chunk)),
        _ => invalid("a run to relocate is empty, leaves its chunk, or lies beyond every file"),
    }
}

fn check(r: &Relocate) -> Done<()> {
    if r.runs.is_empty() || r.runs.len() > RUNS_MAX {
        return invalid(format!("a Relocate has 1 to {RUNS_MAX} runs"));
    }
    let mut end = 0u64;
    for run in &r.runs {
        if (run.at as u64) < end || run.from == r.stripe.id || run.from_at.checked_add(run.len).is_none() {
            return invalid("runs of a Relocate are in order and do not overlap");
        }
        end = run.at as u64 + run.len as u64;
    }
    if end > r.stripe.len as u64 { invalid("a run leaves the new stripe") } else { Ok(()) }
}

pub(crate) fn relocate(tx: &mut Tx, ctx: Ctx, r: &Relocate) -> Done<Reply> {
    check(r)?;
    let claimed = stripes::claim(tx, ctx, r.bucket, std::slice::from_ref(&r.stripe), &[])?;
    let (mut net, mut moved) = (Net::default(), 0);
    let mut rest = &r.runs[..];
    while let Some(first) = rest.first() {
        let at = place(first)?;
        let mut count = 0;
        for run in rest {
            if place(run)? != at {
                break;
            }
            count += 1;
        }
        let (here, others) = rest.split_at(count);
        moved += relocate_in(tx, r, at, here, &mut net)?;
        rest = others;
    }
    stripes::settle(tx, ctx, &net, claimed)?;
    Ok(Reply::Packed { moved })
}

/// The runs of one chunk; how many are moved.
fn relocate_in(tx: &mut Tx, r: &Relocate, (ino, chunk): (InodeId, u32), runs: &[Run], net: &mut Net) -> Done<u32> {
    let Some(inode) = load::<Inode>(tx, &keys::inode(ino))? else { return Ok(0) };
    if !matches!(inode.body, Body::File { reaping: false, .. }) {
        return Ok(0);
    }
    let mut now: Vec<Piece> = Vec::new();
    chunk::read(tx, ino, &inode, chunk..chunk.saturating_add(1), &mut |_, pieces| {
        now = pieces;
        Ok(())
    })?;
    let (mut new, mut moved) = (Vec::new(), 0);
    for run in runs {
        let start = (run.offset % CHUNK_BYTES) as u32;
        let before = new.len();
        for p in map::within(&now, start, start + run.len) {
            // The same bytes: of the same stripe, as far into it as the run was copied from.
            let into = p.start - start;
            if p.stripe == run.from && p.at == run.from_at + into {
                new.push(Piece { start: p.start, len: p.len, stripe: r.stripe.id, at: run.at + into });
            }
        }
        moved += (new.len() > before) as u32;
    }
    new.sort_by_key(|p| p.start);
    if new.windows(2).any(|w| w[0].end() > w[1].start) {
        return invalid("runs of a Relocate overlap in their file");
    }
    if !new.is_empty() {
        chunk::write(tx, ino, &inode, chunk, &new, inode.number, net)?;
    }
    Ok(moved)
}
