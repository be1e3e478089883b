//! Checks maps, parts and stripes against each other, and the totals.

use super::names::Inodes;
use super::{Report, number, packs};
use crate::map::{CHUNK, is_sound};
use crate::record::{Body, Chunk, Completed, Inode, Orphan, Part, Piece, Pieces, Retired, Stats, StripeRecord, UploadRecord, decode, load};
use crate::{ids, keys};
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Home};
use holdfast_objstore_proto::{InodeId, StripeId, UploadId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Live = BTreeMap<StripeId, u64>;
pub(super) type Stripes = BTreeMap<StripeId, StripeRecord>;

pub(super) fn check(r: &mut Report, inodes: &Inodes) {
    let stripes: Stripes = r
        .all::<StripeRecord>(keys::STRIPE)
        .into_iter()
        .map(|(k, v)| (k.try_into().map(StripeId::from_bytes).unwrap_or_default(), v))
        .collect();
    let mut live = Live::new();
    maps(r, inodes, &stripes, &mut live);
    parts(r, &stripes, &mut live);
    let mut stats = Stats { inodes: inodes.len() as u64, live: live.values().sum(), ..Stats::default() };
    packs::check(r, &stripes, &mut live, &mut stats);
    stats.retired = stripe_records(r, &stripes, &live);
    match load::<Stats>(r.kv, &keys::stats()) {
        Ok(found) => {
            let found = found.unwrap_or_default();
            r.expect(found == stats, || format!("the totals say {found:?}, counted are {stats:?}"));
        }
        Err(e) => r.say(e.to_string()),
    }
}

fn refer(r: &mut Report, stripes: &Stripes, live: &mut Live, stripe: StripeId, at: u32, len: u32, who: &str) {
    let fits = stripes.get(&stripe).is_some_and(|s| at as u64 + len as u64 <= s.meta.len as u64);
    r.expect(fits, || format!("{who} refers to bytes of {stripe} that are not there"));
    *live.entry(stripe).or_default() += len as u64;
}

fn maps(r: &mut Report, inodes: &Inodes, stripes: &Stripes, live: &mut Live) {
    let mut mapped: BTreeMap<InodeId, u64> = BTreeMap::new();
    // The split chunk whose blocks may follow.
    let mut split: Option<(InodeId, u32, u64)> = None;
    // Of split chunks: the fragments they say they have, and those found.
    let mut counts: BTreeMap<(InodeId, u32), (u32, Vec<Piece>)> = BTreeMap::new();
    for (key, value) in r.raw(keys::CHUNK) {
        let full = [&[keys::CHUNK][..], &key].concat();
        let Some((ino, chunk, block)) = keys::parse_chunk(&full) else {
            r.say(format!("key {key:02x?} of the maps has another form"));
            continue;
        };
        let who = format!("chunk {chunk} of {ino}");
        let decoded: Result<(Vec<Piece>, Option<u64>, bool), _> = match block {
            None => decode::<Chunk>(&value).map(|c| match c {
                Chunk::Whole { born, pieces } => (pieces, Some(born), false),
                Chunk::Split { born, fragments } => {
                    counts.insert((ino, chunk), (fragments, Vec::new()));
                    (Vec::new(), Some(born), true)
                }
            }),
            Some(_) => decode::<Pieces>(&value).map(|p| (p.0, None, false)),
        };
        let (pieces, born, is_split) = match decoded {
            Ok(d) => d,
            Err(e) => {
                r.say(format!("{who}: {e}"));
                continue;
            }
        };
        let born = match (born, split) {
            (Some(born), _) => born,
            (None, Some((i, c, born))) if (i, c) == (ino, chunk) => born,
            _ => {
                r.say(format!("{who} has blocks and no head that says so"));
                continue;
            }
        };
        if block.is_none() {
            split = is_split.then_some((ino, chunk, born));
        }
        let (from, to) = block.map_or((0, CHUNK), |b| (b as u32 * (64 << 10), (b as u32 + 1) * (64 << 10)));
        r.expect(is_sound(&pieces, from, to), || format!("{who}: pieces overlap or leave it"));
        if let Some((_, found)) = counts.get_mut(&(ino, chunk)) {
            pieces.iter().for_each(|p| crate::map::append(found, *p));
        }
        let Some(inode) = inodes.get(&ino).filter(|i| matches!(i.body, Body::File { .. })) else {
            r.say(format!("{who}: there is no such file"));
            continue;
        };
        within_size(r, inode, chunk, born, &pieces, &who);
        for p in &pieces {
            *mapped.entry(ino).or_default() += p.len as u64;
            refer(r, stripes, live, p.stripe, p.at, p.len, &who);
        }
    }
    for ((ino, chunk), (said, found)) in counts {
        r.expect(said as usize == found.len(), || format!("chunk {chunk} of {ino} says it has {said} fragments, it has {}", found.len()));
    }
    for (ino, inode) in inodes {
        let found = mapped.get(ino).copied().unwrap_or(0);
        r.expect(inode.mapped == found, || format!("{ino} says {} bytes are mapped, {found} are", inode.mapped));
    }
}

fn within_size(r: &mut Report, inode: &Inode, chunk: u32, born: u64, pieces: &[Piece], who: &str) {
    if !inode.dead(chunk, born) {
        let end = pieces.last().map_or(0, |p| chunk as u64 * CHUNK_BYTES + p.start as u64 + p.len as u64);
        r.expect(end <= inode.size, || format!("{who} maps bytes beyond the file's size"));
        r.expect(born <= inode.number, || format!("{who} is younger than its inode"));
    }
}

fn parts(r: &mut Report, stripes: &Stripes, live: &mut Live) {
    let uploads: BTreeMap<UploadId, UploadRecord> =
        r.all::<UploadRecord>(keys::UPLOAD).into_iter().map(|(k, v)| (UploadId(number(&k, 0)), v)).collect();
    let abandoned: BTreeSet<UploadId> =
        r.all::<Orphan>(keys::ORPHAN).into_iter().filter_map(|(_, o)| if let Orphan::Parts { of } = o { Some(of) } else { None }).collect();
    let mut listed = 0;
    for (key, _) in r.raw(keys::UPLOAD_KEY) {
        listed += 1;
        let id = UploadId(keys::tail_u64(&key).unwrap_or_default());
        let fits = uploads.get(&id).is_some_and(|u| keys::upload_key(u.bucket, &u.key, id)[1..] == key[..]);
        r.expect(fits, || format!("{id} is listed under another key than its own"));
    }
    r.expect(listed == uploads.len(), || "uploads and their list disagree".into());
    for (key, part) in r.all::<Part>(keys::PART) {
        let id = UploadId(number(&key, 0));
        let who = format!("a part of {id}");
        r.expect(uploads.contains_key(&id) != abandoned.contains(&id), || format!("{who} belongs to nothing"));
        for e in &part.extents {
            refer(r, stripes, live, e.stripe, e.stripe_offset, e.len, &who);
        }
    }
    let ordered = r.all::<UploadId>(keys::COMPLETED_ORDER);
    let completed: BTreeSet<UploadId> = r.all::<Completed>(keys::COMPLETED).into_iter().map(|(k, _)| UploadId(number(&k, 0))).collect();
    let same = ordered.len() == completed.len() && ordered.iter().all(|(_, id)| completed.contains(id));
    r.expect(same, || "completed uploads and their order disagree".into());
}

/// Answers how many stripes are retired.
fn stripe_records(r: &mut Report, stripes: &Stripes, live: &Live) -> u64 {
    let mut missing: BTreeSet<StripeId> =
        r.raw(keys::MISSING).into_iter().map(|(k, _)| k.try_into().map(StripeId::from_bytes).unwrap_or_default()).collect();
    for (id, s) in stripes {
        let found = live.get(id).copied().unwrap_or(0);
        r.expect(s.live == found && found > 0, || format!("{id} says {} bytes of it are live, {found} are", s.live));
        r.expect(s.meta.id == *id, || format!("{id} has the record of {}", s.meta.id));
        let listed = missing.remove(id);
        r.expect(listed == (s.meta.missing != 0), || format!("{id} and the repair queue disagree"));
        match ids::stripe_is_open(r.kv, *id) {
            Ok(open) => r.expect(!open, || format!("{id} is in use and could be used again")),
            Err(e) => r.say(e.to_string()),
        }
    }
    r.expect(missing.is_empty(), || "the repair queue names stripes that are not there".into());
    let retired = r.all::<Retired>(keys::RETIRED);
    for (key, rec) in &retired {
        let id = rec.meta.id;
        let in_use = stripes.get(&id).is_some_and(|s| s.home == Home::Shards);
        r.expect(key[..] == id.to_bytes() && !in_use, || format!("{id} is retired and in use, or under another id"));
    }
    retired.len() as u64
}
