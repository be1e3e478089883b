//! Which stripe ids nobody may publish any more, for the fences of the OSDs.
//!
//! What always holds: an id in a closed range is published already or never will be; a range once closed stays so.

use crate::fail::broken;
use crate::keys::{self, BlockId};
use crate::limits::BLOCK_IDS;
use crate::{KvRead, StateError, ids};
use holdfast_objstore_proto::meta::MetaResult;
use holdfast_objstore_proto::{StripeId, StripeRange};
use std::ops::ControlFlow;

/// Ranges answered at most. Where more blocks of living sessions lie between, the closed ids behind the last range are left for a later
/// look, when those sessions have ended.
const RANGES_MAX: usize = 16_384;

/// The incarnation, and the closed ranges of its ids in order: all that was granted but the blocks of living sessions.
pub fn closed_ranges(kv: &dyn KvRead) -> Result<MetaResult<(u32, Vec<StripeRange>)>, StateError> {
    let c = ids::counters(kv)?;
    let id = |block| BlockId::Stripes { incarnation: c.incarnation, group: 0, block };
    let (mut closed, mut from, mut failed) = (Vec::new(), 0, None);
    let range = |from: u64, to: u64| StripeRange {
        first: StripeId { incarnation: c.incarnation, group: 0, counter: from * BLOCK_IDS },
        count: (to - from) * BLOCK_IDS,
    };
    kv.scan(&keys::block(id(0)), &keys::block(id(c.stripe_block)), &mut |k, _| {
        match k.get(1..).and_then(BlockId::from_bytes) {
            Some(BlockId::Stripes { block, .. }) => {
                if block > from {
                    closed.push(range(from, block));
                }
                from = block + 1;
            }
            _ => failed = Some(broken("an id block's key has another form")),
        }
        if failed.is_some() || closed.len() == RANGES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    if from < c.stripe_block && closed.len() < RANGES_MAX {
        closed.push(range(from, c.stripe_block));
    }
    Ok(Ok((c.incarnation, closed)))
}

/// The ids of a range that something refers to or that wait for their deletion, in order.
pub fn held_in(kv: &dyn KvRead, range: StripeRange) -> Result<MetaResult<Vec<StripeId>>, StateError> {
    let end = StripeId { counter: range.first.counter.saturating_add(range.count), ..range.first };
    let mut held = Vec::new();
    for key in [keys::stripe as fn(StripeId) -> Vec<u8>, keys::retired] {
        kv.scan(&key(range.first), &key(end), &mut |k, _| {
            held.extend(keys::parse_stripe(k));
            ControlFlow::Continue(())
        })?;
    }
    held.sort_unstable();
    Ok(Ok(held))
}
