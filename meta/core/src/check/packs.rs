//! Checks staged and packed stripes against the lists they are in, and packs against their members.

use super::Report;
use super::data::{Live, Stripes};
use crate::keys;
use crate::record::{Packed, Small, Stats};
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::meta::Home;
use holdfast_objstore_proto::stripe::COPIES_BYTES_MAX;
use std::collections::BTreeSet;

/// Adds members to what is live of their packs, and counts stripes by where they are.
pub(super) fn check(r: &mut Report, stripes: &Stripes, live: &mut Live, stats: &mut Stats) {
    let (mut staged, mut packed) = (0, 0);
    for (id, s) in stripes {
        let len = s.meta.len as u64;
        r.expect(s.meta.is_bare() == (s.home != Home::Shards), || format!("{id} has shards and is kept elsewhere, or neither"));
        let listed = match s.home {
            Home::Shards => {
                (stats.stripes, stats.bytes) = (stats.stripes + 1, stats.bytes + len);
                Ok(true)
            }
            Home::Staged { index } => {
                (stats.staged, stats.staged_bytes) = (stats.staged + 1, stats.staged_bytes + len);
                r.kv.get(&keys::staged(index, *id)).map(|v| v.is_some())
            }
            Home::Packed { pack, at } => {
                (stats.packed, stats.packed_bytes) = (stats.packed + 1, stats.packed_bytes + len);
                r.kv.get(&keys::packed(pack, at)).map(|v| v.is_some())
            }
        };
        match listed {
            Ok(listed) => r.expect(listed, || format!("{id} is not listed where it is kept")),
            Err(e) => r.say(e.to_string()),
        }
    }
    for (key, _) in r.raw(keys::STAGED) {
        staged += 1;
        let full = [&[keys::STAGED][..], &key].concat();
        let fits = keys::parse_staged(&full).is_some_and(|(index, id)| stripes.get(&id).is_some_and(|s| s.home == Home::Staged { index }));
        r.expect(fits, || format!("key {key:02x?} lists a stripe that is not staged"));
    }
    let mut packs: BTreeSet<StripeId> = BTreeSet::new();
    let mut last: Option<(StripeId, u64)> = None;
    for (key, member) in r.all::<Packed>(keys::PACKED) {
        packed += 1;
        let full = [&[keys::PACKED][..], &key].concat();
        let Some((pack, at)) = keys::parse_packed(&full) else {
            r.say(format!("key {key:02x?} of the packs has another form"));
            continue;
        };
        let end = at as u64 + member.len as u64;
        let fits = stripes.get(&member.stripe).is_some_and(|s| s.home == Home::Packed { pack, at } && s.meta.len == member.len);
        r.expect(fits, || format!("{pack} lists {}, which is elsewhere", member.stripe));
        let holds = stripes.get(&pack).is_some_and(|p| p.home == Home::Shards && end <= p.meta.len as u64);
        r.expect(holds && last.is_none_or(|(p, end)| p != pack || end <= at as u64), || format!("{pack} cannot hold {}", member.stripe));
        last = Some((pack, end));
        packs.insert(pack);
        *live.entry(pack).or_default() += member.len as u64;
    }
    r.expect((staged, packed) == (stats.staged, stats.packed), || "the lists of staged and packed stripes have others too".into());
    let plain = stripes.iter().filter(|(id, s)| s.home == Home::Shards && !packs.contains(id));
    stats.dead = plain.map(|(id, s)| (s.meta.len as u64).saturating_sub(live.get(id).copied().unwrap_or(0))).sum();
    for pack in &packs {
        stats.packs += 1;
        stats.pack_bytes += stripes.get(pack).map_or(0, |p| p.meta.len as u64);
    }
    waiting(r, stripes, live, &packs, stats);
}

/// The packer's two queues.
fn waiting(r: &mut Report, stripes: &Stripes, live: &Live, packs: &BTreeSet<StripeId>, stats: &mut Stats) {
    let is_sparse = |id: &StripeId| {
        let bytes = live.get(id).copied().unwrap_or(0);
        packs.contains(id) && stripes.get(id).is_some_and(|p| bytes * 2 < p.meta.len as u64)
    };
    let listed: BTreeSet<StripeId> =
        r.raw(keys::SPARSE).into_iter().map(|(k, _)| k.try_into().map(StripeId::from_bytes).unwrap_or_default()).collect();
    let sparse: BTreeSet<StripeId> = packs.iter().filter(|p| is_sparse(p)).copied().collect();
    r.expect(listed == sparse, || "the list of packs less than half live is another".into());
    stats.sparse = listed.len() as u64;
    for (key, _) in r.all::<Small>(keys::SMALL) {
        stats.small += 1;
        let full = [&[keys::SMALL][..], &key].concat();
        let fits = keys::parse_small(&full).is_some_and(|(bucket, id)| {
            stripes.get(&id).is_some_and(|s| s.home == Home::Shards && s.bucket == bucket && s.meta.len <= COPIES_BYTES_MAX)
        });
        r.expect(fits, || format!("key {key:02x?} lists a stripe that is not small"));
    }
}
