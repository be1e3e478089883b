//! Segment cleaning: live shards of a chosen segment are copied to the head of the log, then the segment is given back.
//!
//! What always holds. A segment goes only when the copies of all that was alive in it are stable (giving it back flushes first), so a
//! crash finds a shard in its old place or its new one, and of two the later counts. A copy and a delete of one stripe, or a copy and a new
//! put of one shard, are never on their way together, so their order in the log is the order in which they counted. A copy is
//! verified as it is read; a segment with a shard that cannot be read stays until that shard is repaired or deleted. The last segment
//! of the reserve is for copies alone, and a round begins only when all it copies fits: so cleaning can always go on.
//! What it leaves out: a log head of its own for old shards. They gather as far as a round copies many segments at once.
//!
//! Which segments: the highest benefit for the cost, `(1 - u) · age / (1 + u)`, where `u` is the live part of a segment (reading it costs
//! 1, writing what lives costs `u`, and `1 - u` is won), and `age` counts the segments begun since: what has not died for long is
//! not about to (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system", 1992).

use super::index::{Entry, Key};
use super::osd::Inner;
use super::record::KIND_COPY;
use crate::log::{self, Append, Need, Space};
use futures::future::join_all;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::StripeId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Notify;

/// Shards of the index looked at under one lock.
const PIECE: usize = 2048;
/// Bytes copied in one step; between steps others run.
const STEP_BYTES: u64 = 1 << 20;
/// Segments emptied in one round at most.
const VICTIMS_MAX: usize = 16;
/// Segments whose live part is above this are left alone in the background, of a thousand.
const LIVE_MAX: u64 = 920;
/// The same where a put would be refused otherwise.
const LIVE_MAX_URGENT: u64 = 985;

/// What cleaning knows between its steps.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    pub running: bool,
    /// Bytes won in this run …
    pub gained: u64,
    /// … and what writers took meanwhile, weighted (see `pressure`).
    pub spent: u64,
    /// Bytes to be moved until there is enough room again, when last looked at.
    pub debt: u64,
    /// Segments given back since the start, by cleaning or because they were dead.
    pub given_back: u64,
    /// Segments that could not be emptied, with what was alive in them then.
    stuck: BTreeMap<u32, u64>,
}

/// How many segments cleaning keeps free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// It begins when fewer are free …
    pub begin: u32,
    /// … and goes on until these are.
    pub end: u32,
}

impl Marks {
    /// A twentieth of all, so that there are dead ones to choose from, but no more than 64, and a third where there are few. Not more: with 86 %
    /// of the room alive, what is in use is 91 % alive with a twentieth kept free and 96 % with a tenth, and costs twice as much to clean.
    pub fn of(space: &Space) -> Self {
        let begin = (space.segments_normal / 20).clamp(2, 64).min(space.segments_normal / 3);
        Self { begin, end: begin + (begin / 2).max(1) }
    }
}

/// A sealed segment that has live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    life: u32,
    live: u64,
    /// Segments begun since.
    age: u32,
}

impl Candidate {
    fn worth(&self, room: u64) -> f64 {
        let u = (self.live as f64 / room as f64).min(1.0);
        (1.0 - u) * self.age as f64 / (1.0 + u)
    }
}

/// The segments to empty next, best first: those whose copies fit in `copy_room` together.
fn choose(mut all: Vec<Candidate>, room: u64, copy_room: u64, urgent: bool) -> Vec<Candidate> {
    let live_max = room / 1000 * if urgent { LIVE_MAX_URGENT } else { LIVE_MAX };
    all.retain(|c| c.live <= live_max);
    all.sort_by(|a, b| b.worth(room).total_cmp(&a.worth(room)).then(a.life.cmp(&b.life)));
    let mut left = copy_room;
    all.retain(|c| {
        let fits = c.live <= left;
        left -= if fits { c.live } else { 0 };
        fits
    });
    all.truncate(VICTIMS_MAX);
    all
}

/// The shard it names is being copied: deletes and puts of it wait until this is dropped.
struct Moving {
    inner: Arc<Inner>,
    key: Key,
}

impl Drop for Moving {
    fn drop(&mut self) {
        let waiters = self.inner.state.lock().moving.remove(&self.key);
        if let Some(waiters) = waiters {
            waiters.notify_waiters();
        }
    }
}

/// A run of cleaning; its end lets go whoever was slowed for it.
struct Run<'a>(&'a Inner);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        {
            let mut st = self.0.state.lock();
            st.cleaning.running = false;
            (st.cleaning.gained, st.cleaning.spent) = (0, 0);
        }
        self.0.ease();
    }
}

/// What became of one shard.
enum Copied {
    /// It lies elsewhere now, died meanwhile, or is about to.
    Moved,
    /// It cannot be read.
    Stuck,
    /// There is no room for the copy.
    NoRoom,
}

impl Inner {
    /// Empties segments until enough are free, or none is worth it. `pressed`: a put waits for room. The caller holds the housekeeper.
    pub(super) async fn clean(self: &Arc<Self>, pressed: bool) -> log::Result<()> {
        let space = self.log.space();
        let marks = Marks::of(&space);
        self.look_at_debt(&space);
        if space.segments_free >= marks.begin.max(pressed as u32) {
            return Ok(());
        }
        self.state.lock().cleaning.running = true;
        let _run = Run(self);
        loop {
            let space = self.log.space();
            self.look_at_debt(&space);
            let urgent = pressed || space.segments_free <= marks.begin / 3;
            if space.segments_free >= marks.end || !self.clean_some(urgent).await? {
                return Ok(());
            }
            if pressed && self.log.space().segments_free > 0 {
                // Who waited goes on; the rest is done in the background.
                self.state.lock().keeping.new_segment = true;
                return Ok(());
            }
        }
    }

    /// One round: chooses segments, empties them and gives them back. False: there is nothing to be won.
    pub(super) async fn clean_some(self: &Arc<Self>, urgent: bool) -> log::Result<bool> {
        let (space, room) = (self.log.space(), self.log.segment_room());
        let victims = choose(self.candidates(), room, space.cleaning_free.min(4 * room), urgent);
        let (victims, shards) = self.fitting(victims, &space).await;
        if victims.is_empty() {
            return Ok(false);
        }
        let appended = self.state.lock().keeping.appended;
        let copied = self.empty(&victims, &shards).await?;
        self.let_go(true).await?;
        self.ease();
        let others = (self.state.lock().keeping.appended - appended).saturating_sub(copied);
        let won = (self.log.space().cleaning_free + others).saturating_sub(space.cleaning_free);
        if won < room / 16 {
            // Large shards do not fill a segment to its end: what looked dead was the rest that no shard fits in.
            victims.iter().for_each(|c| self.stuck(c.life));
            return Ok(false);
        }
        self.metrics.segments_cleaned.inc_by(victims.len() as u64);
        Ok(true)
    }

    /// What puts may still take, with what cleaning can win back of the segments in use.
    pub(super) fn free_after_cleaning(&self, space: &Space, live: u64) -> u64 {
        let segments = (space.used / self.log.segment_bytes()).min(space.segments_normal as u64) + space.segments_free as u64;
        space.free.max(self.free_of(segments, live))
    }

    /// The same for the cluster's own puts.
    pub(super) fn free_in_background(&self, space: &Space, live: u64) -> u64 {
        let more = space.segments_background as u64;
        let used = space.used / self.log.segment_bytes();
        let segments = used.min(space.segments_normal as u64 + more)
            + space.segments_free as u64
            + more.saturating_sub(used.saturating_sub(space.segments_normal as u64));
        self.free_after_cleaning(space, live).max(self.free_of(segments, live))
    }

    fn free_of(&self, segments: u64, live: u64) -> u64 {
        // One segment is always the head, or the rests that no shard fits in.
        (segments.saturating_sub(1).saturating_mul(self.log.segment_room()) / 1000 * LIVE_MAX_URGENT).saturating_sub(live)
    }

    /// Sealed segments with something alive in them that can be read as far as is known.
    fn candidates(&self) -> Vec<Candidate> {
        let segments = self.log.segments();
        let newest = segments.last().map_or(0, |s| s.life);
        let mut st = self.state.lock();
        let st = &mut *st;
        let live = |life: u32| st.index.lives.get(&life).map_or(0, |l| l.live_bytes);
        // One that lost something since may have lost what could not be read.
        st.cleaning.stuck.retain(|life, was| live(*life) == *was);
        let sealed = segments.iter().filter(|s| s.settled && !st.cleaning.stuck.contains_key(&s.life));
        sealed.map(|s| Candidate { life: s.life, live: live(s.life), age: newest - s.life }).filter(|c| c.live > 0).collect()
    }

    /// The first of these segments whose live shards fit in fresh ones, and those shards in order of place: cleaning that stopped half
    /// way for want of room could leave none for anything.
    async fn fitting(&self, mut victims: Vec<Candidate>, space: &Space) -> (Vec<Candidate>, Vec<(Key, Entry)>) {
        let mut shards: BTreeMap<u32, Vec<(Key, Entry)>> = BTreeMap::new();
        for shard in self.shards_of(&victims.iter().map(|c| c.life).collect()).await {
            shards.entry(shard.1.position.life).or_default().push(shard);
        }
        let room = self.log.segment_room();
        // The rest of the segment in hand may be taken by others meanwhile: half of it where the device has no other.
        let segments = space.segments_cleaning.min(4);
        let (mut opened, mut left) = (0, if segments == 0 { space.cleaning_free / 2 } else { 0 });
        let mut ordered = Vec::new();
        victims.retain(|c| {
            let (mut now, mut rest) = (opened, left);
            for (_, entry) in shards.get(&c.life).into_iter().flatten() {
                let bytes = entry.location().stored_bytes();
                if bytes > rest {
                    (now, rest) = (now + 1, room);
                }
                rest = rest.saturating_sub(bytes);
            }
            if now > segments {
                return false;
            }
            (opened, left) = (now, rest);
            ordered.extend(shards.remove(&c.life).into_iter().flatten());
            true
        });
        (victims, ordered)
    }

    fn look_at_debt(&self, space: &Space) {
        let missing = Marks::of(space).begin.saturating_sub(space.segments_free) as u64;
        let mut debt = 0;
        if missing > 0 {
            let room = self.log.segment_room();
            let mut all = self.candidates();
            all.sort_by_key(|c| (c.live, c.life));
            let mut gained = 0;
            for c in all {
                if gained >= missing * room {
                    break;
                }
                debt += c.live;
                gained += room.saturating_sub(c.live);
            }
        }
        self.state.lock().cleaning.debt = debt;
        self.metrics.debt.set(i64::try_from(debt).unwrap_or(i64::MAX));
    }

    pub(super) fn debt(&self) -> u64 {
        self.state.lock().cleaning.debt
    }

    /// Copies these shards, which are what is alive in `victims`; answers how many bytes. Stops where there is no room.
    async fn empty(self: &Arc<Self>, victims: &[Candidate], shards: &[(Key, Entry)]) -> log::Result<u64> {
        let live: u64 = victims.iter().map(|c| c.live).sum();
        let dead = (self.log.segment_room() * victims.len() as u64).saturating_sub(live);
        let (mut rest, mut all) = (shards, 0);
        while !rest.is_empty() {
            let mut bytes = 0;
            let within = |(_, e): &&(Key, Entry)| {
                bytes += e.location().stored_bytes();
                bytes <= STEP_BYTES
            };
            let n = rest.iter().take_while(within).count().max(1);
            let (step, later) = rest.split_at(n);
            rest = later;
            let done = join_all(step.iter().map(|(key, entry)| self.copy(*key, *entry))).await;
            let mut no_room = false;
            for (copied, (_, entry)) in done.into_iter().zip(step) {
                match copied? {
                    Copied::Moved => {}
                    Copied::Stuck => self.stuck(entry.position.life),
                    Copied::NoRoom => no_room = true,
                }
            }
            if no_room {
                return Ok(all);
            }
            let bytes: u64 = step.iter().map(|(_, e)| e.location().stored_bytes()).sum();
            all += bytes;
            self.metrics.cleaned_bytes.inc_by(bytes);
            self.state.lock().cleaning.gained += (bytes as u128 * dead as u128 / live.max(1) as u128) as u64;
            self.ease();
            tokio::task::yield_now().await;
        }
        Ok(all)
    }

    /// The live shards of some segments, by place. A look through the whole index, piece by piece.
    async fn shards_of(&self, lives: &BTreeSet<u32>) -> Vec<(Key, Entry)> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let mut seen = 0;
            {
                let st = self.state.lock();
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                for (key, entry) in st.index.shards.range((from, Bound::Unbounded)).take(PIECE) {
                    (seen, after) = (seen + 1, Some(*key));
                    if lives.contains(&entry.position.life) {
                        found.push((*key, *entry));
                    }
                }
            }
            if seen < PIECE {
                break;
            }
            tokio::task::yield_now().await;
        }
        found.sort_by_key(|(_, e)| e.position);
        found
    }

    fn stuck(&self, life: u32) {
        let mut st = self.state.lock();
        let live = st.index.lives.get(&life).map_or(0, |l| l.live_bytes);
        st.cleaning.stuck.insert(life, live);
    }

    /// The right to copy a shard that is still where it was. `None`: it is not, or somebody is about to change that.
    fn claim(self: &Arc<Self>, key: Key, entry: Entry) -> Option<Moving> {
        let mut st = self.state.lock();
        let there = st.index.shards.get(&key) == Some(&entry);
        let stripe: StripeId = key.stripe();
        if !there || st.deleting.contains_key(&stripe) || st.pending.contains_key(&key) {
            return None;
        }
        st.moving.insert(key, Arc::new(Notify::new()));
        Some(Moving { inner: self.clone(), key })
    }

    async fn copy(self: &Arc<Self>, key: Key, entry: Entry) -> log::Result<Copied> {
        let Some(claim) = self.claim(key, entry) else { return Ok(Copied::Moved) };
        let at = entry.location();
        let (head, data) = match self.log.read_with_head(&at, 0, at.payload_bytes).await {
            Ok(read) => read,
            Err(log::Error::Gone(_)) => return Ok(Copied::Moved),
            Err(e) => {
                failpoint::reached("osd.clean_unreadable");
                let why = self.unreadable(key.into(), e);
                tracing::warn!(osd = %self.id(), %why, "a segment cannot be cleaned");
                return Ok(Copied::Stuck);
            }
        };
        if self.check(key.into(), &head).is_err() {
            return Ok(Copied::Stuck);
        }
        let append =
            Append { kind: KIND_COPY, meta: head.meta.clone(), payload: data, crcs: Some(head.crcs.clone()), need: Need::Cleaning };
        let this = self.clone();
        let appended = self.log.append_then(append, move |appended| {
            {
                let entry = Entry::new(&appended.location).expect("as long as the shard it copies");
                let mut st = this.state.lock();
                st.keeping.appended(&appended.location);
                st.index.insert(key, entry);
            }
            drop(claim);
        });
        match appended.await {
            Ok(_) => Ok(Copied::Moved),
            Err(log::Error::Full) => Ok(Copied::NoRoom),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1000;

    fn c(life: u32, live: u64, age: u32) -> Candidate {
        Candidate { life, live, age }
    }

    fn lives(chosen: Vec<Candidate>) -> Vec<u32> {
        chosen.iter().map(|c| c.life).collect()
    }

    #[test]
    fn of_two_equally_full_the_older_is_cleaned_and_of_two_equally_old_the_emptier() {
        assert_eq!(lives(choose(vec![c(9, 500, 1), c(1, 500, 9)], ROOM, 10_000, false)), [1, 9]);
        assert_eq!(lives(choose(vec![c(1, 800, 9), c(2, 200, 9)], ROOM, 10_000, false)), [2, 1]);
        assert_eq!(lives(choose(vec![c(1, 700, 90), c(9, 300, 1)], ROOM, 10_000, false)), [1, 9], "age outweighs");
    }

    #[test]
    fn what_does_not_fit_or_is_not_worth_it_is_left_alone() {
        assert_eq!(lives(choose(vec![c(1, 600, 9), c(2, 600, 8), c(3, 300, 1)], ROOM, 1000, false)), [1, 3]);
        assert_eq!(lives(choose(vec![c(1, 950, 9)], ROOM, 1000, false)), Vec::<u32>::new());
        assert_eq!(lives(choose(vec![c(1, 950, 9)], ROOM, 1000, true)), [1]);
        assert_eq!(lives(choose(vec![c(1, 990, 9)], ROOM, 1000, true)), Vec::<u32>::new());
    }

    #[test]
    fn marks_leave_a_small_log_most_of_its_room() {
        let of = |segments_normal| Marks::of(&Space { segments_normal, ..Space::default() });
        assert_eq!(of(1), Marks { begin: 0, end: 1 });
        assert_eq!(of(6), Marks { begin: 2, end: 3 });
        assert_eq!(of(60), Marks { begin: 3, end: 4 });
        assert_eq!(of(16_000), Marks { begin: 64, end: 96 });
    }
}
