//! Writing a stripe: rounds of plan, encode, put, until a quorum holds it.
//!
//! What always holds: an answer of Ok names only shards of one digest on a quorum of distinct OSDs.
//! A round below its quorum is followed by another without the OSDs that refused, if need be in a narrower code. Nothing is deleted in
//! between: shards of an abandoned round are garbage under the same id, perhaps with another digest, which no read decodes (the record
//! names the digest), and which this write's later rounds steer clear of (an OSD refuses a key it holds with another digest). They are dropped
//! before the write is answered, also when it fails: its session may live for long, and room is perhaps what it lacked. Those of a
//! process that ended meanwhile go when reconciling finds them.

use super::pace::FullWait;
use super::plan::Known;
use super::put::Round;
use super::{Cluster, encoded, write_quorum};
use crate::{Error, Result, StripeWrite};
use bytes::Bytes;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::stripe::{COPIES_BYTES_MAX, STRIPE_BYTES_MAX};
use holdfast_objstore_proto::{OsdId, StripeMeta};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Rounds of one write at most; each one after the first leaves out an OSD that refused.
const ROUNDS_MAX: usize = 4;
/// Between two looks whether OSDs came back.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Shards of rounds below their quorum: where they are, and their numbers.
type Left = SmallVec<[(OsdId, u8); 6]>;

impl Cluster {
    pub(crate) async fn write_stripe(&self, write: StripeWrite) -> Result<Arc<StripeMeta>> {
        self.pace(&write).await;
        let _taken = self.headroom(&write).await;
        let mut left = Left::new();
        let done = self.write_until(&write, &mut left).await;
        self.drop_left(&write, left, &done).await;
        done
    }

    /// Drops what abandoned rounds have left behind.
    async fn drop_left(&self, write: &StripeWrite, mut left: Left, done: &Result<Arc<StripeMeta>>) {
        match done {
            Ok(stripe) => left.retain(|(osd, shard)| stripe.osds.get(*shard as usize) != Some(osd)),
            // What it left belongs to a retired range.
            Err(Error::Fenced { .. }) => return,
            Err(_) => {}
        }
        if left.is_empty() {
            return;
        }
        failpoint::reached("client.write_left_shards");
        let shards = left.into_iter().map(|(osd, shard)| (osd, ShardKey { stripe: write.id, shard })).collect();
        if let Err(e) = self.discard_shards(shards).await {
            tracing::debug!(stripe = %write.id, error = %e, "shards of an abandoned round are left to reconciling");
        }
    }

    async fn write_until(&self, write: &StripeWrite, left: &mut Left) -> Result<Arc<StripeMeta>> {
        let (mut wait_until, mut full) = (None, FullWait::new(self.metrics.deletes.get()));
        loop {
            match self.write_rounds(write, left).await {
                Err(Error::Full) if self.room_may_come(write, &mut full).await => {}
                Err(Error::Unavailable { .. }) if !self.config.unavailable_wait.is_zero() => {
                    let now = Instant::now();
                    let until = *wait_until.get_or_insert(now + self.config.unavailable_wait);
                    if now >= until {
                        return self.write_rounds(write, left).await;
                    }
                    tokio::time::sleep(LOOK_AGAIN.min(until - now)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn write_rounds(&self, write: &StripeWrite, left: &mut Left) -> Result<Arc<StripeMeta>> {
        let len: usize = write.data.iter().map(Bytes::len).sum();
        assert!(len > 0 && len <= STRIPE_BYTES_MAX as usize, "a stripe has 1 to {STRIPE_BYTES_MAX} bytes, not {len}");
        let len = len as u32;
        let wanted = if len <= COPIES_BYTES_MAX { write.code.copies() } else { write.code };
        let mut known = Known::default();
        let mut shards: Option<encoded::Encoded> = None;
        let mut last = Error::Unavailable { up: 0, need: write_quorum(wanted) };
        for round in 0..ROUNDS_MAX {
            let plan = self.plan(write.id, wanted, len, &known)?;
            if round > 0 {
                failpoint::reached("client.write_round");
                self.metrics.write_rounds.inc();
            }
            let encoded = match shards.take() {
                Some(same) if same.code == plan.code => same,
                _ => encoded::encode(plan.code, &write.data, len, &self.metrics),
            };
            let done = self.put_all(write, &encoded, plan).await;
            if done.fenced() {
                failpoint::reached("client.write_fenced");
                return Err(Error::Fenced { stripe: write.id });
            }
            let (acked, quorum) = (done.acked.count_ones() as usize, write_quorum(encoded.code));
            if acked >= quorum {
                return Ok(self.written(write, &encoded, &done));
            }
            let there = (0..encoded.code.n() as u8).filter(|shard| done.acked >> shard & 1 == 1);
            left.extend(there.map(|shard| (done.homes[shard as usize].osd, shard)));
            last = Error::Unavailable { up: acked, need: quorum };
            known.learn(encoded.code, &done);
            shards = Some(encoded);
        }
        Err(last)
    }

    fn written(&self, write: &StripeWrite, encoded: &encoded::Encoded, done: &Round) -> Arc<StripeMeta> {
        let n = encoded.code.n();
        let missing = !done.acked & (((1u64 << n) - 1) as u32);
        self.metrics.writes.inc();
        self.metrics.write_bytes.inc_by(encoded.len as u64);
        self.metrics.missing_shards.inc_by(missing.count_ones() as u64);
        Arc::new(StripeMeta {
            id: write.id,
            codec: encoded.codec,
            code: encoded.code,
            len: encoded.len,
            digest: encoded.digest,
            osds: done.homes.iter().map(|s| s.osd).collect(),
            missing,
        })
    }
}
