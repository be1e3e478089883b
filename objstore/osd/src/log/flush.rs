//! Making appends stable.
//!
//! What always holds: the durable number is a contiguous prefix: it never passes an append that has not completed. There is
//! no timer; those who flush at once share the device's flush through `base::disk`.

use super::segment::Segment;
use super::{Log, Result};
use holdfast_objstore_base::failpoint;
use smallvec::SmallVec;
use std::sync::Arc;

/// A segment with records that no flush has covered.
pub(super) struct Unflushed {
    pub segment: Arc<Segment>,
    pub last_seq: u64,
}

impl Log {
    /// Returns when every append that had completed before the call is stable, with the durable number: everything up to
    /// it is. An append still under way that took its place before one of those is waited for. A failure is final.
    pub async fn flush(&self) -> Result<u64> {
        let shared = &self.0;
        let (target, ready) = {
            let st = shared.state.lock();
            st.alive()?;
            if st.durable >= st.completed_max {
                return Ok(st.durable);
            }
            (st.completed_max, st.prefix() >= st.completed_max)
        };
        if !ready {
            shared.wait_for(|st| (st.failed.is_some() || st.prefix() >= target).then_some(())).await;
        }
        let (prefix, files) = {
            let st = shared.state.lock();
            st.alive()?;
            let mut files: SmallVec<[Arc<Segment>; 2]> = SmallVec::new();
            for u in &st.unflushed {
                if !files.iter().any(|f| f.file.domain() == u.segment.file.domain()) {
                    files.push(u.segment.clone());
                }
            }
            (st.prefix(), files)
        };
        for segment in files {
            if let Err(e) = segment.file.flush().await {
                failpoint::reached("osd.log.flush_failed");
                return Err(shared.fail(format!("a flush failed: {e}")));
            }
        }
        shared.counters.flushes.inc();
        let mut st = shared.state.lock();
        st.alive()?;
        st.durable = st.durable.max(prefix);
        let durable = st.durable;
        st.unflushed.retain(|u| u.last_seq > durable);
        Ok(durable)
    }
}
