//! Ids: what was granted to whom, and which of it is spent.
//!
//! What always holds: an id is granted once, to one session; it is spent once; ids of a session that ended cannot be spent.
//! Grants are recorded in blocks of 512 ids, each one record with a bitmap, so that spending an id is one small write.
//! A block whose ids are all spent leaves the state. A session's blocks are bounded: past the bound its oldest make room for a grant, but
//! only those granted so long ago that no write can still be on its way with one of their ids; otherwise the grant is refused.

use crate::fail::{Done, broken, invalid};
use crate::limits::{BLOCK_AGE_NS, BLOCK_IDS, BLOCKS_MAX, GRANT_MAX};
use crate::record::{Block, Counters, Owned, Session, decode, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, keys, keys::BlockId};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{MetaError, TimeNs};
use holdfast_objstore_proto::{InodeId, InodeRange, SessionId, StripeId, StripeRange};
use std::ops::ControlFlow;

pub(crate) fn counters(kv: &(impl KvRead + ?Sized)) -> Result<Counters, StateError> {
    load(kv, &keys::counters())?.ok_or_else(|| broken("it was never initialised"))
}

pub(crate) fn put_counters(tx: &mut Tx, c: &Counters) {
    tx.put(keys::counters(), encode(c));
}

pub(crate) fn grant_stripes(tx: &mut Tx, session: SessionId, now: TimeNs, count: u32) -> Done<StripeRange> {
    let blocks = blocks_for(count)?;
    let mut c = counters(tx)?;
    let first = c.stripe_block;
    c.stripe_block += blocks;
    put_counters(tx, &c);
    let id = |block| BlockId::Stripes { incarnation: c.incarnation, group: 0, block };
    record_blocks(tx, session, now, count, (first..first + blocks).map(id))?;
    Ok(StripeRange { first: StripeId { incarnation: c.incarnation, group: 0, counter: first * BLOCK_IDS }, count: count as u64 })
}

pub(crate) fn grant_inodes(tx: &mut Tx, session: SessionId, now: TimeNs, count: u32) -> Done<InodeRange> {
    let blocks = blocks_for(count)?;
    let mut c = counters(tx)?;
    let first = c.inode_block;
    c.inode_block += blocks;
    put_counters(tx, &c);
    record_blocks(tx, session, now, count, (first..first + blocks).map(|block| BlockId::Inodes { block }))?;
    Ok(InodeRange { first: InodeId(first * BLOCK_IDS), count: count as u64 })
}

fn blocks_for(count: u32) -> Done<u64> {
    if count == 0 || count > GRANT_MAX {
        return invalid(format!("1 to {GRANT_MAX} ids can be granted at a time"));
    }
    Ok((count as u64).div_ceil(BLOCK_IDS))
}

fn record_blocks(tx: &mut Tx, session: SessionId, now: TimeNs, count: u32, ids: impl Iterator<Item = BlockId>) -> Done<()> {
    let mut left = count as u64;
    let mut made = 0;
    let mut sample = None;
    for id in ids {
        let here = left.min(BLOCK_IDS);
        left -= here;
        tx.put(keys::block(id), encode(&Block { session, count: here as u16, used: Bytes::new() }));
        tx.put(keys::owned(session, id), encode(&Owned { granted: now }));
        made += 1;
        sample = Some(id);
    }
    let Some(sample) = sample else { return Ok(()) };
    let mut owner: Session = load(tx, &keys::session(session))?.ok_or_else(|| broken("a session without a record asked"))?;
    let held = held_of(&mut owner, sample);
    *held += made;
    let excess = held.saturating_sub(BLOCKS_MAX);
    *held -= excess;
    if excess > 0 {
        make_room(tx, session, now, sample, excess)?;
    }
    tx.put(keys::session(session), encode(&owner));
    Ok(())
}

/// Gives up a session's `excess` oldest blocks of the kind of `sample`, unless one of them is too young to be surely out of use.
fn make_room(tx: &mut Tx, session: SessionId, now: TimeNs, sample: BlockId, excess: u32) -> Done<()> {
    let from = keys::owned_kind(session, sample);
    let mut oldest = Vec::new();
    tx.scan(&from, &keys::end_of(&from), &mut |k, v| {
        oldest.push((k.to_vec(), Bytes::copy_from_slice(v)));
        if oldest.len() as u32 == excess { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    for (key, value) in oldest {
        // Before blocks were dated they were recorded without a value.
        let granted = if value.is_empty() { TimeNs::MIN } else { decode::<Owned>(&value)?.granted };
        if now.saturating_sub(granted) < BLOCK_AGE_NS {
            return Err(MetaError::Retry("the session has too many unused ids that may be in use".into()).into());
        }
        forget(tx, key)?;
    }
    Ok(())
}

fn held_of(session: &mut Session, id: BlockId) -> &mut u32 {
    match id {
        BlockId::Stripes { .. } => &mut session.stripe_blocks,
        BlockId::Inodes { .. } => &mut session.inode_blocks,
    }
}

/// Drops one block by its key in the owner's list.
fn forget(tx: &mut Tx, owned: Vec<u8>) -> Result<(), StateError> {
    let id = owned.get(9..).and_then(BlockId::from_bytes).ok_or_else(|| broken("a list of blocks has a key of another form"))?;
    tx.delete(keys::block(id));
    tx.delete(owned);
    Ok(())
}

/// Drops all blocks of a session that ended.
pub(crate) fn forget_all(tx: &mut Tx, session: SessionId) -> Result<(), StateError> {
    let from = keys::owned_all(session);
    let mut all = Vec::new();
    tx.scan(&from, &keys::end_of(&from), &mut |k, _| {
        all.push(k.to_vec());
        ControlFlow::Continue(())
    })?;
    all.into_iter().try_for_each(|key| forget(tx, key))
}

fn bit(used: &[u8], i: u64) -> bool {
    used.get((i / 8) as usize).is_some_and(|b| b >> (i % 8) & 1 == 1)
}

/// Spends an id: false when it is not the session's, or spent already.
fn take(tx: &mut Tx, session: SessionId, id: BlockId, i: u64) -> Done<bool> {
    let Some(mut block) = load::<Block>(tx, &keys::block(id))? else { return Ok(false) };
    if block.session != session || i >= block.count as u64 || bit(&block.used, i) {
        return Ok(false);
    }
    let mut used = block.used.to_vec();
    used.resize(used.len().max((i / 8) as usize + 1), 0);
    used[(i / 8) as usize] |= 1 << (i % 8);
    if used.iter().map(|b| b.count_ones()).sum::<u32>() == block.count as u32 {
        tx.delete(keys::block(id));
        tx.delete(keys::owned(session, id));
        if let Some(mut owner) = load::<Session>(tx, &keys::session(session))? {
            let held = held_of(&mut owner, id);
            *held = held.saturating_sub(1);
            tx.put(keys::session(session), encode(&owner));
        }
    } else {
        block.used = used.into();
        tx.put(keys::block(id), encode(&block));
    }
    Ok(true)
}

pub(crate) fn take_stripe(tx: &mut Tx, session: SessionId, id: StripeId) -> Done<bool> {
    let (block, i) = BlockId::of_stripe(id);
    take(tx, session, block, i)
}

pub(crate) fn take_inode(tx: &mut Tx, session: SessionId, id: InodeId) -> Done<()> {
    let (block, i) = BlockId::of_inode(id);
    if take(tx, session, block, i)? { Ok(()) } else { invalid(format!("{id} is not an unused id of this session")) }
}

/// Whether a living session may still publish this stripe.
pub(crate) fn stripe_is_open(kv: &(impl KvRead + ?Sized), id: StripeId) -> Result<bool, StateError> {
    let (block, i) = BlockId::of_stripe(id);
    Ok(load::<Block>(kv, &keys::block(block))?.is_some_and(|b| i < b.count as u64 && !bit(&b.used, i)))
}

/// An inode id for the state itself.
pub(crate) fn own_inode(tx: &mut Tx) -> Done<InodeId> {
    let mut c = counters(tx)?;
    if c.own_inode == c.own_inode_end {
        c.own_inode = c.inode_block * BLOCK_IDS;
        c.own_inode_end = c.own_inode + BLOCK_IDS;
        c.inode_block += 1;
    }
    let id = InodeId(c.own_inode);
    c.own_inode += 1;
    put_counters(tx, &c);
    Ok(id)
}
