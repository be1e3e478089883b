//! Appending: a place is taken under a short lock, then records are written concurrently.
//!
//! What always holds: a record is written once, at the place it took, head and payload in one vectored write; a failed or
//! abandoned write leaves a gap that no later record may be durable behind, so it takes the log out of service.

use super::detach::Detach;
use super::flush::Unflushed;
use super::format::head::{self, Head, KIND_MAX, KIND_SEAL, META_BYTES_MAX, PAYLOAD_BYTES_MAX};
use super::format::{Location, Position, payload_blocks};
use super::segment::Segment;
use super::state::{Active, InService, Shared, State};
use super::{Error, Log, Result};
use bytes::Bytes;
use holdfast_objstore_base::buf::{AlignedBuf, is_aligned};
use holdfast_objstore_base::checksum::block_crcs;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::BLOCK;
use std::sync::Arc;

/// Blocks at the end of the last segment to be had that only urgent records may take.
pub(super) const URGENT_BLOCKS: u32 = 64;

/// A record to append.
#[derive(Debug, Clone)]
pub struct Append {
    /// 1 to [`KIND_MAX`].
    pub kind: u8,
    /// At most [`META_BYTES_MAX`] bytes; visited at recovery.
    pub meta: Bytes,
    /// At most [`PAYLOAD_BYTES_MAX`] bytes. Written without a copy when it is block-aligned in memory (a short last block is copied).
    pub payload: Bytes,
    /// CRC32C of each block of the payload, when the caller has them.
    pub crcs: Option<Arc<[u32]>>,
    /// How far into the reserve it may go.
    pub need: Need,
}

/// How far into the reserve of segments a record may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Need {
    /// Not at all, and not into what is kept before it.
    #[default]
    Ordinary,
    /// Up to it: for copies that let records elsewhere die.
    Background,
    /// For records that make room.
    Urgent,
    /// To its end: for copies that let a segment go.
    Cleaning,
}

/// Where a record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub seq: u64,
    pub location: Location,
}

impl Append {
    pub fn new(kind: u8, meta: impl Into<Bytes>) -> Self {
        Self { kind, meta: meta.into(), payload: Bytes::new(), crcs: None, need: Need::Ordinary }
    }
    pub fn payload(mut self, payload: Bytes) -> Self {
        self.payload = payload;
        self
    }
    /// `crcs` must be of the payload given, block by block; a reader believes them.
    pub fn crcs(mut self, crcs: Arc<[u32]>) -> Self {
        self.crcs = Some(crcs);
        self
    }
    pub fn urgent(mut self) -> Self {
        self.need = Need::Urgent;
        self
    }
    pub fn cleaning(mut self) -> Self {
        self.need = Need::Cleaning;
        self
    }
}

/// A place taken: it is in flight until `finish`; dropped before, it fails the log.
struct Place {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    seq: u64,
    position: Position,
    durable: u64,
    open: bool,
}

enum Taken {
    Place(Place, Option<Place>),
    Wait,
}

impl Log {
    /// Sequence number and position are taken at the first poll (in order of arrival where a new segment is waited for).
    /// Returns when the device has the record; [`Log::flush`] makes it stable. Cancel-safe: once the place is taken, the
    /// write goes on whoever waits. Errors: `Full` (nothing was written), `Failed`, `Bug`.
    pub fn append(&self, append: Append) -> impl Future<Output = Result<Appended>> + Send + 'static {
        self.append_then(append, |_| ())
    }

    /// As [`Log::append`]; `then` runs once, when the device has the record and before any flush, mark or settled segment counts it.
    pub fn append_then(
        &self,
        append: Append,
        then: impl FnOnce(Appended) + Send + 'static,
    ) -> impl Future<Output = Result<Appended>> + Send + 'static {
        let shared = self.0.clone();
        async move {
            let (crcs, head_blocks) = check(&shared, &append)?;
            let payload_bytes = append.payload.len() as u32;
            let blocks = head_blocks + payload_blocks(payload_bytes);
            let parts = payload_parts(&append.payload);
            let (place, seal) = take_place(&shared, blocks, append.need).await?;
            if let Some(seal) = seal {
                // The record need not wait for the seal: a flush of either waits for both.
                let next_life = place.position.life;
                shared.spawn(move |_| async move { seal.write_seal(next_life).await });
            }
            let location = Location { position: place.position, head_blocks, payload_bytes };
            let head =
                Head { kind: append.kind, epoch: shared.epoch, seq: place.seq, durable: place.durable, location, meta: append.meta, crcs };
            shared.kick_supply();
            let runtime = shared.runtime.clone();
            drop(shared);
            Detach::new(&runtime, place.write(head, parts, then)).await
        }
    }

    /// Seals the active segment now and goes on in the next; does nothing while the active one is empty.
    pub async fn roll(&self) -> Result<()> {
        let shared = self.0.clone();
        let empty = {
            let st = shared.state.lock();
            st.alive()?;
            st.active.as_ref().is_none_or(|a| a.next_block == super::format::DATA_START)
        };
        if empty {
            return Ok(());
        }
        let life = shared.state.lock().cursor().life;
        let seal = loop {
            shared.prepare_now();
            let turn = shared
                .wait_for(|st| {
                    if let Err(e) = st.alive() {
                        return Some(Err(e));
                    }
                    if st.cursor().life != life {
                        return Some(Ok(None)); // somebody else rolled
                    }
                    if st.spare.is_some() {
                        return Some(Ok(st.roll(&shared)));
                    }
                    (!st.preparing).then(|| if st.supply.starved || !st.can_prepare(&shared.config) { Err(Error::Full) } else { Ok(None) })
                })
                .await?;
            match turn {
                Some(seal) => break seal,
                None if shared.state.lock().cursor().life != life => return Ok(()),
                None => {}
            }
        };
        let next_life = shared.state.lock().cursor().life;
        Detach::new(&shared.runtime, async move { seal.write_seal(next_life).await }).await
    }
}

fn check(shared: &Shared, append: &Append) -> Result<(Arc<[u32]>, u32)> {
    if append.kind == 0 || append.kind > KIND_MAX {
        return Err(Error::Bug(format!("kind {} is not the owner's", append.kind)));
    }
    if append.meta.len() > META_BYTES_MAX || append.payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Error::Bug("a record beyond the limits".into()));
    }
    let payload_bytes = append.payload.len() as u32;
    let head_blocks = head::head_blocks(append.meta.len(), payload_bytes);
    if head_blocks + payload_blocks(payload_bytes) > shared.config.record_blocks_max() {
        return Err(Error::Bug("a record larger than a segment".into()));
    }
    let crcs: Arc<[u32]> = match &append.crcs {
        Some(c) if c.len() as u32 != payload_blocks(payload_bytes) => return Err(Error::Bug("not one checksum per block".into())),
        Some(c) => c.clone(),
        None => block_crcs(&append.payload).into(),
    };
    Ok((crcs, head_blocks))
}

/// The payload as aligned parts: as it is where it can be, copied where it must.
fn payload_parts(payload: &Bytes) -> Vec<Bytes> {
    if payload.is_empty() {
        return Vec::new();
    }
    let whole = payload.len() / BLOCK * BLOCK;
    if whole > 0 && is_aligned(&payload[..whole]) {
        let mut parts = vec![payload.slice(..whole)];
        if whole < payload.len() {
            parts.push(padded(&payload[whole..]));
        }
        return parts;
    }
    vec![padded(payload)]
}

fn padded(data: &[u8]) -> Bytes {
    let mut b = AlignedBuf::copy_of(data);
    b.set_len(b.capacity());
    b.freeze()
}

/// Takes a place, waiting for a segment where one can be had.
async fn take_place(shared: &Arc<Shared>, blocks: u32, need: Need) -> Result<(Place, Option<Place>)> {
    {
        let mut st = shared.state.lock();
        if st.waiting == 0
            && let Taken::Place(place, seal) = st.take(shared, blocks, need)?
        {
            return Ok((place, seal));
        }
        st.waiting += 1;
    }
    let _waiting = Waiting(shared);
    let _turn = shared.turnstile.acquire().await.expect("the turnstile is never closed");
    loop {
        shared.prepare_now();
        let taken = shared
            .wait_for(|st| match st.take(shared, blocks, need) {
                Ok(Taken::Wait) if st.preparing => None,
                other => Some(other),
            })
            .await?;
        if let Taken::Place(place, seal) = taken {
            return Ok((place, seal));
        }
    }
}

struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl State {
    fn take(&mut self, shared: &Arc<Shared>, blocks: u32, need: Need) -> Result<Taken> {
        self.alive()?;
        let config = &shared.config;
        let limit = self.limit(config, need);
        if need <= Need::Background && self.segments.len() > limit {
            return self.refuse();
        }
        let may_roll = self.segments.len() < limit;
        if blocks <= self.room(config, need) {
            return Ok(Taken::Place(self.place(shared, blocks), None));
        }
        if may_roll && self.spare.is_some() {
            let seal = self.roll(shared);
            return Ok(Taken::Place(self.place(shared, blocks), seal));
        }
        let below = self.segments.len() < (config.segments_max - config.kept(need)) as usize;
        if below && (self.preparing || self.to_prepare(config).is_some()) {
            return Ok(Taken::Wait);
        }
        self.refuse()
    }

    /// Blocks left in the active segment for such records.
    pub(super) fn room(&self, config: &super::Config, need: Need) -> u32 {
        let Some(active) = &self.active else { return 0 };
        let room = config.segment_blocks() - 1 - active.next_block;
        if need > Need::Background {
            return room;
        }
        let normal = self.limit(config, need);
        if self.segments.len() > normal {
            return 0;
        }
        // Where no further segment is to be had, the last blocks are for records that make room.
        let next = self.spare.is_some() || !self.supply.starved && (self.preparing || self.can_prepare(config));
        let more = self.segments.len() < normal && next;
        room.saturating_sub(if more { 0 } else { URGENT_BLOCKS.min(config.segment_blocks() / 8) })
    }

    fn refuse(&mut self) -> Result<Taken> {
        failpoint::reached("osd.log.full");
        self.supply.retry_after = self.supply.retry_after.saturating_sub(1);
        Err(Error::Full)
    }

    /// Takes `blocks` of the active segment, which has them.
    fn place(&mut self, shared: &Arc<Shared>, blocks: u32) -> Place {
        let active = self.active.as_mut().expect("the caller saw an active segment");
        let position = Position { life: active.segment.life(), block: active.next_block };
        active.next_block += blocks;
        let segment = active.segment.clone();
        let seq = self.seq_next;
        self.seq_next += 1;
        self.in_flight.insert(seq, position);
        self.writing += 1;
        let in_service = self.segments.get_mut(&position.life).expect("the active segment is in service");
        in_service.first_seq.get_or_insert(seq);
        match self.unflushed.last_mut() {
            Some(u) if u.segment.life() == position.life => u.last_seq = seq,
            _ => self.unflushed.push(Unflushed { segment: segment.clone(), last_seq: seq }),
        }
        Place { shared: shared.clone(), segment, seq, position, durable: self.durable, open: true }
    }

    /// Puts the spare segment into use; answers the place of the seal that ends the one before. There must be a spare.
    fn roll(&mut self, shared: &Arc<Shared>) -> Option<Place> {
        let seal = self.active.is_some().then(|| {
            let seal = self.place(shared, 1);
            let active = self.active.take().expect("just seen");
            let old = self.segments.get_mut(&seal.position.life).expect("the active segment is in service");
            old.sealed = Some(seal.seq);
            old.end = active.next_block;
            seal
        });
        let segment = self.spare.take().expect("the caller saw a spare segment");
        self.segments.insert(segment.life(), InService { segment: segment.clone(), first_seq: None, sealed: None, end: 0 });
        self.active = Some(Active { segment, next_block: super::format::DATA_START });
        seal
    }
}

impl Place {
    async fn write(mut self, head: Head, mut parts: Vec<Bytes>, then: impl FnOnce(Appended) + Send) -> Result<Appended> {
        parts.insert(0, head.encode(self.shared.id).freeze());
        let offset = self.position.block as u64 * BLOCK as u64;
        let written = self.segment.file.write_at(offset, parts).await;
        self.open = false;
        if let Err(e) = written {
            failpoint::reached("osd.log.append_failed");
            return Err(self.shared.fail(format!("an append failed: {e}")));
        }
        let appended = Appended { seq: self.seq, location: head.location };
        if !head.crcs.is_empty() {
            self.shared.heads.insert(self.position, Arc::new(head));
        }
        then(appended);
        self.complete();
        self.shared.counters.appends.inc();
        Ok(appended)
    }

    pub async fn write_seal(self, next_life: u32) -> Result<()> {
        let mut meta = [0; 8];
        meta[..4].copy_from_slice(&next_life.to_le_bytes());
        let head = Head {
            kind: KIND_SEAL,
            epoch: self.shared.epoch,
            seq: self.seq,
            durable: self.durable,
            location: Location { position: self.position, head_blocks: 1, payload_bytes: 0 },
            meta: Bytes::copy_from_slice(&meta),
            crcs: Arc::new([]),
        };
        self.write(head, Vec::new(), |_| ()).await.map(|_| ())
    }

    fn complete(&self) {
        let mut st = self.shared.state.lock();
        st.in_flight.remove(&self.seq);
        st.completed_max = st.completed_max.max(self.seq);
        let watched = st.watchers > 0;
        drop(st);
        if watched {
            self.shared.changed.notify_waiters();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.open {
            self.shared.fail("an append was abandoned".into());
        }
        let mut st = self.shared.state.lock();
        st.writing -= 1;
        let watched = st.watchers > 0;
        drop(st);
        if watched {
            self.shared.changed.notify_waiters();
        }
    }
}
