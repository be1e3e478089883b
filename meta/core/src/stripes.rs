//! Stripes: their records, how much of them is referred to, and their end.
//!
//! What always holds: a stripe's live bytes are the sum of the extents and parts that refer to it; at zero it moves to the
//! retired list, where only deletion at the OSDs is left to do. A stripe with missing shards is in the repair index.

use crate::apply::Ctx;
use crate::fail::{Done, broken, invalid, refused};
use crate::limits::EXTENTS_MAX;
use crate::record::{Retired, StripeRecord, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, ids, keys, packs};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Extent, Home, Inline, Reply};
use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;
use holdfast_objstore_proto::{BucketId, StripeId, StripeMeta};
use std::collections::BTreeMap;
use std::sync::Arc;

/// New stripes of one command, claimed from its session's ranges.
pub(crate) type Claimed = BTreeMap<StripeId, Claim>;

/// A new stripe.
pub(crate) struct Claim {
    pub meta: Arc<StripeMeta>,
    pub bucket: BucketId,
    /// Its bytes, when they came with the command.
    pub data: Option<Bytes>,
}

/// Change of live bytes by stripe, gathered over a command.
#[derive(Default)]
pub(crate) struct Net(BTreeMap<StripeId, i64>);

impl Net {
    pub fn add(&mut self, id: StripeId, len: u32) {
        *self.0.entry(id).or_default() += len as i64;
    }
    pub fn sub(&mut self, id: StripeId, len: u32) {
        *self.0.entry(id).or_default() -= len as i64;
    }
    /// Bytes mapped more (or fewer) in all.
    pub fn total(&self) -> i64 {
        self.0.values().sum()
    }
}

/// Spends the ids of new stripes. Refuses what is malformed, foreign, or was published before.
pub(crate) fn claim(tx: &mut Tx, ctx: Ctx, bucket: BucketId, stripes: &[Arc<StripeMeta>], inline: &[Inline]) -> Done<Claimed> {
    if stripes.len() + inline.len() > EXTENTS_MAX {
        return invalid(format!("more than {EXTENTS_MAX} stripes in one command"));
    }
    packs::check_inline(inline)?;
    let mut claimed = Claimed::new();
    for s in stripes {
        check_form(s)?;
        take(tx, ctx, s.id)?;
        claimed.insert(s.id, Claim { meta: s.clone(), bucket, data: None });
    }
    for i in inline {
        take(tx, ctx, i.stripe)?;
        let meta = Arc::new(StripeMeta::bare(i.stripe, i.data.len() as u32));
        claimed.insert(i.stripe, Claim { meta, bucket, data: Some(i.data.clone()) });
    }
    Ok(claimed)
}

fn take(tx: &mut Tx, ctx: Ctx, id: StripeId) -> Done<()> {
    if ids::take_stripe(tx, ctx.session, id)? { Ok(()) } else { refused(format!("{id} is not an unused id of this session")) }
}

fn check_form(s: &StripeMeta) -> Done<()> {
    let n = s.code.n();
    let fits = s.len >= 1 && s.len <= STRIPE_BYTES_MAX && s.code.k >= 1 && n <= 32 && s.osds.len() == n && (n == 32 || s.missing >> n == 0);
    if fits { Ok(()) } else { refused(format!("the record of {} contradicts itself", s.id)) }
}

/// Extents of a command: within `size`, over stripes it brought.
pub(crate) fn check_extents(extents: &[Extent], size: u64, claimed: &Claimed) -> Done<()> {
    if extents.len() > EXTENTS_MAX {
        return invalid(format!("more than {EXTENTS_MAX} extents in one command"));
    }
    for e in extents {
        let Some(stripe) = claimed.get(&e.stripe) else {
            return refused(format!("an extent names {}, which the command does not bring", e.stripe));
        };
        if e.len == 0 || e.stripe_offset as u64 + e.len as u64 > stripe.meta.len as u64 {
            return refused(format!("an extent leaves {}", e.stripe));
        }
        if e.offset.checked_add(e.len as u64).is_none_or(|end| end > size) {
            return refused("an extent lies beyond the file's size");
        }
    }
    Ok(())
}

/// Writes what a command changed: new stripes with their live bytes, old ones with theirs, the end of those at zero.
pub(crate) fn settle(tx: &mut Tx, ctx: Ctx, net: &Net, mut claimed: Claimed) -> Done<()> {
    for (&id, &change) in &net.0 {
        tx.delta.live += change;
        let live = |before: u64| before.checked_add_signed(change).ok_or_else(|| broken(format!("live bytes of {id} fell below zero")));
        let key = keys::stripe(id);
        if let Some(new) = claimed.get(&id) {
            let live = live(0)?;
            // One that nothing is left of is passed over here and given up below.
            if live > 0 {
                begin(tx, ctx, new, live)?;
                claimed.remove(&id);
            }
            continue;
        }
        let mut record: StripeRecord = load(tx, &key)?.ok_or_else(|| broken(format!("a map refers to {id}, which has no record")))?;
        let before = record.dead();
        record.live = live(record.live)?;
        if record.home == Home::Shards {
            tx.delta.dead += if record.live > 0 { record.dead() } else { 0 } - before;
        }
        if record.live > 0 {
            tx.put(key, encode(&record));
        } else {
            tx.delete(key);
            packs::leave(tx, ctx, &record)?;
        }
    }
    // Inline bytes that nothing refers to are simply not kept.
    for unused in claimed.into_values().filter(|c| c.data.is_none()) {
        retire(tx, ctx, unused.meta);
    }
    Ok(())
}

/// A new stripe is in use.
fn begin(tx: &mut Tx, ctx: Ctx, new: &Claim, live: u64) -> Done<()> {
    let id = new.meta.id;
    let home = match &new.data {
        Some(data) => packs::stage(tx, ctx, id, data.clone()),
        None => {
            packs::enter(tx, ctx, new.bucket, &new.meta)?;
            Home::Shards
        }
    };
    let record = StripeRecord { meta: new.meta.clone(), live, bucket: new.bucket, home };
    if home == Home::Shards {
        tx.delta.dead += record.dead();
    }
    tx.put(keys::stripe(id), encode(&record));
    Ok(())
}

/// Puts a stripe on the list of those whose shards are to be deleted.
pub(crate) fn retire(tx: &mut Tx, ctx: Ctx, meta: Arc<StripeMeta>) {
    tx.delta.retired += 1;
    tx.put(keys::retired(meta.id), encode(&Retired { meta, index: ctx.index }));
}

pub(crate) fn forget(tx: &mut Tx, stripes: &[StripeId]) -> Done<Reply> {
    if stripes.len() > EXTENTS_MAX {
        return invalid(format!("more than {EXTENTS_MAX} stripes in one command"));
    }
    for id in stripes {
        let key = keys::retired(*id);
        if tx.get(&key)?.is_some() {
            tx.delete(key);
            tx.delta.retired -= 1;
        }
    }
    Ok(Reply::Done)
}

pub(crate) fn swap(tx: &mut Tx, old: &StripeMeta, new: &Arc<StripeMeta>) -> Done<Reply> {
    check_form(new)?;
    if new.id != old.id || new.len != old.len {
        return invalid("a stripe's id and length never change");
    }
    let key = keys::stripe(old.id);
    let Some(record) = load::<StripeRecord>(tx, &key)?.filter(|r| r.home == Home::Shards && *r.meta == *old) else {
        return Ok(Reply::Swapped { swapped: false });
    };
    match (old.missing != 0, new.missing != 0) {
        (true, false) => tx.delete(keys::missing(old.id)),
        (false, true) => tx.put(keys::missing(old.id), Bytes::new()),
        _ => {}
    }
    tx.put(key, encode(&StripeRecord { meta: new.clone(), ..record }));
    Ok(Reply::Swapped { swapped: true })
}

/// Where the bytes of a stripe that a map refers to are found: in which stripe, from which byte of it, and whether they are staged.
pub(crate) struct Found {
    pub meta: Arc<StripeMeta>,
    pub shift: u32,
    pub staged: bool,
}

pub(crate) fn find(kv: &(impl KvRead + ?Sized), id: StripeId) -> Result<Found, StateError> {
    let load = |id: StripeId| {
        let record = load::<StripeRecord>(kv, &keys::stripe(id))?;
        record.ok_or_else(|| broken(format!("a map refers to {id}, which has no record")))
    };
    let record = load(id)?;
    match record.home {
        Home::Shards => Ok(Found { meta: record.meta, shift: 0, staged: false }),
        Home::Staged { .. } => Ok(Found { meta: record.meta, shift: 0, staged: true }),
        Home::Packed { pack, at } => Ok(Found { meta: load(pack)?.meta, shift: at, staged: false }),
    }
}
