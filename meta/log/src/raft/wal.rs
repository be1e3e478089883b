//! The write-ahead log: Raft's records, in order, on one record log, made durable in groups.
//!
//! What always holds: records take their place in the order of the calls; a caller hears that its record is durable only when
//! every earlier one is too; whoever asks while a flush runs shares the next. The first failure is final: it is kept,
//! everyone waiting hears it, and nothing is written afterwards.
//! What it leaves out: what Raft wants to store ([`super::store`]), and reading it back at start ([`super::recover`]).

use super::health::Health;
use super::record;
use super::types::{Id, Types, Vote};
use super::window::Window;
use crate::metrics::Metrics;
use bytes::Bytes;
use futures::FutureExt;
use holdfast_objstore_osd::log::{Append, Appended, Log, META_BYTES_MAX};
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use tokio::sync::{Notify, oneshot};

/// First byte of a record's meta: where its body is.
const BODY_IN_META: u8 = 0;
const BODY_IN_PAYLOAD: u8 = 1;

/// Who hears that a record is durable.
pub enum Done {
    Raft(IOFlushed<Types>),
    Wake(oneshot::Sender<io::Result<()>>),
    Nobody,
}

impl Done {
    fn call(self, result: io::Result<()>) {
        match self {
            Done::Raft(callback) => callback.io_completed(result),
            Done::Wake(tx) => drop(tx.send(result)),
            Done::Nobody => {}
        }
    }
}

/// A record on its way to the device.
struct Pending {
    /// Its sequence number in the record log, once written.
    seq: Option<u64>,
    done: Done,
}

#[derive(Default)]
pub struct State {
    pub window: Window,
    pub vote: Option<Vote>,
    pub committed: Option<Id>,
    /// The newest stamp; none goes below it.
    pub now_ns: i64,
    /// The highest entry index in each segment life.
    pub lives: BTreeMap<u32, u64>,
    /// Bytes written since the newest checkpoint began.
    pub bytes: u64,
    pending: VecDeque<Pending>,
    /// Records started and ended, to find a pending one by its number.
    ended: u64,
}

pub struct Wal {
    pub log: Log,
    pub state: Mutex<State>,
    pub metrics: Metrics,
    pub health: Arc<Health>,
    /// Why nothing more is written. Not the same as the health's reason: a log that is being shut down still writes.
    broken: OnceLock<String>,
    /// Told when `State::bytes` passes the threshold.
    pub grown: Notify,
    pub checkpoint_bytes: u64,
    /// Serialises giving segments back.
    pub retiring: tokio::sync::Mutex<()>,
    /// What may be given back.
    spent: Mutex<Spent>,
}

/// Up to where entries are purged, and from where on they are held all the same, for their bytes.
#[derive(Default)]
struct Spent {
    /// The newest durable purge: its index, and the newest life before its record was started.
    purged: Option<(u64, u32)>,
    hold: Option<u64>,
    /// The hold kept something of that purge from being given back.
    behind: bool,
}

impl Spent {
    /// The last index that is needed by nobody, and the life below which segments may go.
    fn upto(&mut self) -> Option<(u64, u32)> {
        let (purged, below) = self.purged?;
        let free = self.hold.map_or(u64::MAX, |h| h.saturating_sub(1));
        self.behind = free < purged;
        Some((purged.min(free), below))
    }
}

impl Wal {
    pub fn new(log: Log, state: State, metrics: Metrics, health: Arc<Health>, checkpoint_bytes: u64) -> Arc<Self> {
        let (state, grown, retiring) = (Mutex::new(state), Notify::new(), tokio::sync::Mutex::new(()));
        let spent = Mutex::default();
        Arc::new(Self { log, state, metrics, health, broken: OnceLock::new(), grown, checkpoint_bytes, retiring, spent })
    }
}

/// What a record is about, for the books.
#[derive(Clone, Copy, Default)]
pub struct About {
    /// Highest entry index in it.
    pub index_max: u64,
    pub entries: u64,
}

impl Wal {
    /// Starts writing a record. Returns when its place in the order is taken; `done` hears the rest.
    pub async fn start(self: &Arc<Self>, kind: u8, body: Vec<u8>, about: About, done: Done) -> io::Result<()> {
        if let Some(why) = self.broken.get() {
            let e = || io::Error::other(why.to_string());
            done.call(Err(e()));
            return Err(e());
        }
        let number = {
            let mut s = self.state.lock();
            s.pending.push_back(Pending { seq: None, done });
            s.ended + s.pending.len() as u64 - 1
        };
        let wal = self.clone();
        // The books are kept before any flush can count the record: who hears of durability may rely on them.
        let books = self.clone();
        let append = self.log.append_then(pack(kind, body), move |appended| books.written(number, &appended, about));
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            match append.await {
                Ok(_) => wal.flush().await,
                Err(e) => wal.fail(e),
            }
        });
        // The first poll takes the place in the log. Alone on a quiet thread it also does all the work at once.
        let before = self.log.last_seq();
        let over = poll_fn(|cx| Poll::Ready(work.poll_unpin(cx).is_ready())).await;
        if !over {
            if self.log.last_seq() == before {
                // No place yet: it waits for a segment. Were it refused then, a shorter record behind it might still fit,
                // and the log would have a hole. So nothing comes behind it before it is settled.
                work.await;
            } else {
                tokio::spawn(work);
            }
        }
        match self.broken.get() {
            Some(why) => Err(io::Error::other(why.to_string())),
            None => Ok(()),
        }
    }

    /// Writes a record and waits until it is durable.
    pub async fn write(self: &Arc<Self>, kind: u8, body: Vec<u8>) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        self.start(kind, body, About::default(), Done::Wake(tx)).await?;
        rx.await.unwrap_or_else(|_| Err(io::Error::other(self.broken.get().cloned().unwrap_or_else(|| "the write-ahead log ended".into()))))
    }

    fn written(&self, number: u64, appended: &Appended, about: About) {
        let stored = appended.location.stored_bytes();
        self.metrics.wal_records.inc();
        self.metrics.wal_entries.inc_by(about.entries);
        self.metrics.wal_bytes.inc_by(stored);
        let mut s = self.state.lock();
        let life = s.lives.entry(appended.location.position.life).or_default();
        *life = (*life).max(about.index_max);
        s.bytes += stored;
        let at = number.checked_sub(s.ended).and_then(|i| usize::try_from(i).ok());
        if let Some(p) = at.and_then(|i| s.pending.get_mut(i)) {
            p.seq = Some(appended.seq);
        }
        if s.bytes >= self.checkpoint_bytes {
            self.grown.notify_one();
        }
    }

    async fn flush(&self) {
        self.metrics.wal_flush_waits.inc();
        match self.log.flush().await {
            Ok(durable) => {
                let mut over = Vec::new();
                {
                    let mut s = self.state.lock();
                    while s.pending.front().is_some_and(|p| p.seq.is_some_and(|seq| seq <= durable)) {
                        over.extend(s.pending.pop_front());
                        s.ended += 1;
                    }
                }
                over.into_iter().for_each(|p| p.done.call(Ok(())));
            }
            Err(e) => self.fail(e),
        }
    }

    /// Ends the log: everyone waiting hears why.
    pub fn fail(&self, why: impl std::fmt::Display) {
        let why = self.broken.get_or_init(|| why.to_string()).clone();
        self.health.fail(&why);
        let over = {
            let mut s = self.state.lock();
            let over = std::mem::take(&mut s.pending);
            s.ended += over.len() as u64;
            over
        };
        over.into_iter().for_each(|p| p.done.call(Err(io::Error::other(why.clone()))));
        self.grown.notify_one();
    }

    /// A purge of entries up to `upto` is durable: gives segments back. `below`: the newest life before its record was started; a write
    /// still on its way cannot lie under it.
    pub async fn purged(&self, upto: u64, below: u32) {
        self.spent.lock().purged = Some((upto, below));
        self.retire().await;
    }

    /// The state needs the bytes of entries from this one on. When that sets free what an earlier purge had to leave, it is given back.
    pub fn hold(self: &Arc<Self>, from: Option<u64>) {
        let mut spent = self.spent.lock();
        let risen = spent.hold.is_some_and(|old| from.is_none_or(|new| new > old));
        spent.hold = from;
        if risen && spent.behind {
            let wal = self.clone();
            tokio::spawn(async move { wal.retire().await });
        }
    }

    /// Gives back the segments whose entries nobody needs.
    async fn retire(&self) {
        let _one = self.retiring.lock().await;
        let Some((upto, below)) = self.spent.lock().upto() else { return };
        loop {
            let next = {
                let s = self.state.lock();
                s.lives.first_key_value().map(|(life, max)| (*life, *max))
            };
            let Some((life, _)) = next.filter(|(life, max)| *life < below && *max <= upto) else { return };
            if let Err(e) = self.log.retire(life).await {
                return self.fail(format!("giving back a segment of the write-ahead log: {e}"));
            }
            self.metrics.segments_retired.inc();
            self.state.lock().lives.remove(&life);
        }
    }

    /// The life the newest records go to.
    pub fn newest_life(&self) -> u32 {
        self.state.lock().lives.last_key_value().map_or(0, |(life, _)| *life)
    }
}

/// Puts the body where it is cheapest: beside the head when it fits. Only entries stay out of the reserve: a purge makes
/// room, and the others are a block each at a start or an end.
fn pack(kind: u8, body: Vec<u8>) -> Append {
    let append = if body.len() < META_BYTES_MAX {
        let mut meta = Vec::with_capacity(body.len() + 1);
        meta.push(BODY_IN_META);
        meta.extend_from_slice(&body);
        Append::new(kind, meta)
    } else {
        Append::new(kind, vec![BODY_IN_PAYLOAD]).payload(Bytes::from(body))
    };
    if kind == record::kind::ENTRIES { append } else { append.urgent() }
}

/// Where the body of a record is; the reverse of [`pack`].
pub enum Body<'a> {
    Here(&'a [u8]),
    InPayload,
}

pub fn unpack(meta: &[u8]) -> Result<Body<'_>, String> {
    match meta.split_first() {
        Some((&BODY_IN_META, rest)) => Ok(Body::Here(rest)),
        Some((&BODY_IN_PAYLOAD, [])) => Ok(Body::InPayload),
        _ => Err(format!("a record of the write-ahead log with an unknown layout (record version {})", record::VERSION)),
    }
}
