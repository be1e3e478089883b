//! Writing staged bytes to the log anew when it keeps too many old entries for them, so that it can let go of these.
//!
//! What always holds: it does not wait for the packer or for any device of the object cluster. A pack that is under way meanwhile moves nothing
//! that was staged anew: its commit compares where each stripe is.
//! What it leaves out: packing (`packs`), and the bound on new inline writes (the state).

use super::super::core::Core;
use super::Backoff;
use holdfast_meta_core::limits::INLINE_BYTES_MAX;
use holdfast_objstore_proto::meta::{Command, MetaError};
use std::sync::Arc;
use std::time::Duration;

/// How often it looks, should it not be told.
const LOOK: Duration = Duration::from_secs(1);
/// Stripes one command stages anew at most.
const MEMBERS_MAX: usize = 512;

pub(super) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new();
    let told = async || {
        tokio::select! {
            biased;
            () = core.state.heavy() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    };
    while core.work.unless_stopped(told()).await {
        match relieve(&core).await {
            Ok(()) => backoff = Backoff::new(),
            Err(MetaError::Failed(_)) => return,
            Err(why) => {
                tracing::warn!(error = %why, "small writes could not be written to the metadata log anew; trying again later");
                if !core.work.unless_stopped(tokio::time::sleep(backoff.next())).await {
                    return;
                }
            }
        }
    }
}

/// Stages anew all that is staged, if the log keeps too much for it.
async fn relieve(core: &Core) -> Result<(), MetaError> {
    if !core.config.state.holds_much(&core.state.staged_now()) {
        return Ok(());
    }
    core.stage_all_anew(|| core.work.stopping()).await
}

impl Core {
    /// Writes all that is staged to the log anew, until `stop` says so.
    pub(in crate::service) async fn stage_all_anew(&self, stop: impl Fn() -> bool) -> Result<(), MetaError> {
        let mut all = self.state.staged_all().into_iter().peekable();
        while all.peek().is_some() && !stop() {
            let (mut inline, mut bytes) = (Vec::new(), 0);
            while inline.len() < MEMBERS_MAX
                && let Some(next) = all.next_if(|i| bytes + i.data.len() <= INLINE_BYTES_MAX)
            {
                bytes += next.data.len();
                inline.push(next);
            }
            self.propose_own(Command::Restage { inline }).await?;
            self.metrics.restaged_bytes.inc_by(bytes as u64);
        }
        Ok(())
    }
}
