//! Packing: staged bytes, the rest of half-dead packs and cold small stripes are copied into packs; between them worn stripes are
//! rewritten (`worn`).
//!
//! What always holds: a pack is durable before it is committed, and the commit moves only stripes that are still where they were copied
//! from, so a crash or a change at any moment leaves each stripe in one place. Staged bytes go in the order of the log. One pack
//! is under way at a time. Other packs are made one by one, and what is staged has its turn between them.
//! What it leaves out: deleting what packs took the place of (`stripes`); staged bytes that cannot be packed for long (`relief`); extents,
//! which never change.

use super::super::core::Core;
use super::Backoff;
use super::worn::Worn;
use super::writer::Writer;
use bytes::Bytes;
use futures::future::join_all;
use holdfast_meta_core::read::{self, Gathered, PackBounds, Place};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::meta::{Command, Home, MetaError, MetaResult, Pack, PackMember, Reply};
use holdfast_objstore_proto::stripe::{COPIES_BYTES_MAX, STRIPE_BYTES_MAX};
use holdfast_objstore_proto::{BucketId, Code, SessionEpoch, SessionId, StripeId, StripeMeta};
use std::ops::Range;
use std::sync::Arc;
use tokio::time::Instant;

/// One pack: a stripe's worth of bytes, and no more members than one command moves without keeping others waiting.
const BOUNDS: PackBounds = PackBounds { bytes_max: STRIPE_BYTES_MAX as u64, members_max: 512 };
/// Packs gathered from one bucket before the next bucket has its turn.
const TURNS_MAX: usize = 64;
/// Stripes read at a time for a pack.
pub(super) const READS_AT_ONCE: usize = 8;

/// A pack to be written.
#[derive(Debug, Clone)]
pub struct PackWrite {
    pub id: StripeId,
    pub bucket: BucketId,
    /// The bucket's code; `None`: the bucket is gone, and the cluster's own will do.
    pub code: Option<Code>,
    pub data: Vec<Bytes>,
    pub session: SessionId,
    pub epoch: SessionEpoch,
}

/// Room of the object cluster for its own code, in bytes of users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub total: u64,
    pub free: u64,
    /// What the packer itself may still write: with what is kept from users.
    pub own: u64,
}

/// The object cluster, as the packer uses it.
pub trait PackStore: Send + Sync + 'static {
    /// Writes a stripe; it is stable on its write quorum on return.
    fn write(&self, write: PackWrite) -> BoxFuture<'_, Result<Arc<StripeMeta>, String>>;
    /// Data bytes of a stripe, verified, in one or more pieces.
    fn read<'a>(&'a self, stripe: &'a Arc<StripeMeta>, range: Range<u32>) -> BoxFuture<'a, Result<Vec<Bytes>, String>>;
    /// What can be written now, and in all.
    fn room(&self) -> Room;
}

/// Why a pack did not come about.
pub(super) enum Fault {
    /// The store, or the log, cannot do it now.
    Later(String),
    /// The service is over.
    Over,
}

impl From<MetaError> for Fault {
    fn from(e: MetaError) -> Self {
        match e {
            MetaError::Failed(_) => Fault::Over,
            e => Fault::Later(e.to_string()),
        }
    }
}

pub(super) struct Packer {
    pub(super) core: Arc<Core>,
    pub(super) store: Arc<dyn PackStore>,
    pub(super) worn: Worn,
    writer: Option<Writer>,
    /// When cold stripes are looked for next.
    cold_at: Instant,
    /// The bucket where looking for them ended in a failure.
    cold_from: Option<BucketId>,
    /// Half-dead packs up to here were looked at, and could not all be read.
    sparse_after: Option<StripeId>,
    /// Half-dead packs that the last pass over all of them left, for they could not be read.
    sparse_left: i64,
    /// When all that was staged was taken up last.
    drained_at: Instant,
    /// The last round failed.
    failed: bool,
}

/// What a pack is made of, for the counters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Staged,
    Sparse,
    Small,
}

pub(super) async fn run(core: Arc<Core>, store: Arc<dyn PackStore>) {
    let now = Instant::now();
    let cold_at = now + core.config.pack_cold;
    let worn = Worn::default();
    let mut packer = Packer {
        core: core.clone(),
        store,
        worn,
        writer: None,
        cold_at,
        cold_from: None,
        sparse_after: None,
        sparse_left: 0,
        drained_at: now,
        failed: false,
    };
    let mut backoff = Backoff::new();
    while core.work.unless_stopped(packer.due()).await {
        // Half a pack does no harm: its shards are garbage, and what it was made of is where it was.
        match core.work.or_stop(packer.round()).await {
            None => break,
            Some(Ok(())) => backoff = Backoff::new(),
            Some(Err(Fault::Over)) => return,
            Some(Err(Fault::Later(why))) => {
                failpoint::reached("meta.pack_failed");
                core.metrics.pack_failures.inc();
                tracing::warn!(error = %why, "small writes could not be packed; trying again later");
                if !core.work.unless_stopped(tokio::time::sleep(backoff.next())).await {
                    break;
                }
            }
        }
    }
    packer.close().await;
}

impl Packer {
    /// Waits until there is a reason for a round.
    async fn due(&self) {
        let config = &self.core.config;
        let mut since = None;
        loop {
            let now = self.core.state.staged_now();
            if now.stripes == 0 {
                since = None;
                tokio::select! {
                    biased;
                    () = self.core.state.packable() => {}
                    () = self.core.work.worn.notified() => {}
                    () = tokio::time::sleep(config.worn_look) => {}
                    () = tokio::time::sleep_until(self.cold_at) => return,
                }
                let now = self.core.state.staged_now();
                if now.stripes == 0 && (self.is_sparse() || self.worn_below().is_some()) {
                    return;
                }
                continue;
            }
            let until = *since.get_or_insert_with(Instant::now) + config.pack_delay;
            if config.state.is_much(&now) || Instant::now() >= until {
                return;
            }
            tokio::select! {
                biased;
                () = self.core.state.packable() => {}
                () = tokio::time::sleep(config.pack_idle) => {
                    let then = self.core.state.staged_now();
                    if then.stripes > 0 && then.newest == now.newest {
                        return;
                    }
                }
            }
        }
    }

    async fn round(&mut self) -> Result<(), Fault> {
        if std::mem::replace(&mut self.failed, true) {
            // A store that is full takes nothing until half-dead packs give back what is dead in them. The round tells what fails.
            while let Ok(true) = self.sparse().await {}
        }
        self.drain().await?;
        while self.sparse().await? {
            self.drain_if_due().await?;
        }
        self.rewrite_worn().await?;
        if Instant::now() >= self.cold_at {
            self.gather_cold().await?;
        }
        self.failed = false;
        Ok(())
    }

    /// Packs all that is staged now; what is staged meanwhile waits for its own turn.
    async fn drain(&mut self) -> Result<(), Fault> {
        let newest = self.core.state.staged_now().newest;
        self.drained_at = Instant::now();
        while let Some(found) = self.staged_until(newest)? {
            self.pack(found, Kind::Staged).await?;
        }
        Ok(())
    }

    /// The same between other packs, when much waits, or may have waited for long.
    pub(super) async fn drain_if_due(&mut self) -> Result<(), Fault> {
        let config = &self.core.config;
        if config.state.is_much(&self.core.state.staged_now()) || self.drained_at + config.pack_delay <= Instant::now() {
            self.drain().await?;
        }
        Ok(())
    }

    /// Whether some pack is half dead, beside those that could not be read. A state that cannot be read is the next round's affair.
    fn is_sparse(&self) -> bool {
        self.core.view(|kv| read::stats(kv)).map_or(true, |s| s.sparse as i64 > self.sparse_left)
    }

    /// Rewrites half-dead packs into one; whether there may be more to do. What cannot be read keeps nothing behind it from its turn.
    async fn sparse(&mut self) -> Result<bool, Fault> {
        let after = self.sparse_after;
        let Some(found) = self.core.view(|kv| read::gather_sparse(kv, after, BOUNDS))? else {
            if after.is_some() {
                self.sparse_after = None;
                self.sparse_left = self.core.view(|kv| read::stats(kv))?.sparse as i64;
            }
            return Ok(false);
        };
        let last = found.last;
        if !self.pack(found, Kind::Sparse).await? {
            self.sparse_after = Some(last);
        }
        Ok(true)
    }

    /// The next of what is staged, if the oldest of it is no younger than that.
    fn staged_until(&self, newest: u64) -> Result<Option<Gathered>, Fault> {
        let found = self.core.view(|kv| kv.gather_staged(BOUNDS))?;
        Ok(found.filter(|f| f.places.first().is_some_and(|p| matches!(p.from, Home::Staged { index } if index <= newest))))
    }

    /// Cold small stripes, where there are enough of them for a coded pack. When it fails it goes on at the bucket where it was.
    async fn gather_cold(&mut self) -> Result<(), Fault> {
        let cold = i64::try_from(self.core.config.pack_cold.as_nanos()).unwrap_or(i64::MAX);
        let until = i64::try_from(self.core.clock.wall_ns()).unwrap_or(i64::MAX).saturating_sub(cold);
        for bucket in self.core.view(|kv| read::small_buckets(kv))? {
            // A root names the stripes of a snapshot: they stay what they are.
            if self.cold_from.is_some_and(|from| bucket < from) || self.core.is_system(bucket)? {
                continue;
            }
            self.cold_from = Some(bucket);
            let mut after = None;
            for _ in 0..TURNS_MAX {
                let Some(found) = self.core.view(|kv| read::gather_small(kv, bucket, until, after, BOUNDS))? else { break };
                if found.bytes <= COPIES_BYTES_MAX as u64 {
                    break;
                }
                let last = found.last;
                if !self.pack(found, Kind::Small).await? {
                    after = Some(last);
                }
                self.drain_if_due().await?;
            }
        }
        self.cold_from = None;
        // Repair may have mended what could not be read.
        self.sparse_left = 0;
        self.cold_at = Instant::now() + self.core.config.pack_cold;
        Ok(())
    }

    /// Copies and commits one pack; whether every stripe that was gathered could be read, or is gone by now.
    async fn pack(&mut self, found: Gathered, kind: Kind) -> Result<bool, Fault> {
        let gathered = found.places.len();
        let mut copied = Vec::with_capacity(gathered);
        let mut whole = true;
        let mut places = found.places.into_iter();
        loop {
            let some: Vec<Place> = places.by_ref().take(READS_AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            let reads: Vec<_> = some.iter().map(|place| self.bytes_of(place)).collect();
            let read = join_all(reads).await;
            for (place, data) in some.into_iter().zip(read) {
                match data {
                    Some(data) => copied.push((place, data)),
                    // Staged bytes that went meanwhile are nobody's loss; what cannot be read is left to repair.
                    None => whole &= place.read.is_none(),
                }
            }
        }
        if !whole {
            self.core.metrics.packs_unreadable.inc();
        }
        if copied.is_empty() {
            return Ok(whole);
        }
        // Whole blocks first, so that they lie on blocks of the pack.
        copied.sort_by_key(|(place, _)| !place.len.is_multiple_of(BLOCK as u32));
        let (mut members, mut data, mut at) = (Vec::with_capacity(copied.len()), Vec::with_capacity(copied.len()), 0);
        for (place, bytes) in copied {
            members.push(PackMember { stripe: place.stripe, len: place.len, at, from: place.from });
            data.extend(bytes);
            at += place.len;
        }
        let core = self.core.clone();
        let writer = self.writer().await?;
        let id = writer.stripe(&core).await?;
        let (session, epoch) = (writer.id, writer.epoch);
        let write = PackWrite { id, bucket: found.bucket, code: found.code, data, session, epoch };
        let stripe = self.store.write(write).await.map_err(Fault::Later)?;
        let pack = Pack { bucket: found.bucket, stripe, members };
        let Reply::Packed { moved } = self.writer().await?.run(&core, Command::Pack(pack)).await? else {
            return Err(Fault::Later("Pack answered something else".into()));
        };
        core.work.stripes.notify();
        core.metrics.packs_written.inc();
        match kind {
            Kind::Staged => drop(core.metrics.drained_bytes.inc_by(at as u64)),
            Kind::Sparse => drop(core.metrics.packs_rewritten.inc()),
            Kind::Small => drop(core.metrics.stripes_gathered.inc_by(moved as u64)),
        }
        tokio::task::yield_now().await;
        Ok(whole)
    }

    async fn bytes_of(&self, place: &Place) -> Option<Vec<Bytes>> {
        let Some((stripe, at)) = &place.read else { return Some(vec![self.core.state.staged(place.stripe)?]) };
        match self.store.read(stripe, *at..*at + place.len).await {
            Ok(data) => Some(data),
            Err(why) => {
                tracing::debug!(stripe = %place.stripe, error = %why, "not packed");
                None
            }
        }
    }

    pub(super) async fn writer(&mut self) -> MetaResult<&mut Writer> {
        if self.writer.as_ref().is_none_or(|w| w.over) {
            self.writer = Some(Writer::open(&self.core, "packer").await?);
        }
        Ok(self.writer.as_mut().expect("just made"))
    }

    /// Ends the session in order; one that is left is ended by the next start.
    async fn close(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            let _ = writer.run(&self.core, Command::CloseSession).await;
        }
    }
}
