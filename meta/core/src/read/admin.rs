//! What the service reads for its background work and for `status`.

use crate::fail::broken;
use crate::record::{Retired, Session, StripeRecord, decode, load};
use crate::session::SERVICE_SESSION;
use crate::{KvRead, StateError, ids, keys};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Home, MetaResult, TimeNs};
use holdfast_objstore_proto::{InodeId, SessionEpoch, SessionId, StripeId, StripeMeta};
use std::ops::ControlFlow;
use std::sync::Arc;

/// (id, epoch, the name the client gave itself, when it was opened).
pub type SessionInfo = (SessionId, SessionEpoch, String, TimeNs);
/// Ids to send `ReapOrphan` for.
pub type Orphans = Vec<InodeId>;

use super::Stats;

/// Totals, kept as counters: never a scan.
pub fn stats(kv: &dyn KvRead) -> Result<MetaResult<Stats>, StateError> {
    Ok(Ok(load(kv, &keys::stats())?.unwrap_or_default()))
}

/// Pairs of one family with keys above `after`, at most `max`.
fn page(kv: &dyn KvRead, family: u8, after: Option<Vec<u8>>, max: usize) -> Result<Vec<(Vec<u8>, Bytes)>, StateError> {
    let family = keys::family(family);
    let to = keys::end_of(&family);
    let from = match after {
        Some(mut key) => {
            key.push(0);
            key
        }
        None => family,
    };
    let mut found = Vec::new();
    if max > 0 {
        kv.scan(&from, &to, &mut |k, v| {
            found.push((k.to_vec(), Bytes::copy_from_slice(v)));
            if found.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok(found)
}

/// What waits to be freed, in order of ids: inodes without names (send `ReapOrphan` once nobody has them open), and hidden ids
/// that nobody can have open.
pub fn orphans(kv: &dyn KvRead, after: Option<InodeId>, max: usize) -> Result<MetaResult<Orphans>, StateError> {
    let found = page(kv, keys::ORPHAN, after.map(keys::orphan), max)?;
    let ids = found.iter().map(|(k, _)| keys::tail_u64(k).map(InodeId).ok_or_else(|| broken("an orphan's key has another form")));
    Ok(Ok(ids.collect::<Result<_, _>>()?))
}

/// Stripes no map refers to, waiting for deletion at the OSDs (then `ForgetStripes`), in order of ids.
pub fn retired(kv: &dyn KvRead, after: Option<StripeId>, max: usize) -> Result<MetaResult<Vec<Arc<StripeMeta>>>, StateError> {
    let found = page(kv, keys::RETIRED, after.map(keys::retired), max)?;
    Ok(Ok(found.iter().map(|(_, v)| decode::<Retired>(v).map(|r| r.meta)).collect::<Result<_, _>>()?))
}

/// Published stripes with missing shards: the repair queue, in order of ids.
pub fn missing(kv: &dyn KvRead, after: Option<StripeId>, max: usize) -> Result<MetaResult<Vec<Arc<StripeMeta>>>, StateError> {
    let mut stripes = Vec::new();
    for (key, _) in page(kv, keys::MISSING, after.map(keys::missing), max)? {
        let id = keys::parse_stripe(&key).ok_or_else(|| broken("a key of the repair queue has another form"))?;
        let record: StripeRecord =
            load(kv, &keys::stripe(id))?.ok_or_else(|| broken(format!("{id} waits for repair and has no record")))?;
        stripes.push(record.meta);
    }
    Ok(Ok(stripes))
}

/// The record of a stripe that something refers to.
pub fn stripe(kv: &dyn KvRead, id: StripeId) -> Result<MetaResult<Option<Arc<StripeMeta>>>, StateError> {
    Ok(Ok(load::<StripeRecord>(kv, &keys::stripe(id))?.map(|r| r.meta)))
}

/// The records of stripes that something refers to, in order of ids.
pub fn stripes(kv: &dyn KvRead, after: Option<StripeId>, max: usize) -> Result<MetaResult<Vec<Arc<StripeMeta>>>, StateError> {
    let found = page(kv, keys::STRIPE, after.map(keys::stripe), max)?;
    Ok(Ok(found.iter().map(|(_, v)| decode::<StripeRecord>(v).map(|r| r.meta)).collect::<Result<_, _>>()?))
}

/// For each id: is it referred to, does it wait for its deletion, or may a living session still publish it? All others may be deleted at the
/// OSDs at once. One that waits is not for anybody else to delete: readers may still have a map that names it.
pub fn stripes_live(kv: &dyn KvRead, stripes: &[StripeId]) -> Result<MetaResult<Vec<bool>>, StateError> {
    // A stripe that is staged or packed has no shards: what an OSD holds under its id is left over.
    let has_shards =
        |id: &StripeId| Ok::<_, StateError>(load::<StripeRecord>(kv, &keys::stripe(*id))?.is_some_and(|r| r.home == Home::Shards));
    let waits = |id: &StripeId| Ok::<_, StateError>(kv.get(&keys::retired(*id))?.is_some());
    let live = |id: &StripeId| Ok(has_shards(id)? || waits(id)? || ids::stripe_is_open(kv, *id)?);
    Ok(Ok(stripes.iter().map(live).collect::<Result<_, StateError>>()?))
}

/// Open sessions in order of ids, without the service's own.
pub fn sessions(kv: &dyn KvRead) -> Result<MetaResult<Vec<SessionInfo>>, StateError> {
    let mut all = Vec::new();
    for (key, value) in page(kv, keys::SESSION, Some(keys::session(SERVICE_SESSION)), usize::MAX)? {
        let id = SessionId(keys::tail_u64(&key).ok_or_else(|| broken("a session's key has another form"))?);
        let s: Session = decode(&value)?;
        all.push((id, s.epoch, s.client, s.opened));
    }
    Ok(Ok(all))
}
