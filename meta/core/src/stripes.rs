//! Stripes: their records, how much of them is referred to, and their end.
//!
//! What always holds: a stripe's live bytes are the sum of the extents and parts that refer to it; at zero it moves to the
//! retired list, where only deletion at the OSDs is left to do. A stripe with missing shards is in the repair index.

use crate::apply::Ctx;
use crate::fail::{Done, broken, invalid, refused};
use crate::limits::EXTENTS_MAX;
use crate::record::{Retired, StripeRecord, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, ids, keys};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Extent, Reply};
use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;
use holdfast_objstore_proto::{StripeId, StripeMeta};
use std::collections::BTreeMap;
use std::sync::Arc;

/// New stripes of one command, claimed from its session's ranges.
pub(crate) type Claimed = BTreeMap<StripeId, Arc<StripeMeta>>;

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
pub(crate) fn claim(tx: &mut Tx, ctx: Ctx, stripes: &[Arc<StripeMeta>]) -> Done<Claimed> {
    if stripes.len() > EXTENTS_MAX {
        return invalid(format!("more than {EXTENTS_MAX} stripes in one command"));
    }
    let mut claimed = Claimed::new();
    for s in stripes {
        check_form(s)?;
        if !ids::take_stripe(tx, ctx.session, s.id)? {
            return refused(format!("{} is not an unused id of this session", s.id));
        }
        claimed.insert(s.id, s.clone());
    }
    Ok(claimed)
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
        if e.len == 0 || e.stripe_offset as u64 + e.len as u64 > stripe.len as u64 {
            return refused(format!("an extent leaves {}", e.stripe));
        }
        if e.offset.checked_add(e.len as u64).is_none_or(|end| end > size) {
            return refused("an extent lies beyond the file's size");
        }
    }
    Ok(())
}

/// Writes what a command changed: new stripes with their live bytes, old ones with theirs, the end of those at zero.
pub(crate) fn settle(tx: &mut Tx, ctx: Ctx, net: &Net, claimed: Claimed) -> Done<()> {
    for (id, meta) in &claimed {
        if !net.0.contains_key(id) {
            retire(tx, ctx, meta.clone());
        }
    }
    for (&id, &change) in &net.0 {
        let key = keys::stripe(id);
        let (meta, before) = match claimed.get(&id) {
            Some(meta) => (meta.clone(), 0),
            None => {
                let record: StripeRecord = load(tx, &key)?.ok_or_else(|| broken(format!("a map refers to {id}, which has no record")))?;
                (record.meta, record.live)
            }
        };
        let live = before.checked_add_signed(change).ok_or_else(|| broken(format!("live bytes of {id} fell below zero")))?;
        let (is, was) = (live > 0, before > 0);
        if is != was {
            let sign = if is { 1 } else { -1 };
            tx.delta.stripes += sign;
            tx.delta.bytes += sign * meta.len as i64;
        }
        tx.delta.live += change;
        if is {
            if !was && meta.missing != 0 {
                tx.put(keys::missing(id), Bytes::new());
            }
            tx.put(key, encode(&StripeRecord { meta, live }));
        } else {
            if was {
                tx.delete(key);
            }
            if meta.missing != 0 {
                tx.delete(keys::missing(id));
            }
            retire(tx, ctx, meta);
        }
    }
    Ok(())
}

fn retire(tx: &mut Tx, ctx: Ctx, meta: Arc<StripeMeta>) {
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
    let Some(record) = load::<StripeRecord>(tx, &key)?.filter(|r| *r.meta == *old) else {
        return Ok(Reply::Swapped { swapped: false });
    };
    match (old.missing != 0, new.missing != 0) {
        (true, false) => tx.delete(keys::missing(old.id)),
        (false, true) => tx.put(keys::missing(old.id), Bytes::new()),
        _ => {}
    }
    tx.put(key, encode(&StripeRecord { meta: new.clone(), live: record.live }));
    Ok(Reply::Swapped { swapped: true })
}

/// The stripe a map refers to.
pub(crate) fn get(kv: &(impl KvRead + ?Sized), id: StripeId) -> Result<Arc<StripeMeta>, StateError> {
    let record: StripeRecord = load(kv, &keys::stripe(id))?.ok_or_else(|| broken(format!("a map refers to {id}, which has no record")))?;
    Ok(record.meta)
}
