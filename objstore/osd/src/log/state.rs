//! A running log: what is shared between its writers, its flushes and its background work.
//!
//! What always holds: sequence numbers and positions are given together under one lock, so their orders agree; `in_flight`
//! holds every number given and not yet on the device, so everything below its first is complete and `then`s have run.

use super::config::Config;
use super::flush::Unflushed;
use super::format::Position;
use super::format::head::Head;
use super::segment::Segment;
use super::writer::Need;
use super::{Error, Result};
use holdfast_objstore_base::disk::{Disk, DomainId};
use holdfast_objstore_base::units::BLOCK;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use quick_cache::Weighter;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

/// A log of records. Cloning shares it.
#[derive(Clone)]
pub struct Log(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub id: u128,
    pub epoch: u64,
    pub config: Config,
    /// The one the log was opened in: background work goes on there, whichever runtime began it.
    pub runtime: tokio::runtime::Handle,
    pub domain: std::sync::OnceLock<DomainId>,
    pub state: Mutex<State>,
    /// Rung when the prefix advances, a segment becomes ready, background work ends or the log fails.
    pub changed: Notify,
    /// Lets those who wait for a segment through in the order they came.
    pub turnstile: Semaphore,
    /// One checkpoint at a time.
    pub checkpointing: Semaphore,
    /// Held while the root file is composed and written, on a thread that may block.
    pub root_writes: Mutex<()>,
    pub heads: quick_cache::sync::Cache<Position, Arc<Head>, HeadWeight, BuildHasherDefault<PositionHash>>,
    pub counters: Counters,
}

pub(super) struct State {
    /// In service, by life; all but the active one are sealed.
    pub segments: BTreeMap<u32, InService>,
    pub active: Option<Active>,
    /// The next active segment, its header stable.
    pub spare: Option<Arc<Segment>>,
    /// Retired, their headers say so; the next lives begin here.
    pub free: VecDeque<Arc<Segment>>,
    /// Numbers of files that exist but were never filled with zeroes to the end.
    pub raw: VecDeque<u32>,
    /// Segment files there are, whatever their state.
    pub files: u32,
    pub preparing: bool,
    pub supply: Supply,
    pub life_next: u32,
    pub seq_next: u64,
    pub in_flight: BTreeMap<u64, Position>,
    pub completed_max: u64,
    pub durable: u64,
    pub unflushed: Vec<Unflushed>,
    /// Appends that wait for a segment.
    pub waiting: u32,
    /// Flushes and others that wait on `changed`.
    pub watchers: u32,
    /// Background tasks that run.
    pub tasks: u32,
    /// Places taken whose write has not ended.
    pub writing: u32,
    pub failed: Option<String>,
    pub checkpoints: Checkpoints,
    pub checkpointed: bool,
}

pub(super) struct InService {
    pub segment: Arc<Segment>,
    /// Sequence number of the first record, when known.
    pub first_seq: Option<u64>,
    /// Sequence number of the seal; `None` while active.
    pub sealed: Option<u64>,
    /// The block after the last record.
    pub end: u32,
}

pub(super) struct Active {
    pub segment: Arc<Segment>,
    pub next_block: u32,
}

/// Whether new segments can be had.
#[derive(Default)]
pub(super) struct Supply {
    /// The last attempt found no room.
    pub starved: bool,
    /// Attempts are made again after this many refused appends.
    pub retry_after: u32,
    pub backoff: u32,
}

/// What the two slots cover.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checkpoints {
    pub generation: u64,
    pub newest: Option<Position>,
    pub older: Option<Position>,
}

/// Counts since this open; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Records the device has taken.
    pub appends: Counter,
    /// Calls of [`Log::flush`] that had something to flush.
    pub flushes: Counter,
    /// Segments put into service again.
    pub segments_recycled: Counter,
    /// Segment files made.
    pub segments_created: Counter,
    /// Heads and blocks that were not what was written.
    pub crc_failures: Counter,
    /// Reads the device failed.
    pub read_errors: Counter,
}

#[derive(Clone)]
pub(super) struct HeadWeight;

impl Weighter<Position, Arc<Head>> for HeadWeight {
    fn weight(&self, _: &Position, head: &Arc<Head>) -> u64 {
        head.memory_bytes()
    }
}

/// Mixes a position's two numbers, the same way in every process: what the cache drops decides which reads reach the device.
#[derive(Default)]
pub(super) struct PositionHash(u64);

impl Hasher for PositionHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u32(u32::from(*b)));
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0.rotate_left(32) ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn finish(&self) -> u64 {
        (self.0 ^ self.0 >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
    }
}

/// A segment in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    pub life: u32,
    pub number: u32,
    pub active: bool,
    /// Sealed, and every record in it has completed: it may be retired.
    pub settled: bool,
    pub first_seq: Option<u64>,
    /// Bytes up to the end of the last record.
    pub used_bytes: u64,
}

/// Room of a log, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// All segments it may ever have.
    pub total: u64,
    /// Segments in service.
    pub used: u64,
    /// What ordinary appends may still take before `Full`, if the device has the room.
    pub free: u64,
    /// Segment files there are, in service or not.
    pub files: u64,
    /// What copies of cleaning may still take: the whole reserve, too.
    pub cleaning_free: u64,
    /// Of that, whole segments.
    pub segments_cleaning: u32,
    /// Segments that ordinary appends may still open (the one at hand included), if the device has the room.
    pub segments_free: u32,
    /// Segments that ordinary appends may have in service at once.
    pub segments_normal: u32,
    /// Segments that background appends may have in service beyond those.
    pub segments_background: u32,
    /// The device had no room for another segment file when last tried, and fewer are ready than [`super::Config`] asks for.
    pub tight: bool,
}

impl State {
    /// Everything up to here has completed.
    pub fn prefix(&self) -> u64 {
        match self.in_flight.first_key_value() {
            Some((seq, _)) => seq - 1,
            None => self.seq_next - 1,
        }
    }

    /// Where the next record goes (or the seal that comes before it).
    pub fn cursor(&self) -> Position {
        match &self.active {
            Some(a) => Position { life: a.segment.life(), block: a.next_block },
            // Behind all there is: whatever life comes next is higher.
            None => self
                .segments
                .last_key_value()
                .map_or(Position::default(), |(life, s)| Position { life: *life, block: s.segment.header.blocks }),
        }
    }

    pub fn alive(&self) -> Result<()> {
        match &self.failed {
            Some(why) => Err(Error::Failed(why.clone())),
            None => Ok(()),
        }
    }
}

impl Shared {
    /// Takes the log out of service; the first reason stays.
    pub fn fail(&self, why: String) -> Error {
        let why = {
            let mut st = self.state.lock();
            if st.failed.is_none() {
                tracing::error!(dir = %self.dir.display(), %why, "log out of service");
            }
            st.failed.get_or_insert(why).clone()
        };
        self.changed.notify_waiters();
        Error::Failed(why)
    }

    /// Waits until `ready` answers; asked again whenever something changed.
    pub async fn wait_for<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        let _watching = Watching::new(self);
        loop {
            let mut rung = std::pin::pin!(self.changed.notified());
            rung.as_mut().enable();
            let answer = ready(&mut self.state.lock());
            if let Some(answer) = answer {
                return answer;
            }
            rung.await;
        }
    }
}

struct Watching<'a>(&'a Shared);

impl<'a> Watching<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.state.lock().watchers += 1;
        Self(shared)
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.state.lock().watchers -= 1;
    }
}

impl Log {
    pub fn id(&self) -> u128 {
        self.0.id
    }
    /// The epoch of this open.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }
    pub fn domain(&self) -> DomainId {
        *self.0.domain.get().expect("set when the log opened")
    }
    /// Every record up to this number is stable.
    pub fn durable_seq(&self) -> u64 {
        self.0.state.lock().durable
    }
    /// The highest sequence number given.
    pub fn last_seq(&self) -> u64 {
        self.0.state.lock().seq_next - 1
    }
    /// Why the log is out of service, if it is.
    pub fn failure(&self) -> Option<String> {
        self.0.state.lock().failed.clone()
    }

    /// The segments in service, by life.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let st = self.0.state.lock();
        let prefix = st.prefix();
        st.segments
            .iter()
            .map(|(life, s)| SegmentInfo {
                life: *life,
                number: s.segment.header.number,
                active: s.sealed.is_none(),
                settled: s.sealed.is_some_and(|seal| seal <= prefix),
                first_seq: s.first_seq,
                used_bytes: match &st.active {
                    Some(a) if a.segment.life() == *life => a.next_block,
                    _ => s.end,
                } as u64
                    * BLOCK as u64,
            })
            .collect()
    }

    pub fn space(&self) -> Space {
        let st = self.0.state.lock();
        let bytes = self.0.config.segment_bytes;
        let used = st.segments.len() as u64;
        let normal = st.limit(&self.0.config, Need::Ordinary) as u64;
        let rest = st.room(&self.0.config, Need::Ordinary) as u64 * BLOCK as u64;
        // A starved log cannot go past the segments it has.
        let there = (st.free.len() + st.raw.len()) as u64 + st.spare.is_some() as u64;
        let at_most = |limit: u64| {
            let more = limit.saturating_sub(used);
            if st.supply.starved { more.min(there) } else { more }
        };
        let per_segment = self.0.config.record_blocks_max() as u64 * BLOCK as u64;
        let segments_free = at_most(normal);
        let segments_cleaning = at_most(st.limit(&self.0.config, Need::Cleaning) as u64);
        let urgent_rest = st.room(&self.0.config, Need::Urgent) as u64 * BLOCK as u64;
        Space {
            total: (self.0.config.segments_max as u64).saturating_mul(bytes),
            used: used * bytes,
            free: rest + segments_free.saturating_mul(per_segment),
            files: st.files as u64 * bytes,
            cleaning_free: urgent_rest + segments_cleaning.saturating_mul(per_segment),
            segments_cleaning: u32::try_from(segments_cleaning).unwrap_or(u32::MAX),
            segments_free: u32::try_from(segments_free).unwrap_or(u32::MAX),
            segments_normal: u32::try_from(normal).unwrap_or(u32::MAX),
            segments_background: u32::try_from(st.limit(&self.0.config, Need::Background) as u64 - normal).unwrap_or(u32::MAX),
            tight: st.supply.starved && there < st.ahead(&self.0.config) as u64,
        }
    }

    /// Bytes of a segment file.
    pub fn segment_bytes(&self) -> u64 {
        self.0.config.segment_bytes
    }

    /// Bytes of records a segment can hold.
    pub fn segment_room(&self) -> u64 {
        self.0.config.record_blocks_max() as u64 * BLOCK as u64
    }

    /// The runtime the log was opened in, for background work that must not end with the runtime of whoever began it.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.0.runtime
    }
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The position before which either checkpoint slot alone suffices; `None`: there are not two yet.
    pub fn covered_twice(&self) -> Option<Position> {
        self.0.state.lock().checkpoints.older
    }

    /// Flushes, and waits until nothing of this log is running in the background. The log stays usable.
    pub async fn close(&self) -> Result<()> {
        let flushed = self.flush().await;
        self.0.wait_for(|st| (st.tasks == 0).then_some(())).await;
        flushed.map(|_| ())
    }

    /// Takes the log out of service at once and for good; completes when nothing of it is being written any more.
    pub async fn stop(&self, why: &str) {
        drop(self.0.fail(why.into()));
        self.0.wait_for(|st| (st.tasks == 0 && st.writing == 0).then_some(())).await;
    }
}
