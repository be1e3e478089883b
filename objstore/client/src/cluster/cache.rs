//! Runs of stripes that were fetched ahead, and those on their way.
//!
//! What always holds: stripes are immutable, so an entry is right for as long as it is there. Every byte, also of a fetch under way,
//! is charged to the budget and counts against the cache's own limit. An entry is one fetch's buffers, whole: evicting it frees them.
//! Entries do not overlap. Only prefetching fills it: a plain read costs no copy and evicts nothing.
//! Eviction takes what was read through once before what nobody has read yet, each in order of age.

use crate::cluster::prefetch::Fetch;
use bytes::Bytes;
use holdfast_objstore_base::budget::{Budget, Charge};
use holdfast_objstore_proto::StripeId;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What entries begin and end on (or at the end of their stripe), so that odd read-ahead windows do not leave crumbs.
pub(crate) const UNIT: u32 = 64 << 10;

/// Room taken for one entry: of the budget and of the cache's limit.
pub(crate) struct Room {
    bytes: u64,
    taken: Arc<AtomicU64>,
    _charge: Charge,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Fetched data of a range of a stripe.
pub(crate) struct Fetched {
    pub range: Range<u32>,
    pieces: Vec<Bytes>,
    _room: Room,
}

impl Fetched {
    pub fn new(range: Range<u32>, pieces: Vec<Bytes>, room: Room) -> Arc<Fetched> {
        Arc::new(Fetched { range, pieces, _room: room })
    }

    /// Adds the bytes of `part`, which lies within the range, to `to`, without a copy.
    pub fn slice(&self, part: Range<u32>, to: &mut Vec<Bytes>) {
        let (mut at, end) = ((part.start - self.range.start) as usize, (part.end - self.range.start) as usize);
        let mut begins = 0;
        for piece in &self.pieces {
            let ends = begins + piece.len();
            if at < ends && at < end {
                let stop = end.min(ends);
                to.push(piece.slice(at - begins..stop - begins));
                at = stop;
            }
            begins = ends;
        }
    }
}

#[derive(Clone)]
enum Body {
    Coming(Arc<Fetch>),
    Here(Arc<Fetched>),
}

struct Entry {
    range: Range<u32>,
    body: Body,
    /// Its place in the order of eviction, once it is here.
    rank: Rank,
    /// Bytes answered from it so far.
    read: u32,
}

impl Entry {
    fn read_through(&self) -> bool {
        self.read as usize >= self.range.len()
    }
}

/// Entries go in this order: those read through, then the others, each by age.
type Rank = (Reverse<bool>, u64);

#[derive(Default)]
struct State {
    /// Entries of each stripe in order, without overlap.
    stripes: HashMap<StripeId, SmallVec<[Entry; 4]>>,
    /// Entries that are here, by rank, with their first byte.
    order: BTreeMap<Rank, (StripeId, u32)>,
    ranks: u64,
    coming: usize,
}

impl State {
    fn next_rank(&mut self, read_through: bool) -> Rank {
        self.ranks += 1;
        (Reverse(read_through), self.ranks)
    }

    /// Takes out the entry that begins at `start`.
    fn remove(&mut self, stripe: StripeId, start: u32) {
        let Some(entries) = self.stripes.get_mut(&stripe) else { return };
        let Some(at) = entries.iter().position(|e| e.range.start == start) else { return };
        let gone = entries.remove(at);
        if entries.is_empty() {
            self.stripes.remove(&stripe);
        }
        self.discard(gone);
    }

    fn discard(&mut self, gone: Entry) {
        match gone.body {
            Body::Here(_) => drop(self.order.remove(&gone.rank)),
            Body::Coming(_) => self.coming -= 1,
        }
    }

    fn entries(&self) -> usize {
        self.order.len() + self.coming
    }
}

/// Where a part of a read comes from.
pub(crate) enum Part {
    Here(Arc<Fetched>, Range<u32>),
    Coming(Arc<Fetch>, Range<u32>),
    Absent(Range<u32>),
}

pub(crate) struct Cache {
    state: Mutex<State>,
    budget: Budget,
    bytes_max: u64,
    taken: Arc<AtomicU64>,
    /// Entries of any kind: reads look no further when there are none.
    entries: AtomicUsize,
}

impl Cache {
    pub fn new(budget: Budget, bytes_max: u64) -> Self {
        let bytes_max = bytes_max.min(budget.bytes_max());
        Self { state: Mutex::default(), budget, bytes_max, taken: Arc::default(), entries: AtomicUsize::new(0) }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.load(Ordering::Acquire) == 0
    }

    pub fn bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Cuts `range` by where its bytes are, in order.
    pub fn look(&self, stripe: StripeId, range: Range<u32>) -> SmallVec<[Part; 4]> {
        let mut parts = SmallVec::new();
        let mut at = range.start;
        let mut state = self.state.lock();
        let State { stripes, order, ranks, .. } = &mut *state;
        for entry in stripes.get_mut(&stripe).into_iter().flatten() {
            if entry.range.start >= range.end || entry.range.end <= range.start {
                continue;
            }
            if entry.range.start > at {
                parts.push(Part::Absent(at..entry.range.start));
            }
            let part = entry.range.start.max(at)..entry.range.end.min(range.end);
            at = part.end;
            let before = entry.read_through();
            entry.read = entry.read.saturating_add(part.len() as u32);
            match &entry.body {
                Body::Coming(fetch) => parts.push(Part::Coming(fetch.clone(), part)),
                Body::Here(fetched) => {
                    parts.push(Part::Here(fetched.clone(), part));
                    if !before && entry.read_through() {
                        order.remove(&entry.rank);
                        *ranks += 1;
                        entry.rank = (Reverse(true), *ranks);
                        order.insert(entry.rank, (stripe, entry.range.start));
                    }
                }
            }
        }
        if at < range.end {
            parts.push(Part::Absent(at..range.end));
        }
        parts
    }

    /// Makes entries for what is absent of `range`, each at most `run_max` bytes, as far as there is room; answers what to fetch, and
    /// how many runs there was no room for.
    pub fn begin(&self, stripe: StripeId, range: Range<u32>, run_max: u32, coming_max: usize) -> (Vec<Begun>, u64) {
        let (mut begun, mut refused) = (Vec::new(), 0);
        let mut state = self.state.lock();
        let absent = absent(state.stripes.get(&stripe).map_or(&[], |e| &e[..]), range);
        for run in absent.into_iter().flat_map(|gap| runs(gap, run_max)) {
            let room = if state.coming < coming_max { self.room(&mut state, run.len() as u64) } else { None };
            let Some(room) = room else {
                refused += 1;
                continue;
            };
            let fetch = Arc::new(Fetch::default());
            let rank = state.next_rank(false);
            state.coming += 1;
            let entries = state.stripes.entry(stripe).or_default();
            let at = entries.partition_point(|e| e.range.start < run.start);
            entries.insert(at, Entry { range: run.clone(), body: Body::Coming(fetch.clone()), rank, read: 0 });
            begun.push((fetch, run, room));
        }
        self.entries.store(state.entries(), Ordering::Release);
        (begun, refused)
    }

    /// Takes room for `bytes`, evicting what is here as far as it must.
    fn room(&self, state: &mut State, bytes: u64) -> Option<Room> {
        if bytes > self.bytes_max {
            return None;
        }
        loop {
            if self.bytes() + bytes <= self.bytes_max
                && let Some(charge) = self.budget.try_charge(bytes)
            {
                self.taken.fetch_add(bytes, Ordering::Relaxed);
                return Some(Room { bytes, taken: self.taken.clone(), _charge: charge });
            }
            let (stripe, start) = *state.order.first_key_value()?.1;
            state.remove(stripe, start);
        }
    }

    /// A fetch ended; without data when it failed. Its entry, if still wanted, is here or gone from now on.
    pub fn end(&self, stripe: StripeId, fetch: &Arc<Fetch>, fetched: Option<&Arc<Fetched>>) {
        let mut state = self.state.lock();
        let is_it = |e: &Entry| matches!(&e.body, Body::Coming(f) if Arc::ptr_eq(f, fetch));
        let Some(entry) = state.stripes.get(&stripe).and_then(|e| e.iter().find(|e| is_it(e))) else { return };
        let (start, read_through) = (entry.range.start, entry.read_through());
        match fetched {
            None => state.remove(stripe, start),
            Some(fetched) => {
                let rank = state.next_rank(read_through);
                state.coming -= 1;
                state.order.insert(rank, (stripe, start));
                let entries = state.stripes.get_mut(&stripe).into_iter().flatten();
                for entry in entries.filter(|e| e.range.start == start) {
                    entry.body = Body::Here(fetched.clone());
                    entry.rank = rank;
                }
            }
        }
        self.entries.store(state.entries(), Ordering::Release);
    }

    /// Drops what is held of a stripe.
    pub fn forget(&self, stripe: StripeId) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for gone in state.stripes.remove(&stripe).into_iter().flatten() {
            state.discard(gone);
        }
        self.entries.store(state.entries(), Ordering::Release);
    }

    /// Drops everything. Fetches under way go on for those who wait for them, and then leave nothing here.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        *state = State { ranks: state.ranks, ..State::default() };
        self.entries.store(0, Ordering::Release);
    }
}

/// A fetch to be carried out: of which bytes, and the room for them.
pub(crate) type Begun = (Arc<Fetch>, Range<u32>, Room);

/// The parts of `range` that no entry covers.
fn absent(entries: &[Entry], range: Range<u32>) -> SmallVec<[Range<u32>; 4]> {
    let mut gaps = SmallVec::new();
    let mut at = range.start;
    for entry in entries.iter().filter(|e| e.range.end > range.start && e.range.start < range.end) {
        if entry.range.start > at {
            gaps.push(at..entry.range.start);
        }
        at = entry.range.end;
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// Cuts at multiples of `run_max`, which full stripes' shards end on as well.
fn runs(gap: Range<u32>, run_max: u32) -> impl Iterator<Item = Range<u32>> {
    let mut at = gap.start;
    std::iter::from_fn(move || {
        let end = ((at / run_max + 1) * run_max).min(gap.end);
        let run = at..end;
        at = end;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: StripeId = StripeId { incarnation: 1, group: 0, counter: 1 };

    fn arrive(cache: &Cache, begun: Vec<Begun>) {
        for (fetch, range, room) in begun {
            let data = Bytes::from((range.clone()).map(|i| i as u8).collect::<Vec<_>>());
            let half = data.len() / 2;
            let fetched = Fetched::new(range, vec![data.slice(..half), data.slice(half..)], room);
            cache.end(ID, &fetch, Some(&fetched));
        }
    }

    fn here(cache: &Cache, range: Range<u32>) -> bool {
        cache.look(ID, range).iter().all(|p| matches!(p, Part::Here(..)))
    }

    #[test]
    fn entries_hold_exactly_their_bytes_and_give_back_their_room() {
        let budget = Budget::new(1 << 20);
        let cache = Cache::new(budget.clone(), 1 << 20);
        assert!(cache.is_empty());
        let (begun, refused) = cache.begin(ID, 0..3 * UNIT, 2 * UNIT, 8);
        assert_eq!((begun.len(), refused), (2, 0));
        assert!(cache.begin(ID, 0..3 * UNIT, 2 * UNIT, 8).0.is_empty(), "what is coming is not fetched again");
        arrive(&cache, begun);
        let parts = cache.look(ID, 100..4 * UNIT);
        let mut bytes = Vec::new();
        for part in &parts {
            if let Part::Here(fetched, range) = part {
                fetched.slice(range.clone(), &mut bytes);
            }
        }
        assert!(matches!(&parts[2], Part::Absent(r) if *r == (3 * UNIT..4 * UNIT)));
        let all: Vec<u8> = bytes.iter().flat_map(|b| b.to_vec()).collect();
        assert!(all == (100..3 * UNIT).map(|i| i as u8).collect::<Vec<_>>());
        assert_eq!((cache.bytes(), budget.bytes_used()), (3 * UNIT as u64, 3 * UNIT as u64));
        drop(parts);
        cache.clear();
        assert_eq!((cache.bytes(), budget.bytes_used(), cache.is_empty()), (0, 0, true));
    }

    #[test]
    fn what_was_read_goes_before_what_was_not() {
        let cache = Cache::new(Budget::new(1 << 30), 3 * UNIT as u64);
        for unit in 0..3 {
            arrive(&cache, cache.begin(ID, unit * UNIT..(unit + 1) * UNIT, UNIT, 8).0);
        }
        assert!(here(&cache, UNIT..2 * UNIT));
        arrive(&cache, cache.begin(ID, 3 * UNIT..4 * UNIT, UNIT, 8).0);
        assert!(!here(&cache, UNIT..2 * UNIT), "the one that was read through made room");
        arrive(&cache, cache.begin(ID, 4 * UNIT..5 * UNIT, UNIT, 8).0);
        assert!(!here(&cache, 0..1) && here(&cache, 2 * UNIT..2 * UNIT + 1), "then the oldest");
        assert_eq!(cache.bytes(), 3 * UNIT as u64);
    }

    #[test]
    fn room_is_refused_rather_than_overdrawn() {
        let budget = Budget::new(2 * UNIT as u64);
        let cache = Cache::new(budget.clone(), 1 << 20);
        let _dirty = budget.try_charge(UNIT as u64).unwrap();
        let (begun, refused) = cache.begin(ID, 0..2 * UNIT, UNIT, 8);
        assert_eq!((begun.len(), refused), (1, 1), "what is on its way cannot be evicted");
        drop(begun);
        assert_eq!(Cache::new(budget, 100).begin(ID, 0..UNIT, UNIT, 8).1, 1);
    }

    #[test]
    fn a_forgotten_fetch_leaves_nothing() {
        let cache = Cache::new(Budget::new(1 << 20), 1 << 20);
        let (begun, _) = cache.begin(ID, 0..UNIT, UNIT, 8);
        cache.forget(ID);
        assert!(cache.is_empty());
        arrive(&cache, begun);
        assert_eq!((cache.is_empty(), cache.bytes()), (true, 0));
        let (begun, _) = cache.begin(ID, 0..UNIT, UNIT, 8);
        cache.end(ID, &begun[0].0, None);
        assert!(cache.is_empty());
    }
}
