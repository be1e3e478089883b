//! Writing a stripe again in another code: one that was written narrower while OSDs were missing.
//!
//! What always holds: the old shards stay as they are. No new shard goes where the old writing has one of the same number, so both records
//! read right until one of them is discarded. All new shards are placed, stable and read back, or all are given back.

use super::plan::Known;
use super::rebuild::place_shard;
use super::slot::Slot;
use super::{Cluster, encoded};
use crate::{Error, Result, StripeWrite};
use futures::future::join_all;
use holdfast_objstore_proto::shard::{ShardKey, TASK_SESSION};
use holdfast_objstore_proto::{Code, OsdId, SessionEpoch, StripeMeta};
use std::sync::Arc;

impl Cluster {
    pub(crate) async fn reencode_stripe(&self, stripe: Arc<StripeMeta>, code: Code, task: u64) -> Result<Arc<StripeMeta>> {
        let data = self.read_osds(&stripe, 0..stripe.len).await?;
        let hint = self.hint_of(&stripe).await;
        let mut known = Known::default();
        known.held.extend(stripe.osds.iter().enumerate().map(|(shard, osd)| (*osd, shard as u8, None)));
        let plan = self.plan(stripe.id, code, stripe.len, &known)?;
        let mut homes = plan.homes;
        // Each old shard stands in the way of one rotation of the homes at most, and there are more homes than old shards.
        let clash = |homes: &[Arc<Slot>]| homes.iter().enumerate().any(|(shard, home)| stripe.osds.get(shard) == Some(&home.osd));
        for _ in 0..homes.len() {
            if clash(&homes) {
                homes.rotate_left(1);
            }
        }
        if plan.code != code || clash(&homes) {
            return Err(Error::Unavailable { up: homes.len(), need: code.n() });
        }
        let encoded = encoded::encode(code, &data, stripe.len, &self.metrics);
        let (session, epoch) = (TASK_SESSION, SessionEpoch(task));
        let write = StripeWrite { id: stripe.id, code, data: Vec::new(), session, epoch, hint, background: true };
        let placed = (0..code.n() as u8).map(|shard| {
            let (home, put) = (homes[shard as usize].clone(), self.shard_put(&write, &encoded, shard));
            async move { place_shard(&home, &put).await }
        });
        let placed = join_all(placed).await;
        if let Some(why) = placed.iter().find_map(|p| p.as_ref().err()) {
            tracing::warn!(stripe = %stripe.id, "it could not be written in {code}: {why}");
            let keys = |(shard, home): (usize, &Arc<Slot>)| (home.osd, ShardKey { stripe: stripe.id, shard: shard as u8 });
            let written: Vec<(OsdId, ShardKey)> = homes.iter().enumerate().map(keys).collect();
            let up = placed.iter().filter(|p| p.is_ok()).count();
            self.discard_shards(written).await?;
            return Err(Error::Unavailable { up, need: code.n() });
        }
        self.metrics.reencoded_stripes.inc();
        self.metrics.rebuilt_bytes.inc_by(encoded.shards.iter().map(|(s, _)| s.len() as u64).sum());
        Ok(Arc::new(StripeMeta {
            id: stripe.id,
            codec: encoded.codec,
            code,
            len: stripe.len,
            digest: encoded.digest,
            osds: homes.iter().map(|s| s.osd).collect(),
            missing: 0,
        }))
    }
}
