//! Stripes without shards of their own: staged ones, whose bytes are in the log, and packed ones, which are found in a larger stripe.
//!
//! What always holds: an extent names the stripe it was published with, for ever; only the stripe's record says where the bytes are, so
//! copies by reference share one move. A pack's live bytes are its members' lengths, and each member is listed under its place in it;
//! without members it is retired like any stripe. What is staged is listed by log index.
//! What it leaves out: the staged bytes themselves; [`crate::Effects`] tells their keeper what to do.

use crate::apply::Ctx;
use crate::fail::{Done, broken, invalid};
use crate::limits::{INLINE_BYTES_MAX, PACK_MEMBERS_MAX};
use crate::record::{Packed, Small, StripeRecord, encode, load};
use crate::stripes::{self, retire};
use crate::tx::Tx;
use crate::{KvRead, bucket, keys};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Home, Inline, Pack, PackMember, Reply};
use holdfast_objstore_proto::stripe::COPIES_BYTES_MAX;
use holdfast_objstore_proto::{BucketId, StripeId, StripeMeta};
use std::sync::Arc;

/// A new staged stripe is in use.
pub(crate) fn stage(tx: &mut Tx, ctx: Ctx, id: StripeId, data: Bytes) -> Home {
    tx.delta.staged += 1;
    tx.delta.staged_bytes += data.len() as i64;
    tx.put(keys::staged(ctx.index, id), Bytes::new());
    tx.effects.staged.push((id, data));
    Home::Staged { index: ctx.index }
}

fn unstage(tx: &mut Tx, index: u64, id: StripeId, len: u32) {
    tx.delta.staged -= 1;
    tx.delta.staged_bytes -= len as i64;
    tx.delete(keys::staged(index, id));
    tx.effects.freed.push(id);
}

/// A stripe with shards comes into use: it is counted, and listed for the packer if it is small.
pub(crate) fn enter(tx: &mut Tx, ctx: Ctx, owner: BucketId, meta: &StripeMeta) -> Done<()> {
    tx.delta.stripes += 1;
    tx.delta.bytes += meta.len as i64;
    if meta.missing != 0 {
        tx.put(keys::missing(meta.id), Bytes::new());
    }
    if meta.code.k == 1 && meta.len <= COPIES_BYTES_MAX && bucket::code(tx, owner)?.is_some_and(|c| c.k > 1) {
        tx.delta.small += 1;
        tx.put(keys::small(owner, meta.id), encode(&Small { since: ctx.now }));
    }
    Ok(())
}

/// Its shards are no longer needed.
fn leave_shards(tx: &mut Tx, ctx: Ctx, owner: BucketId, meta: Arc<StripeMeta>) -> Done<()> {
    tx.delta.stripes -= 1;
    tx.delta.bytes -= meta.len as i64;
    if meta.missing != 0 {
        tx.delete(keys::missing(meta.id));
    }
    let small = keys::small(owner, meta.id);
    if meta.len <= COPIES_BYTES_MAX && tx.get(&small)?.is_some() {
        tx.delta.small -= 1;
        tx.delete(small);
    }
    retire(tx, ctx, meta);
    Ok(())
}

/// The stripe no longer needs what its record says it is kept in. The caller stores the record anew, or deletes it.
pub(crate) fn leave(tx: &mut Tx, ctx: Ctx, record: &StripeRecord) -> Done<()> {
    match record.home {
        Home::Shards => leave_shards(tx, ctx, record.bucket, record.meta.clone()),
        Home::Staged { index } => {
            unstage(tx, index, record.meta.id, record.meta.len);
            Ok(())
        }
        Home::Packed { pack, at } => leave_pack(tx, ctx, pack, at, record.meta.len),
    }
}

fn is_sparse(live: u64, len: u32) -> bool {
    live * 2 < len as u64
}

fn leave_pack(tx: &mut Tx, ctx: Ctx, pack: StripeId, at: u32, len: u32) -> Done<()> {
    tx.delta.packed -= 1;
    tx.delta.packed_bytes -= len as i64;
    tx.delete(keys::packed(pack, at));
    let key = keys::stripe(pack);
    let mut record: StripeRecord = load(tx, &key)?.ok_or_else(|| broken(format!("{pack} has members and no record")))?;
    let was_sparse = is_sparse(record.live, record.meta.len);
    record.live = record.live.checked_sub(len as u64).ok_or_else(|| broken(format!("live bytes of {pack} fell below zero")))?;
    let sparse = record.live > 0 && is_sparse(record.live, record.meta.len);
    match (was_sparse, sparse) {
        (false, true) => {
            tx.delta.sparse += 1;
            tx.effects.sparse = true;
            tx.put(keys::sparse(pack), Bytes::new());
        }
        (true, false) => {
            tx.delta.sparse -= 1;
            tx.delete(keys::sparse(pack));
        }
        _ => {}
    }
    if record.live > 0 {
        tx.put(key, encode(&record));
        return Ok(());
    }
    tx.delta.packs -= 1;
    tx.delta.pack_bytes -= record.meta.len as i64;
    tx.delete(key);
    leave_shards(tx, ctx, record.bucket, record.meta)
}

fn check_members(p: &Pack) -> Done<()> {
    if p.members.is_empty() || p.members.len() > PACK_MEMBERS_MAX {
        return invalid(format!("a pack has 1 to {PACK_MEMBERS_MAX} members"));
    }
    let mut end = 0u64;
    for m in &p.members {
        if m.len == 0 || (m.at as u64) < end || m.stripe == p.stripe.id {
            return invalid("members of a pack are in order and do not overlap");
        }
        end = m.at as u64 + m.len as u64;
    }
    if end > p.stripe.len as u64 { invalid("a member leaves its pack") } else { Ok(()) }
}

/// The packer's commit: members that are still where they were copied from are found in the pack from now on.
pub(crate) fn pack(tx: &mut Tx, ctx: Ctx, p: &Pack) -> Done<Reply> {
    check_members(p)?;
    let id = p.stripe.id;
    let claimed = stripes::claim(tx, ctx, p.bucket, std::slice::from_ref(&p.stripe), &[])?;
    let (mut live, mut moved) = (0u64, 0);
    for m in &p.members {
        if !move_member(tx, ctx, p.bucket, id, m)? {
            continue;
        }
        tx.delta.packed += 1;
        tx.delta.packed_bytes += m.len as i64;
        tx.put(keys::packed(id, m.at), encode(&Packed { stripe: m.stripe, len: m.len }));
        live += m.len as u64;
        moved += 1;
    }
    for claim in claimed.into_values() {
        if live == 0 {
            retire(tx, ctx, claim.meta);
            continue;
        }
        tx.delta.packs += 1;
        tx.delta.pack_bytes += claim.meta.len as i64;
        enter(tx, ctx, p.bucket, &claim.meta)?;
        if is_sparse(live, claim.meta.len) {
            tx.delta.sparse += 1;
            tx.effects.sparse = true;
            tx.put(keys::sparse(id), Bytes::new());
        }
        tx.put(keys::stripe(id), encode(&StripeRecord { meta: claim.meta, live, bucket: p.bucket, home: Home::Shards }));
    }
    Ok(Reply::Packed { moved })
}

/// Whether the member was still there, and moved.
fn move_member(tx: &mut Tx, ctx: Ctx, owner: BucketId, pack: StripeId, m: &PackMember) -> Done<bool> {
    let key = keys::stripe(m.stripe);
    let Some(mut record) = load::<StripeRecord>(tx, &key)? else { return Ok(false) };
    // Only what has shards can be a pack itself.
    let other = record.home != m.from || record.meta.len != m.len || record.bucket != owner;
    if other || record.home == Home::Shards && is_pack(tx, m.stripe)? {
        return Ok(false);
    }
    if record.home == Home::Shards {
        tx.delta.dead -= record.dead();
    }
    leave(tx, ctx, &record)?;
    record.meta = Arc::new(StripeMeta::bare(m.stripe, m.len));
    record.home = Home::Packed { pack, at: m.at };
    tx.put(key, encode(&record));
    Ok(true)
}

/// Whether other stripes are found in it.
pub(crate) fn is_pack(kv: &(impl KvRead + ?Sized), id: StripeId) -> Done<bool> {
    let from = keys::packed_all(id);
    let mut found = false;
    kv.scan(&from, &keys::end_of(&from), &mut |_, _| {
        found = true;
        std::ops::ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Staged bytes come once more: from now on this entry of the log has them.
pub(crate) fn restage(tx: &mut Tx, ctx: Ctx, inline: &[Inline]) -> Done<Reply> {
    for i in inline {
        let key = keys::stripe(i.stripe);
        let Some(mut record) = load::<StripeRecord>(tx, &key)? else { continue };
        let Home::Staged { index } = record.home else { continue };
        if record.meta.len as usize != i.data.len() {
            return invalid(format!("{} has another length", i.stripe));
        }
        tx.delete(keys::staged(index, i.stripe));
        tx.put(keys::staged(ctx.index, i.stripe), Bytes::new());
        tx.effects.staged.push((i.stripe, i.data.clone()));
        record.home = Home::Staged { index: ctx.index };
        tx.put(key, encode(&record));
    }
    Ok(Reply::Done)
}

/// Inline stripes of one command: few bytes, none empty.
pub(crate) fn check_inline(inline: &[Inline]) -> Done<()> {
    let bytes: usize = inline.iter().map(|i| i.data.len()).sum();
    if bytes > INLINE_BYTES_MAX || inline.iter().any(|i| i.data.is_empty()) {
        return invalid(format!("a command carries at most {INLINE_BYTES_MAX} inline bytes, and no empty stripe"));
    }
    Ok(())
}
