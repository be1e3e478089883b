//! One copy: a record log, and the order in which it is given records.
//!
//! What always holds: records get their places in the order they are handed over; a copy without room for one holds back those behind it and no
//! other copy, nor does one that does not end giving segments back; what it reports as durable is a prefix of what it was handed.
//! What it leaves out: what its reports lead to ([`super::rules`]).

use super::set::Place;
use crate::raft::wal::Wal;
use holdfast_objstore_base::exec::InHand;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_osd::log::{Append, Appended, Log};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// A record on its way to a copy.
#[derive(Clone)]
pub struct Record {
    pub number: u64,
    pub append: Append,
    pub index_max: u64,
    /// About what it takes on a device.
    pub bytes: u64,
}

pub struct Member {
    pub place: Place,
    pub dir: PathBuf,
    pub log: Log,
    order: Mutex<Order>,
    giving: Mutex<Giving>,
    /// Told when nobody gives segments back any more.
    given: Notify,
}

/// What may be given back.
#[derive(Default)]
struct Giving {
    /// Asked for and not begun: the last index that nobody needs, and the life below which segments may go.
    next: Option<(u64, u32)>,
    /// Somebody is at it.
    busy: bool,
}

#[derive(Default)]
struct Order {
    /// The highest entry index in each segment life.
    lives: BTreeMap<u32, u64>,
    /// Handed over and not known to be stable.
    open: VecDeque<OpenRecord>,
    /// Records that are stable, counted: the first of `open` has this ordinal.
    ended: u64,
    /// Behind a record that waits for a place.
    waiting: VecDeque<(u64, Record)>,
    pumping: bool,
    /// Bytes of `open`.
    open_bytes: u64,
    durable: u64,
    closed: bool,
}

struct OpenRecord {
    number: u64,
    bytes: u64,
    since_ns: u64,
    /// Its number in the record log, once written.
    seq: Option<u64>,
}

/// How far a copy is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    pub durable: u64,
    pub records: u64,
    pub bytes: u64,
    /// Of the oldest record it lacks: number, and when it was handed over.
    pub oldest: Option<(u64, u64)>,
}

/// What a record needs done: a write, then a flush.
struct Work(Pin<Box<dyn Future<Output = ()> + Send>>, bool);

impl Future for Work {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Beside others no call is made in place: it would hold up the other copies.
        let _hands = self.1.then(|| (InHand::new(), InHand::new()));
        self.0.as_mut().poll(cx)
    }
}

impl Member {
    pub fn new(place: Place, dir: PathBuf, log: Log, lives: BTreeMap<u32, u64>, durable: u64) -> Arc<Self> {
        let order = Mutex::new(Order { lives, durable, ..Order::default() });
        Arc::new(Self { place, dir, log, order, giving: Mutex::default(), given: Notify::new() })
    }

    /// Queues a record without beginning it.
    pub fn queue(&self, record: Record, now_ns: u64) {
        let mut o = self.order.lock();
        let ordinal = o.ended + o.open.len() as u64;
        o.open_bytes += record.bytes;
        o.open.push_back(OpenRecord { number: record.number, bytes: record.bytes, since_ns: now_ns, seq: None });
        o.waiting.push_back((ordinal, record));
        o.pumping = true;
    }

    /// Begins what was queued.
    pub fn run_queue(self: &Arc<Self>, wal: &Arc<Wal>) {
        tokio::spawn(self.clone().pump(wal.clone(), None));
    }

    /// Hands over the next record.
    pub fn put(self: &Arc<Self>, wal: &Arc<Wal>, record: Record, now_ns: u64) {
        let ordinal = {
            let mut o = self.order.lock();
            if o.closed {
                return;
            }
            let ordinal = o.ended + o.open.len() as u64;
            o.open_bytes += record.bytes;
            o.open.push_back(OpenRecord { number: record.number, bytes: record.bytes, since_ns: now_ns, seq: None });
            if o.pumping {
                o.waiting.push_back((ordinal, record));
                return;
            }
            ordinal
        };
        if let Some(unplaced) = self.begin(wal, ordinal, record) {
            self.order.lock().pumping = true;
            tokio::spawn(self.clone().pump(wal.clone(), Some(unplaced)));
        }
    }

    /// Begins to write a record. Its first poll takes the place in the log; alone on a quiet thread it also does all the work at once.
    /// `Some`: it has no place yet, and a shorter record behind it must not take one, or the log would have a hole.
    fn begin(self: &Arc<Self>, wal: &Arc<Wal>, ordinal: u64, record: Record) -> Option<Work> {
        // The books are kept before any flush can count the record: who hears of durability may rely on them.
        let (books, index_max) = (self.clone(), record.index_max);
        let append = self.log.append_then(record.append, move |appended| books.written(ordinal, &appended, index_max));
        let (member, owner) = (self.clone(), wal.clone());
        let work = async move {
            let flushed = match append.await {
                Ok(_) => member.flush(&owner).await,
                Err(e) => Err(e),
            };
            if let Err(e) = flushed {
                owner.lost(&member, e.to_string());
            }
        };
        let mut work = Work(Box::pin(work), wal.is_mirrored());
        let before = self.log.last_seq();
        if Pin::new(&mut work).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return None;
        }
        if self.log.last_seq() == before {
            return Some(work);
        }
        tokio::spawn(work);
        None
    }

    /// Works off what waits behind a record without a place.
    async fn pump(self: Arc<Self>, wal: Arc<Wal>, unplaced: Option<Work>) {
        if let Some(unplaced) = unplaced {
            unplaced.await;
        }
        loop {
            let next = {
                let mut o = self.order.lock();
                let next = o.waiting.pop_front();
                o.pumping = next.is_some();
                next
            };
            let Some((ordinal, record)) = next else { break };
            if let Some(unplaced) = self.begin(&wal, ordinal, record) {
                unplaced.await;
            }
        }
        wal.unstalled.notify_waiters();
    }

    fn written(&self, ordinal: u64, appended: &Appended, index_max: u64) {
        let mut o = self.order.lock();
        let life = o.lives.entry(appended.location.position.life).or_default();
        *life = (*life).max(index_max);
        let at = ordinal.checked_sub(o.ended).and_then(|i| usize::try_from(i).ok());
        if let Some(open) = at.and_then(|i| o.open.get_mut(i)) {
            open.seq = Some(appended.seq);
        }
    }

    async fn flush(self: &Arc<Self>, wal: &Arc<Wal>) -> Result<(), holdfast_objstore_osd::log::Error> {
        wal.metrics.wal_flush_waits.inc();
        let stable = self.log.flush().await?;
        let durable = {
            let mut o = self.order.lock();
            while o.open.front().is_some_and(|r| r.seq.is_some_and(|seq| seq <= stable)) {
                let Some(over) = o.open.pop_front() else { break };
                o.ended += 1;
                o.open_bytes = o.open_bytes.saturating_sub(over.bytes);
                o.durable = o.durable.max(over.number);
            }
            o.durable
        };
        wal.durable(self, durable);
        Ok(())
    }

    /// Whether a record waits for a place.
    pub fn is_stalled(&self) -> bool {
        self.order.lock().pumping
    }

    /// Records of this copy that are stable, counted from its opening.
    pub fn ended(&self) -> u64 {
        self.order.lock().ended
    }

    pub fn lag(&self, newest: u64) -> Lag {
        let o = self.order.lock();
        let oldest = o.open.front().map(|r| (r.number, r.since_ns));
        Lag { durable: o.durable, records: newest.saturating_sub(o.durable), bytes: o.open_bytes, oldest }
    }

    /// From now on it is given nothing; what waits is dropped.
    pub fn close(&self) {
        let mut o = self.order.lock();
        o.closed = true;
        o.waiting.clear();
    }

    /// Opens it again after [`Member::close`], when nothing of it is under way.
    pub fn reopen(&self) {
        let mut o = self.order.lock();
        let open = std::mem::take(&mut o.open);
        o.ended += open.len() as u64;
        (o.open_bytes, o.closed) = (0, false);
    }

    /// The life the newest records go to.
    pub fn newest_life(&self) -> u32 {
        self.order.lock().lives.last_key_value().map_or(0, |(life, _)| *life)
    }

    /// Gives back the segments below the life `below` whose entries end at `upto` or before. In the background, one run at a time.
    pub fn give_back(self: &Arc<Self>, wal: &Arc<Wal>, upto: u64, below: u32) {
        {
            let mut g = self.giving.lock();
            g.next = Some((upto, below));
            if std::mem::replace(&mut g.busy, true) {
                return;
            }
        }
        tokio::spawn(self.clone().giving_back(wal.clone()));
    }

    async fn giving_back(self: Arc<Self>, wal: Arc<Wal>) {
        while let Some((upto, below)) = self.next_to_give() {
            // One that was left out meanwhile keeps what it has: it counts no more.
            while wal.is_member(&self)
                && let Some(life) = self.purged_life(upto, below)
            {
                if let Err(e) = self.log.retire(life).await {
                    failpoint::reached("wal.retire_failed");
                    wal.lost(&self, format!("giving back a segment of the write-ahead log: {e}"));
                    break;
                }
                wal.metrics.segments_retired.inc();
                self.forget_life(life);
            }
        }
        self.given.notify_waiters();
    }

    fn next_to_give(&self) -> Option<(u64, u32)> {
        let mut g = self.giving.lock();
        let next = g.next.take();
        g.busy = next.is_some();
        next
    }

    /// Waits until nothing of it is under way: nothing is being given back, written or flushed.
    pub async fn close_log(&self) -> Result<(), holdfast_objstore_osd::log::Error> {
        loop {
            let given = self.given.notified();
            if !self.giving.lock().busy {
                break;
            }
            given.await;
        }
        self.log.close().await
    }

    /// The lowest life, when all in it is purged up to `upto` and it lies below `below`.
    fn purged_life(&self, upto: u64, below: u32) -> Option<u32> {
        let o = self.order.lock();
        let (life, max) = o.lives.first_key_value()?;
        (*life < below && *max <= upto).then_some(*life)
    }

    fn forget_life(&self, life: u32) {
        self.order.lock().lives.remove(&life);
    }
}
