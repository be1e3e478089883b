//! The object cluster in memory: the model the conformance suite holds the real one against, and what tests of `fs/vfs` and
//! `objstore/s3` run on.
//!
//! What always holds: a stripe is readable once its write was answered, and survives [`Fake::crash`] once a flush that named it
//! was answered. Faults and holds apply only where a test asked for them; nothing is random.
//! What it leaves out: shards, quorums, caches. A code only decides the shape of the record it answers.

use crate::{Error, Examined, Objects, Rebuild, Result, Standing, StripeWrite, Upkeep, UsableSpace};
use bytes::{Bytes, BytesMut};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::stripe::{COPIES_BYTES_MAX, STRIPE_BYTES_MAX};
use holdfast_objstore_proto::{Code, Codec, OsdId, StripeId, StripeMeta, StripeRange};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::watch;

/// Where a call can be held or be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Before anything is stored.
    Write,
    /// Before anything becomes stable.
    Flush,
    Read,
    Delete,
}

const POINTS: usize = 4;

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub prefetches: u64,
    pub deletes: u64,
    pub crashes: u64,
}

struct Stored {
    meta: Arc<StripeMeta>,
    data: Bytes,
    flushed: bool,
    lost: bool,
    /// Shards that a test took away, as bits.
    bad: u32,
}

struct State {
    stripes: BTreeMap<StripeId, Stored>,
    counts: Counts,
    /// Errors for the next calls at each point, in order.
    faults: [VecDeque<Error>; POINTS],
    missing: VecDeque<u32>,
    fenced: Vec<StripeRange>,
    osds: usize,
    up: usize,
    bytes_max: u64,
    live: u64,
}

/// Counts of a point's gate: calls parked at it and whether it is shut.
#[derive(Default, Clone, Copy)]
struct Gate {
    holds: usize,
    parked: usize,
}

/// See the module. Make one per test; clone the `Arc` to keep what was stored over a "restart".
pub struct Fake {
    state: Mutex<State>,
    gates: [watch::Sender<Gate>; POINTS],
}

/// Keeps a point shut until it is dropped.
pub struct Hold {
    fake: Arc<Fake>,
    point: Point,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.fake.gates[self.point as usize].send_modify(|g| g.holds -= 1);
    }
}

/// One call parked at a gate; gone when the call goes on or is dropped.
struct Parked<'a>(&'a watch::Sender<Gate>);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|g| g.parked -= 1);
    }
}

impl Fake {
    /// Six OSDs, all in service, 1 TiB.
    pub fn new() -> Arc<Fake> {
        let state = State {
            stripes: BTreeMap::new(),
            counts: Counts::default(),
            faults: Default::default(),
            missing: VecDeque::new(),
            fenced: Vec::new(),
            osds: 6,
            up: 6,
            bytes_max: 1 << 40,
            live: 0,
        };
        Arc::new(Fake { state: Mutex::new(state), gates: std::array::from_fn(|_| watch::Sender::new(Gate::default())) })
    }

    /// The next call at `point` that no earlier fault claims fails with `error` and changes nothing.
    pub fn fail_next(&self, point: Point, error: Error) {
        self.state.lock().faults[point as usize].push_back(error);
    }

    /// Calls at `point` wait until the answer is dropped.
    pub fn hold(self: &Arc<Self>, point: Point) -> Hold {
        self.gates[point as usize].send_modify(|g| g.holds += 1);
        Hold { fake: self.clone(), point }
    }

    /// Waits until at least `calls` calls are held at `point`.
    pub async fn parked(&self, point: Point, calls: usize) {
        let mut gate = self.gates[point as usize].subscribe();
        gate.wait_for(|g| g.parked >= calls).await.expect("the sender lives in self");
    }

    /// The next write is answered with these shards missing (bits beyond its code are ignored).
    pub fn miss_next(&self, shards: u32) {
        self.state.lock().missing.push_back(shards);
    }

    /// Reads of this stripe fail with `Lost` from now on.
    pub fn lose(&self, stripe: StripeId) {
        if let Some(s) = self.state.lock().stripes.get_mut(&stripe) {
            s.lost = true;
        }
    }

    /// A shard of the stripe is gone from its OSD. More than its code can replace, and a rebuild says `Lost`.
    pub fn lose_shard(&self, stripe: StripeId, shard: usize) {
        if let Some(s) = self.state.lock().stripes.get_mut(&stripe) {
            s.bad |= 1 << shard;
        }
    }

    /// Writes of stripes in `range` fail with `Fenced` from now on.
    pub fn fence(&self, range: StripeRange) {
        self.state.lock().fenced.push(range);
    }

    /// How many of the six OSDs are in service: writes narrow their code, or fail with `Unavailable`. Reads go on.
    pub fn set_up(&self, osds: usize) {
        let mut s = self.state.lock();
        s.up = osds.min(s.osds);
    }

    /// Bytes of room for data and parity together; beyond it writes fail with `Full`.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.state.lock().bytes_max = bytes;
    }

    /// A power cut: what no answered flush named is gone.
    pub fn crash(&self) {
        let mut s = self.state.lock();
        s.stripes.retain(|_, v| v.flushed);
        s.live = s.stripes.values().map(|v| v.meta.stored_bytes()).sum();
        s.counts.crashes += 1;
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Whether an answered flush named this stripe; `None` when there is no such stripe.
    pub fn flushed(&self, stripe: StripeId) -> Option<bool> {
        self.state.lock().stripes.get(&stripe).map(|s| s.flushed)
    }

    /// Every stripe held, in order of their ids.
    pub fn stripes(&self) -> Vec<Arc<StripeMeta>> {
        self.state.lock().stripes.values().map(|s| s.meta.clone()).collect()
    }

    async fn pass(&self, point: Point) -> Result<()> {
        let gate = &self.gates[point as usize];
        if gate.borrow().holds > 0 {
            gate.send_modify(|g| g.parked += 1);
            let _parked = Parked(gate);
            gate.subscribe().wait_for(|g| g.holds == 0).await.expect("the sender lives in self");
        }
        match self.state.lock().faults[point as usize].pop_front() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn store(&self, write: StripeWrite) -> Result<Arc<StripeMeta>> {
        let len: usize = write.data.iter().map(Bytes::len).sum();
        assert!(len > 0 && len <= STRIPE_BYTES_MAX as usize, "a stripe has 1 to {STRIPE_BYTES_MAX} bytes, not {len}");
        let mut data = BytesMut::with_capacity(len);
        write.data.iter().for_each(|d| data.extend_from_slice(d));
        let data = data.freeze();
        let id = write.id;
        let mut s = self.state.lock();
        if s.fenced.iter().any(|r| r.contains(id)) {
            return Err(Error::Fenced { stripe: id });
        }
        let wanted = if len as u32 <= COPIES_BYTES_MAX { write.code.copies() } else { write.code };
        let Some(code) = wanted.narrowed(s.up) else {
            return Err(Error::Unavailable { up: s.up, need: wanted.n().min(2) });
        };
        if let Some(old) = s.stripes.get(&id) {
            if old.data == data {
                return Ok(old.meta.clone());
            }
            return Err(Error::Lost { stripe: id, why: "it was written before with other bytes".into() });
        }
        let missing = s.missing.pop_front().unwrap_or(0) & ((1u32 << code.n()) - 1);
        let meta = Arc::new(StripeMeta {
            id,
            codec: Codec::for_code(code),
            code,
            len: len as u32,
            digest: crc32c(&data) as u64,
            osds: (0..code.n() as u16).map(OsdId).collect(),
            missing,
        });
        if s.live + meta.stored_bytes() > s.bytes_max {
            return Err(Error::Full);
        }
        s.live += meta.stored_bytes();
        s.counts.writes += 1;
        s.counts.written_bytes += len as u64;
        s.stripes.insert(id, Stored { meta: meta.clone(), data, flushed: false, lost: false, bad: 0 });
        Ok(meta)
    }
}

impl Objects for Fake {
    fn write(&self, write: StripeWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(async move {
            self.pass(Point::Write).await?;
            self.store(write)
        })
    }

    fn flush(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<Vec<Arc<StripeMeta>>>> {
        Box::pin(async move {
            self.pass(Point::Flush).await?;
            let mut s = self.state.lock();
            s.counts.flushes += 1;
            for meta in &stripes {
                // A stripe that is not there was lost in a crash since it was written: its shards are on no device.
                let up = s.up;
                match s.stripes.get_mut(&meta.id) {
                    Some(stored) => stored.flushed = true,
                    None => return Err(Error::Unavailable { up, need: meta.code.n() }),
                }
            }
            Ok(stripes)
        })
    }

    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            assert!(range.start <= range.end && range.end <= stripe.len, "{range:?} lies in the stripe's {} bytes", stripe.len);
            self.pass(Point::Read).await?;
            let mut s = self.state.lock();
            s.counts.reads += 1;
            s.counts.read_bytes += range.len() as u64;
            let Some(stored) = s.stripes.get(&stripe.id) else {
                return Err(Error::Gone { stripe: stripe.id });
            };
            if stored.lost {
                return Err(Error::Lost { stripe: stripe.id, why: "the test lost it".into() });
            }
            if range.is_empty() {
                return Ok(Vec::new());
            }
            Ok(vec![stored.data.slice(range.start as usize..range.end as usize)])
        })
    }

    fn prefetch(&self, _stripe: &Arc<StripeMeta>, _range: Range<u32>) {
        self.state.lock().counts.prefetches += 1;
    }

    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.pass(Point::Delete).await?;
            let mut s = self.state.lock();
            s.counts.deletes += stripes.len() as u64;
            for meta in stripes {
                if let Some(old) = s.stripes.remove(&meta.id) {
                    s.live -= old.meta.stored_bytes();
                }
            }
            Ok(())
        })
    }

    fn drop_caches(&self) {}

    fn space(&self, code: Code) -> UsableSpace {
        let s = self.state.lock();
        let usable = |raw: u64| (raw as u128 * code.k as u128 / code.n() as u128) as u64;
        let free = usable(s.bytes_max.saturating_sub(s.live));
        UsableSpace { total: usable(s.bytes_max), free, free_own: free }
    }

    fn osds(&self) -> Vec<(OsdId, Option<String>)> {
        let s = self.state.lock();
        (0..s.osds).map(|i| (OsdId(i as u16), (i >= s.up).then(|| "the test took it out of service".to_string()))).collect()
    }
}

/// Shards are bits here: one that a test lost is absent until it is rebuilt.
impl Upkeep for Fake {
    fn examine<'a>(&'a self, stripe: &'a Arc<StripeMeta>, _whole: u32) -> BoxFuture<'a, Examined> {
        Box::pin(async move {
            let all = ((1u64 << stripe.code.n()) - 1) as u32;
            let s = self.state.lock();
            let absent = s.stripes.get(&stripe.id).filter(|v| v.meta.digest == stripe.digest).map_or(all, |v| v.bad | v.meta.missing);
            Examined { good: all & !absent, absent, ..Examined::default() }
        })
    }

    fn rebuild(&self, r: Rebuild) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(async move {
            let mut s = self.state.lock();
            let stored = s.stripes.get_mut(&r.stripe.id).ok_or(Error::Gone { stripe: r.stripe.id })?;
            if (stored.bad | stored.meta.missing).count_ones() > stored.meta.code.m as u32 {
                return Err(Error::Lost { stripe: r.stripe.id, why: "the test lost too many shards".into() });
            }
            stored.bad &= !r.shards;
            stored.meta = Arc::new(StripeMeta { missing: stored.meta.missing & !r.shards, ..(*stored.meta).clone() });
            Ok(stored.meta.clone())
        })
    }

    fn reencode(&self, stripe: Arc<StripeMeta>, code: Code, _task: u64) -> BoxFuture<'_, Result<Arc<StripeMeta>>> {
        Box::pin(async move {
            let mut s = self.state.lock();
            if code.n() > s.up {
                return Err(Error::Unavailable { up: s.up, need: code.n() });
            }
            let stored = s.stripes.get_mut(&stripe.id).ok_or(Error::Gone { stripe: stripe.id })?;
            let osds = (0..code.n() as u16).map(OsdId).collect();
            stored.bad = 0;
            stored.meta = Arc::new(StripeMeta { code, codec: Codec::for_code(code), osds, missing: 0, ..(*stripe).clone() });
            Ok(stored.meta.clone())
        })
    }

    fn fitting(&self, code: Code, len: u32) -> Option<Code> {
        let wanted = if len <= COPIES_BYTES_MAX { code.copies() } else { code };
        wanted.narrowed(self.state.lock().up)
    }

    fn holdings(&self, osd: OsdId, after: Option<ShardKey>, max: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        Box::pin(async move {
            let s = self.state.lock();
            let held = s.stripes.values().filter_map(|v| {
                let shard = v.meta.osds.iter().position(|o| *o == osd)?;
                ((v.bad | v.meta.missing) >> shard & 1 == 0).then_some(ShardKey { stripe: v.meta.id, shard: shard as u8 })
            });
            Ok(held.filter(|k| after.is_none_or(|a| *k > a)).take(max).collect())
        })
    }

    fn discard(&self, _shards: Vec<(OsdId, ShardKey)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn standing(&self) -> Vec<Standing> {
        self.osds().into_iter().map(|(osd, why)| Standing { osd, up: why.is_none(), leaving: false }).collect()
    }

    fn activity(&self) -> u64 {
        let c = self.state.lock().counts;
        c.writes + c.reads + c.flushes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_proto::shard::Hint;
    use holdfast_objstore_proto::{SessionEpoch, SessionId};
    use std::time::Duration;

    fn stripe(counter: u64, len: usize) -> StripeWrite {
        StripeWrite {
            id: StripeId { incarnation: 1, group: 0, counter },
            code: Code::new(4, 2),
            data: vec![Bytes::from(vec![counter as u8; len])],
            session: SessionId(1),
            epoch: SessionEpoch(1),
            hint: Hint::default(),
            background: false,
        }
    }

    #[tokio::test]
    async fn a_crash_takes_what_was_not_flushed() {
        let fake = Fake::new();
        let kept = fake.write(stripe(1, 10)).await.unwrap();
        let lost = fake.write(stripe(2, 100_000)).await.unwrap();
        assert_eq!((kept.code, lost.code), (Code::new(1, 2), Code::new(4, 2)));
        fake.flush(vec![kept.clone()]).await.unwrap();
        fake.crash();
        assert_eq!(fake.read(&kept, 2..4).await.unwrap(), vec![Bytes::from_static(&[1, 1])]);
        assert!(matches!(fake.read(&lost, 0..1).await, Err(Error::Gone { .. })));
        assert!(fake.flush(vec![lost]).await.is_err());
    }

    #[tokio::test]
    async fn faults_fire_once_and_holds_park_calls() {
        let fake = Fake::new();
        fake.fail_next(Point::Write, Error::Full);
        assert!(matches!(fake.write(stripe(1, 1)).await, Err(Error::Full)));
        let hold = fake.hold(Point::Write);
        let task = tokio::spawn({
            let fake = fake.clone();
            async move { fake.write(stripe(1, 1)).await }
        });
        tokio::time::timeout(Duration::from_secs(5), fake.parked(Point::Write, 1)).await.unwrap();
        assert!(fake.stripes().is_empty());
        drop(hold);
        task.await.unwrap().unwrap();
        assert_eq!(fake.counts().writes, 1);
    }
}
