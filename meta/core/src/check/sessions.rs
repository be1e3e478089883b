//! Checks sessions, their replies and their id blocks, and the counters of them.

use super::{Report, number};
use crate::keys::{self, BlockId};
use crate::record::{Block, BucketRecord, Counters, Session, load};
use crate::session::SERVICE_SESSION;
use holdfast_objstore_proto::SessionId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(r: &mut Report) {
    let sessions: BTreeMap<SessionId, Session> =
        r.all::<Session>(keys::SESSION).into_iter().map(|(k, v)| (SessionId(number(&k, 0)), v)).collect();
    for (key, _) in r.raw(keys::REPLY) {
        let (session, seq) = (SessionId(number(&key, 0)), number(&key, 8));
        r.expect(sessions.get(&session).is_some_and(|s| seq > s.trimmed), || format!("reply {seq} of {session} should be forgotten"));
    }
    let owned: BTreeSet<Vec<u8>> = r.raw(keys::OWNED).into_iter().map(|(k, _)| k).collect();
    let mut held: BTreeMap<(SessionId, bool), u32> = BTreeMap::new();
    let blocks = r.all::<Block>(keys::BLOCK);
    for (key, b) in &blocks {
        let listed = owned.contains(&[&b.session.0.to_be_bytes()[..], key].concat());
        r.expect(listed, || format!("id block {key:02x?} is not on the list of {}", b.session));
        r.expect(sessions.contains_key(&b.session), || format!("id block {key:02x?} belongs to {}, which is over", b.session));
        let used: u32 = b.used.iter().map(|b| b.count_ones()).sum();
        r.expect(used < b.count as u32, || format!("id block {key:02x?} is all used"));
        match BlockId::from_bytes(key) {
            Some(id) => *held.entry((b.session, matches!(id, BlockId::Stripes { .. }))).or_default() += 1,
            None => r.say(format!("id block {key:02x?} has a key of another form")),
        }
    }
    r.expect(owned.len() == blocks.len(), || "id blocks and their lists disagree".into());
    for (id, s) in &sessions {
        let count = |stripes| held.get(&(*id, stripes)).copied().unwrap_or(0);
        let found = (count(true), count(false));
        r.expect(found == (s.stripe_blocks, s.inode_blocks), || {
            format!("{id} says it holds {:?} id blocks, it holds {found:?}", (s.stripe_blocks, s.inode_blocks))
        });
    }
    let buckets = r.all::<BucketRecord>(keys::BUCKET).len() as u32;
    match load::<Counters>(r.kv, &keys::counters()) {
        Ok(Some(c)) => {
            let open = sessions.keys().filter(|s| **s != SERVICE_SESSION).count() as u32;
            r.expect(c.sessions == open, || format!("{} sessions are counted, there are {open}", c.sessions));
            r.expect(c.buckets == buckets, || format!("{} buckets are counted, there are {buckets}", c.buckets));
            r.expect(sessions.keys().all(|s| s.0 < c.session), || "a session has an id that was never given".into());
        }
        Ok(None) => r.say("there are no counters"),
        Err(e) => r.say(e.to_string()),
    }
}
