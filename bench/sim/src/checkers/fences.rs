//! Nothing of an ended session arrives later: once an OSD has said that a range of stripe ids is fenced, it takes no shard of it
//! from a client any more, in that life. (Each start fences all closed ranges anew, before an OSD serves.)

use holdfast_objstore_proto::shard::{Error, Result, ShardKey, TASK_SESSION};
use holdfast_objstore_proto::{OsdId, SessionId, StripeRange};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// What the OSDs said of one life.
#[derive(Default)]
pub struct Fences(Mutex<State>);

#[derive(Default)]
struct State {
    raised: BTreeMap<OsdId, Vec<StripeRange>>,
    broken: Option<String>,
    refused: u64,
}

/// A shard that arrived, and whether it must be refused.
pub struct Arrival {
    osd: OsdId,
    key: ShardKey,
    session: SessionId,
    late: bool,
}

impl Fences {
    /// A new life begins.
    pub fn begin(&self) {
        let mut s = self.0.lock();
        s.raised.clear();
    }

    pub fn raised(&self, osd: OsdId, ranges: &[StripeRange]) {
        let mut s = self.0.lock();
        let known = s.raised.entry(osd).or_default();
        ranges.iter().for_each(|r| {
            if !known.contains(r) {
                known.push(*r);
            }
        });
    }

    pub fn arrives(&self, osd: OsdId, key: ShardKey, session: SessionId) -> Arrival {
        let s = self.0.lock();
        let fenced = s.raised.get(&osd).is_some_and(|all| all.iter().any(|r| r.contains(key.stripe)));
        Arrival { osd, key, session, late: fenced && session != TASK_SESSION }
    }

    pub fn answered(&self, arrival: Arrival, done: &Result<()>) {
        let mut s = self.0.lock();
        let Arrival { osd, key, session, late } = arrival;
        if late && done.is_ok() {
            s.broken.get_or_insert_with(|| format!("{osd} took shard {key} of {session}, whose range it had said it fenced"));
        }
        s.refused += matches!(done, Err(Error::Fenced { .. })) as u64;
    }

    /// Late shards that were refused so far.
    pub fn refused(&self) -> u64 {
        self.0.lock().refused
    }

    pub fn check(&self) -> std::result::Result<(), String> {
        self.0.lock().broken.clone().map_or(Ok(()), Err)
    }
}
