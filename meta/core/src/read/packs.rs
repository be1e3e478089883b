//! What the packer reads: which small stripes to copy into a pack next, and where they are.
//!
//! What always holds: all of one answer belong to one bucket; an answer costs no more than its bounds, however much waits.

use crate::fail::broken;
use crate::limits::PACK_MEMBERS_MAX;
use crate::record::{Packed, Small, StripeRecord, decode, load};
use crate::{KvRead, StateError, bucket, keys};
use holdfast_objstore_proto::meta::{Home, MetaResult, TimeNs};
use holdfast_objstore_proto::{BucketId, Code, StripeId, StripeMeta};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Records one gathering looks at beyond those it takes.
const VISITS_MAX: usize = 16_384;

/// A stripe to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub stripe: StripeId,
    pub len: u32,
    pub from: Home,
    /// Where its bytes are read: from byte `at` of this stripe. `None`: they are staged.
    pub read: Option<(Arc<StripeMeta>, u32)>,
}

/// Stripes of one bucket for one pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    pub bucket: BucketId,
    /// The bucket's code; `None` when the bucket is gone and only open orphans are left of it.
    pub code: Option<Code>,
    pub places: Vec<Place>,
    /// Data bytes of them all.
    pub bytes: u64,
    /// The last pack, or stripe, of the list that was looked at: another gathering may begin behind it.
    pub last: StripeId,
}

/// How much one pack takes.
#[derive(Debug, Clone, Copy)]
pub struct PackBounds {
    pub bytes_max: u64,
    pub members_max: usize,
}

struct Gathering<'a> {
    kv: &'a dyn KvRead,
    bounds: PackBounds,
    found: Option<Gathered>,
    last: StripeId,
}

impl<'a> Gathering<'a> {
    fn new(kv: &'a dyn KvRead, bounds: PackBounds) -> Self {
        let members_max = bounds.members_max.clamp(1, PACK_MEMBERS_MAX);
        Self { kv, bounds: PackBounds { members_max, ..bounds }, found: None, last: StripeId::default() }
    }

    fn is_full(&self) -> bool {
        self.found.as_ref().is_some_and(|f| f.places.len() >= self.bounds.members_max || f.bytes >= self.bounds.bytes_max)
    }

    /// Takes one more if it is of the same bucket and fits.
    fn take(&mut self, id: StripeId, record: &StripeRecord, read: Option<(Arc<StripeMeta>, u32)>) {
        let fresh = || Gathered { bucket: record.bucket, code: None, places: Vec::new(), bytes: 0, last: self.last };
        let found = self.found.get_or_insert_with(fresh);
        let len = record.meta.len;
        let room = found.places.len() < self.bounds.members_max && found.bytes + len as u64 <= self.bounds.bytes_max;
        if found.bucket == record.bucket && room {
            found.bytes += len as u64;
            found.places.push(Place { stripe: id, len, from: record.home, read });
        }
    }

    fn record(&self, id: StripeId) -> Result<StripeRecord, StateError> {
        load(self.kv, &keys::stripe(id))?.ok_or_else(|| broken(format!("{id} waits for the packer and has no record")))
    }

    fn take_members(&mut self, pack: StripeId) -> Result<(), StateError> {
        let meta = self.record(pack)?.meta;
        for (at, member) in members(self.kv, pack)? {
            let record = self.record(member.stripe)?;
            self.take(member.stripe, &record, Some((meta.clone(), at)));
        }
        Ok(())
    }

    fn finish(self) -> Result<MetaResult<Option<Gathered>>, StateError> {
        let Some(mut found) = self.found.filter(|f| !f.places.is_empty()) else { return Ok(Ok(None)) };
        found.last = self.last;
        found.code = match bucket::code(self.kv, found.bucket) {
            Ok(code) => code,
            Err(crate::fail::Fail::State(e)) => return Err(e),
            Err(crate::fail::Fail::Meta(e)) => return Ok(Err(e)),
        };
        Ok(Ok(Some(found)))
    }
}

/// Keys of one family, until `take` breaks.
fn visit(kv: &dyn KvRead, family: &[u8], take: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>) -> Result<(), StateError> {
    visit_to(kv, family, &keys::end_of(family), take)
}

fn visit_to(
    kv: &dyn KvRead,
    from: &[u8],
    end: &[u8],
    mut take: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
) -> Result<(), StateError> {
    let (mut failed, mut left) = (Ok(()), VISITS_MAX);
    kv.scan(from, end, &mut |k, v| {
        if left == 0 {
            return ControlFlow::Break(());
        }
        left -= 1;
        take(k, v).unwrap_or_else(|e| {
            failed = Err(e);
            ControlFlow::Break(())
        })
    })?;
    failed
}

fn goes_on(full: bool) -> ControlFlow<()> {
    if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn other_form() -> StateError {
    broken("a key of the packer's lists has another form")
}

pub(super) fn members(kv: &dyn KvRead, pack: StripeId) -> Result<Vec<(u32, Packed)>, StateError> {
    let mut found = Vec::new();
    visit(kv, &keys::packed_all(pack), |k, v| {
        let (_, at) = keys::parse_packed(k).ok_or_else(other_form)?;
        found.push((at, decode(v)?));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// (log index, stripe) of all that is staged, oldest first.
pub fn staged(kv: &dyn KvRead) -> Result<MetaResult<Vec<(u64, StripeId)>>, StateError> {
    let mut found = Vec::new();
    let from = keys::family(keys::STAGED);
    let mut failed = Ok(());
    kv.scan(&from, &keys::end_of(&from), &mut |k, _| match keys::parse_staged(k) {
        Some(at) => {
            found.push(at);
            ControlFlow::Continue(())
        }
        None => {
            failed = Err(other_form());
            ControlFlow::Break(())
        }
    })?;
    failed.map(|()| Ok(found))
}

/// The oldest staged stripe, and what follows of the same bucket.
pub fn gather_staged(kv: &dyn KvRead, bounds: PackBounds) -> Result<MetaResult<Option<Gathered>>, StateError> {
    gather_staged_from(kv, bounds, 0, &|_| false)
}

/// The same from a log index on, passing over those whose bytes are `lost`.
pub fn gather_staged_from(
    kv: &dyn KvRead,
    bounds: PackBounds,
    index: u64,
    lost: &dyn Fn(StripeId) -> bool,
) -> Result<MetaResult<Option<Gathered>>, StateError> {
    let mut g = Gathering::new(kv, bounds);
    let end = keys::end_of(&keys::family(keys::STAGED));
    visit_to(kv, &keys::staged(index, StripeId::default()), &end, |k, _| {
        let (_, id) = keys::parse_staged(k).ok_or_else(other_form)?;
        if !lost(id) {
            let record = g.record(id)?;
            g.take(id, &record, None);
        }
        Ok(goes_on(g.is_full()))
    })?;
    g.finish()
}

/// The first key behind that of `after`, or of the whole list.
fn behind(after: Option<StripeId>, list: Vec<u8>, key: impl Fn(StripeId) -> Vec<u8>) -> Vec<u8> {
    after.map_or(list, |id| [&key(id)[..], &[0]].concat())
}

/// What lives in packs that are less than half live, of those listed behind `after`.
pub fn gather_sparse(kv: &dyn KvRead, after: Option<StripeId>, bounds: PackBounds) -> Result<MetaResult<Option<Gathered>>, StateError> {
    let mut g = Gathering::new(kv, bounds);
    let list = keys::family(keys::SPARSE);
    let end = keys::end_of(&list);
    visit_to(kv, &behind(after, list, keys::sparse), &end, |k, _| {
        g.last = keys::parse_stripe(k).ok_or_else(other_form)?;
        g.take_members(g.last)?;
        Ok(goes_on(g.is_full()))
    })?;
    g.finish()
}

/// Small stripes of one bucket that were published at or before `until`, of those listed behind `after`; of a small pack its members.
pub fn gather_small(
    kv: &dyn KvRead,
    bucket: BucketId,
    until: TimeNs,
    after: Option<StripeId>,
    bounds: PackBounds,
) -> Result<MetaResult<Option<Gathered>>, StateError> {
    let mut g = Gathering::new(kv, bounds);
    let list = keys::small_all(bucket);
    let end = keys::end_of(&list);
    visit_to(kv, &behind(after, list, |id| keys::small(bucket, id)), &end, |k, v| {
        let (_, id) = keys::parse_small(k).ok_or_else(other_form)?;
        g.last = id;
        if decode::<Small>(v)?.since <= until {
            let record = g.record(id)?;
            if members(kv, id)?.is_empty() {
                let meta = record.meta.clone();
                g.take(id, &record, Some((meta, 0)));
            } else {
                g.take_members(id)?;
            }
        }
        Ok(goes_on(g.is_full()))
    })?;
    g.finish()
}

/// Buckets that have small stripes.
pub fn small_buckets(kv: &dyn KvRead) -> Result<MetaResult<Vec<BucketId>>, StateError> {
    let end = keys::end_of(&keys::family(keys::SMALL));
    let (mut found, mut from) = (Vec::new(), keys::family(keys::SMALL));
    loop {
        let mut next = None;
        kv.scan(&from, &end, &mut |k, _| {
            next = Some(keys::parse_small(k).map(|(bucket, _)| bucket));
            ControlFlow::Break(())
        })?;
        let Some(bucket) = next else { return Ok(Ok(found)) };
        let bucket = bucket.ok_or_else(other_form)?;
        found.push(bucket);
        from = keys::end_of(&keys::small_all(bucket));
    }
}
