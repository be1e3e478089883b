//! Deleting retired stripes: at their OSDs first, then in the state.
//!
//! What always holds: a stripe is deleted only after its retirement is committed; it is forgotten only after it is deleted durably.
//! Both steps may be repeated. Stripes retired within a grace are deleted together; where space is short the grace ends at once, for it is
//! not what protects readers: the object cluster waits for reads under way before it deletes, and a later one that still has
//! the old map finds the stripe gone and looks at the map again.
//! What it leaves out: shards that no record names; reconciling finds those.

use super::super::core::Core;
use super::Backoff;
use holdfast_meta_core::read;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::{Command, MetaError, MetaResult};
use std::sync::Arc;

/// Stripes that share one grace.
const ROUND_MAX: usize = 65_536;

/// Stripes read from the state at a time.
const PAGE: usize = 512;

/// Deletes stripes from the object cluster.
pub trait StripeReaper: Send + Sync + 'static {
    /// Deletes all shards of the stripes, durably, wherever they can be reached; may be repeated.
    fn delete(&self, stripes: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>>;
}

/// For a service without an object cluster: there is nothing to delete.
pub struct NoStripes;

impl StripeReaper for NoStripes {
    fn delete(&self, _: Vec<Arc<StripeMeta>>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(super) async fn run(core: Arc<Core>, reaper: Arc<dyn StripeReaper>) {
    let mut backoff = Backoff::new();
    while core.work.unless_stopped(core.work.stripes.notified()).await {
        loop {
            let round = match round(&core).await {
                Ok(round) => round,
                Err(MetaError::Failed(_)) => return,
                // Another member leads: it deletes them.
                Err(_) => break,
            };
            if round.is_empty() {
                break;
            }
            if !core.work.gather(core.config.stripe_grace).await {
                return;
            }
            let mut failed = false;
            for batch in round.chunks(core.config.stripe_batch.max(1)) {
                if core.work.stopping() {
                    return;
                }
                failed |= !delete(&core, &*reaper, batch).await;
            }
            if !failed {
                backoff = Backoff::new();
            } else if !core.work.unless_stopped(tokio::time::sleep(backoff.next())).await {
                return;
            }
        }
    }
}

/// What is retired now, up to a bound, looked up a page at a time so that nobody waits long for the state.
async fn round(core: &Arc<Core>) -> MetaResult<Vec<Arc<StripeMeta>>> {
    let mut round: Vec<Arc<StripeMeta>> = Vec::new();
    while round.len() < ROUND_MAX {
        let after = round.last().map(|s| s.id);
        let page = core.view(|kv| read::retired(kv, after, PAGE))?;
        let more = page.len() == PAGE;
        round.extend(page);
        if !more {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(round)
}

/// Deletes and forgets one batch; whether it is done.
async fn delete(core: &Arc<Core>, reaper: &dyn StripeReaper, batch: &[Arc<StripeMeta>]) -> bool {
    // Half a deletion does no harm: it is made again.
    let Some(deleted) = core.work.or_stop(reaper.delete(batch.to_vec())).await else { return false };
    let done = match deleted {
        Ok(()) => core
            .propose_own(Command::ForgetStripes { stripes: batch.iter().map(|s| s.id).collect() })
            .await
            .map(drop)
            .map_err(|e| e.to_string()),
        Err(why) => Err(why),
    };
    match done {
        Ok(()) => {
            core.metrics.stripes_deleted.inc_by(batch.len() as u64);
            true
        }
        Err(why) => {
            failpoint::reached("meta.stripe_delete_failed");
            core.metrics.stripe_delete_failures.inc();
            tracing::warn!(stripes = batch.len(), error = %why, "retired stripes could not be deleted; trying again later");
            false
        }
    }
}
