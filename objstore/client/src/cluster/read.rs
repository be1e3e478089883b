//! Reading a range of a stripe from its OSDs: only the shards and blocks that hold it.
//!
//! What always holds: bytes are answered only when their OSD verified them and their shard is of the writing that the record names.
//! A shard that fails, is missing, or is slow where another device could be faster, is gone round. The stripe is `Gone` when enough
//! OSDs say that they do not hold it, and none that it does, so that a stripe within its code's strength never is.

use super::Cluster;
use super::decode::Have;
use crate::{Error, Result, ShardFault};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_ec::layout::{Piece, pieces};
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::shard::{self, ShardKey};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What was learnt about shards while reading.
pub(crate) type Faults = SmallVec<[(u8, ShardFault); 2]>;

impl Cluster {
    pub(crate) async fn read_range(&self, stripe: &Arc<StripeMeta>, range: Range<u32>) -> Result<Vec<Bytes>> {
        assert!(range.start <= range.end && range.end <= stripe.len, "{range:?} of a stripe of {} bytes", stripe.len);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let _reading = self.readers.enter();
        self.metrics.reads.inc();
        self.metrics.read_bytes.inc_by(range.len() as u64);
        if self.cache.is_empty() { self.read_osds(stripe, range).await } else { Box::pin(self.read_through(stripe, range)).await }
    }

    /// Reads from OSDs, whatever the cache holds.
    pub(crate) async fn read_osds(&self, stripe: &Arc<StripeMeta>, range: Range<u32>) -> Result<Vec<Bytes>> {
        if stripe.is_bare() {
            return Err(Error::Lost { stripe: stripe.id, why: "its bytes were with the metadata, which has lost them".into() });
        }
        let mut faults = Faults::new();
        // The usual small read is one call and needs no room for what could go wrong.
        if let Some(piece) = self.only_piece(stripe, &range) {
            match self.get(stripe, piece.shard as u8, piece.offset, piece.len).await {
                Ok(bytes) => return Ok(vec![bytes]),
                Err(fault) => note(&mut faults, piece.shard as u8, fault),
            }
        }
        Box::pin(self.read_round(stripe, range, faults)).await
    }

    /// The one piece that is all of a read on one device, if it is.
    fn only_piece(&self, stripe: &StripeMeta, range: &Range<u32>) -> Option<Piece> {
        if !self.one_domain() || stripe.missing != 0 {
            return None;
        }
        let (bytes, len) = (stripe.shard_bytes(), range.len() as u32);
        let (shard, offset) = (range.start / bytes, range.start % bytes);
        let shard = if stripe.code.k == 1 { first_copy(stripe) } else { shard as usize };
        (offset + len <= bytes).then_some(Piece { shard, offset, len })
    }

    /// Reads in several pieces, or round `faults`.
    async fn read_round(&self, stripe: &Arc<StripeMeta>, range: Range<u32>, mut faults: Faults) -> Result<Vec<Bytes>> {
        let answer = if stripe.code.k == 1 {
            self.read_copy(stripe, range, &mut faults).await.map(|b| vec![b])
        } else {
            self.read_pieces(stripe, &pieces(stripe, range), &mut faults).await
        };
        if !faults.is_empty() {
            return self.after_faults(stripe, faults, answer);
        }
        answer.ok_or_else(|| Error::Lost { stripe: stripe.id, why: "too few shards were ever written".into() })
    }

    /// Reports what was found, and names the error.
    fn after_faults(&self, stripe: &Arc<StripeMeta>, faults: Faults, answer: Option<Vec<Bytes>>) -> Result<Vec<Bytes>> {
        let absent = faults.iter().filter(|(_, f)| *f == ShardFault::NotFound).count();
        let unlike_absent = faults.iter().any(|(_, f)| matches!(f, ShardFault::Corrupt | ShardFault::OtherDigest));
        // A stripe within its strength lacks no more than `m`; a reader that is overtaken by a deletion may have had up to k - 1 of the others.
        let too_many = (stripe.code.m as usize + 1).min(stripe.code.k as usize);
        if answer.is_none() && !unlike_absent && absent >= too_many {
            failpoint::reached("client.read_gone");
            return Err(Error::Gone { stripe: stripe.id });
        }
        for (shard, why) in &faults {
            self.repair.report(stripe.clone(), *shard, *why);
        }
        if stripe.code.k == 1 {
            self.metrics.degraded_reads.inc();
        }
        answer.ok_or_else(|| {
            failpoint::reached("client.read_lost");
            let mut why = format!("too few shards of {} are left", stripe.code);
            for (shard, fault) in &faults {
                let osd = stripe.osds.get(*shard as usize).copied().unwrap_or_default();
                why.push_str(&format!(", shard {shard} on {osd} is {fault}"));
            }
            Error::Lost { stripe: stripe.id, why }
        })
    }

    /// One shard read, verified to be of this writing.
    pub(crate) async fn get(&self, stripe: &StripeMeta, shard: u8, offset: u32, len: u32) -> std::result::Result<Bytes, ShardFault> {
        let slot = stripe.osds.get(shard as usize).and_then(|osd| self.slot(*osd));
        let Some(slot) = slot.filter(|s| s.service.failure().is_none()) else {
            self.metrics.shards_down.inc();
            return Err(ShardFault::Down);
        };
        self.metrics.gets.inc();
        self.metrics.get_bytes.inc_by(len as u64);
        let begun = (!self.one_domain()).then(Instant::now);
        let answer = slot.service.get(ShardKey { stripe: stripe.id, shard }, offset, len).await;
        if let Some(begun) = begun {
            self.get_times.record(begun.elapsed());
        }
        let (count, fault) = match answer {
            Ok(read) if read.head.digest != stripe.digest => (&self.metrics.shards_other_digest, ShardFault::OtherDigest),
            Ok(read) if read.data.len() == len as usize => return Ok(read.data),
            Ok(_) | Err(shard::Error::Corrupt { .. }) => (&self.metrics.shards_corrupt, ShardFault::Corrupt),
            Err(shard::Error::NotFound { .. }) => (&self.metrics.shards_not_found, ShardFault::NotFound),
            Err(_) => (&self.metrics.shards_down, ShardFault::Down),
        };
        failpoint::reached(match fault {
            ShardFault::OtherDigest => "client.get_other_digest",
            ShardFault::Corrupt => "client.get_corrupt",
            ShardFault::NotFound => "client.get_not_found",
            ShardFault::Down => "client.get_down",
        });
        count.inc();
        Err(fault)
    }

    /// When to ask others as well, or `None` where that could not help.
    pub(crate) fn read_hedge(&self) -> Option<Duration> {
        if self.one_domain() {
            return None;
        }
        let usual = self.get_times.p99().map_or(Duration::ZERO, |p99| p99 * 4);
        Some(usual.max(self.config.read_hedge_min))
    }

    /// Shards to ask, likeliest first: acknowledged ones on OSDs in service that owe us nothing; then busy ones; then those that were
    /// missing when the stripe was published (they may have arrived, or been repaired).
    pub(crate) fn preference(&self, stripe: &StripeMeta, first: usize) -> SmallVec<[u8; 8]> {
        let n = stripe.code.n();
        let mut order: SmallVec<[u8; 8]> = (0..n).map(|i| ((first + i) % n) as u8).collect();
        let rank = |shard: u8| {
            let slot = stripe.osds.get(shard as usize).and_then(|osd| self.slot(*osd));
            let busy = slot.is_none_or(|s| s.owed() > 0);
            (stripe.missing >> shard & 1, busy)
        };
        if stripe.missing != 0 || !self.one_domain() {
            order.sort_by_key(|s| rank(*s));
        }
        order
    }

    /// A range of a stripe of whole copies, from any one.
    async fn read_copy(&self, stripe: &StripeMeta, range: Range<u32>, faults: &mut Faults) -> Option<Bytes> {
        let (offset, len) = (range.start, range.len() as u32);
        let mut order = self.preference(stripe, first_copy(stripe));
        order.retain(|s| !faults.iter().any(|(bad, _)| bad == s));
        let Some(hedge) = self.read_hedge() else {
            for shard in order {
                match self.get(stripe, shard, offset, len).await {
                    Ok(bytes) => return Some(bytes),
                    Err(fault) => note(faults, shard, fault),
                }
            }
            return None;
        };
        let ask = |shard: u8| async move { (shard, self.get(stripe, shard, offset, len).await) };
        let mut order = order.into_iter();
        let mut asked: FuturesUnordered<_> = order.next().map(ask).into_iter().collect();
        let slow = tokio::time::sleep(hedge);
        tokio::pin!(slow);
        loop {
            tokio::select! {
                biased;
                answer = asked.next() => match answer? {
                    (_, Ok(bytes)) => return Some(bytes),
                    (shard, Err(fault)) => {
                        note(faults, shard, fault);
                        asked.extend(order.next().map(ask));
                    }
                },
                () = &mut slow, if order.len() > 0 => {
                    failpoint::reached("client.read_copy_hedged");
                    self.metrics.read_hedges.inc();
                    asked.extend(order.next().map(ask));
                    slow.as_mut().reset(Instant::now() + hedge);
                }
            }
        }
    }

    /// Pieces of a coded stripe, in order; those that cannot be had are decoded.
    async fn read_pieces(&self, stripe: &StripeMeta, pieces: &[Piece], faults: &mut Faults) -> Option<Vec<Bytes>> {
        let bad = faults.iter().fold(0u32, |bits, (s, _)| bits | 1 << s) | stripe.missing;
        let mut run = Run { pieces, got: pieces.iter().map(|_| None).collect(), faults };
        let ask = |at: usize| {
            let p = pieces[at];
            async move { (at, self.get(stripe, p.shard as u8, p.offset, p.len).await) }
        };
        let mut asked: FuturesUnordered<_> = (0..pieces.len()).filter(|at| bad >> pieces[*at].shard & 1 == 0).map(ask).collect();
        let slow = until_slow(self.read_hedge());
        tokio::pin!(slow);
        loop {
            tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    None => break,
                    Some((at, answer)) => run.take(at, answer),
                },
                () = &mut slow => {
                    failpoint::reached("client.read_pieces_hedged");
                    self.metrics.read_hedges.inc();
                    break;
                }
            }
        }
        // What failed is decoded, and so is what is slow and may still win; again with each slow one that arrives, if it could not
        // be done without.
        while run.late().next().is_some() {
            let (want, have, mut found) = (run.want(), run.have(), Faults::new());
            let avoid = run.late_shards() & !stripe.missing | run.bad();
            let decoded = {
                let decode = self.decode(stripe, &want, &have, avoid, &mut found);
                tokio::pin!(decode);
                loop {
                    tokio::select! {
                        biased;
                        decoded = &mut decode => break decoded,
                        Some((at, answer)) = asked.next() => run.take(at, answer),
                    }
                    if run.late().next().is_none() {
                        break None;
                    }
                }
            };
            run.decoded(&want, decoded, &found);
            // One that arrived meanwhile was no source of the decoding yet.
            if run.late().count() == want.len() {
                let (at, answer) = asked.next().await?;
                run.take(at, answer);
            }
        }
        run.whole()
    }
}

/// Pieces of one read on their way.
struct Run<'a> {
    pieces: &'a [Piece],
    got: SmallVec<[Option<Bytes>; 4]>,
    faults: &'a mut Faults,
}

impl Run<'_> {
    fn take(&mut self, at: usize, answer: std::result::Result<Bytes, ShardFault>) {
        match answer {
            Ok(bytes) => self.got[at] = Some(bytes),
            Err(fault) => note(self.faults, self.pieces[at].shard as u8, fault),
        }
    }

    fn late(&self) -> impl Iterator<Item = usize> + '_ {
        self.got.iter().enumerate().filter(|(_, b)| b.is_none()).map(|(at, _)| at)
    }

    /// The shards of late pieces, as bits.
    fn late_shards(&self) -> u32 {
        self.late().fold(0, |bits, at| bits | 1 << self.pieces[at].shard)
    }

    /// The shards that cannot be used, as bits.
    fn bad(&self) -> u32 {
        self.faults.iter().fold(0, |bits, (shard, _)| bits | 1 << shard)
    }

    fn want(&self) -> SmallVec<[Piece; 4]> {
        self.late().map(|at| self.pieces[at]).collect()
    }

    fn have(&self) -> SmallVec<[Have; 4]> {
        let pairs = self.pieces.iter().zip(&self.got);
        pairs.filter_map(|(piece, bytes)| Some(Have { piece: *piece, bytes: bytes.clone()? })).collect()
    }

    /// Takes the pieces `want` from decoding, if it could be done, and what it found.
    fn decoded(&mut self, want: &[Piece], decoded: Option<Vec<Bytes>>, found: &Faults) {
        found.iter().for_each(|(shard, fault)| note(self.faults, *shard, *fault));
        for (piece, bytes) in want.iter().zip(decoded.into_iter().flatten()) {
            // A range has one piece of each shard at most.
            let at = self.pieces.iter().position(|p| p.shard == piece.shard).expect("it is one of them");
            self.got[at] = Some(bytes);
        }
    }

    fn whole(self) -> Option<Vec<Bytes>> {
        self.got.into_iter().collect()
    }
}

/// Where reads of a stripe of copies begin. Ids are dense, so this spreads the load.
fn first_copy(stripe: &StripeMeta) -> usize {
    (stripe.id.counter % stripe.code.n() as u64) as usize
}

/// Adds what was learnt of a shard, once.
pub(crate) fn note(faults: &mut Faults, shard: u8, fault: ShardFault) {
    if !faults.iter().any(|(s, _)| *s == shard) {
        faults.push((shard, fault));
    }
}

/// Ends after `hedge`, or never; a timer is made only where there is a hedge.
pub(crate) async fn until_slow(hedge: Option<Duration>) {
    match hedge {
        Some(hedge) => tokio::time::sleep(hedge).await,
        None => std::future::pending().await,
    }
}
