//! Giving whole segments back.

use super::format::segment::State as HeaderState;
use super::state::Log;
use super::{Error, Result};
use holdfast_objstore_base::failpoint;
use std::sync::Arc;

impl Log {
    /// Gives a sealed segment back for recycling. When this returns, no recovery sees its records again; until then one
    /// may. Flushes first, so whatever made the segment dead is stable before its records are gone.
    /// `Bug` when it is the active segment or not in service.
    pub async fn retire(&self, life: u32) -> Result<()> {
        let shared = self.0.clone();
        let seal = {
            let st = shared.state.lock();
            st.alive()?;
            let Some(s) = st.segments.get(&life) else {
                return Err(Error::Bug(format!("life {life} is not in service")));
            };
            s.sealed.ok_or_else(|| Error::Bug(format!("life {life} is active")))?
        };
        shared.wait_for(|st| (st.failed.is_some() || st.prefix() >= seal).then_some(())).await;
        self.flush().await?;
        let segment = {
            let mut st = shared.state.lock();
            st.alive()?;
            // Out of the table before its header changes: readers see `Gone` rather than what the next life writes.
            match st.segments.remove(&life) {
                Some(s) => s.segment,
                None => return Err(Error::Bug(format!("life {life} was retired twice"))),
            }
        };
        let this = shared.clone();
        // Carried to its end even if the caller goes away: half retired, the segment would be lost until the next start.
        super::detach::Detach::new(&shared.runtime, async move {
            match segment.enter(life, HeaderState::Free, seal + 1).await {
                Ok(free) => {
                    let mut st = this.state.lock();
                    st.free.push_back(Arc::new(free));
                    drop(st);
                    this.changed.notify_waiters();
                    Ok(())
                }
                Err(e) => {
                    failpoint::reached("osd.log.retire_failed");
                    Err(this.fail(format!("the header of segment {} could not be written: {e}", segment.header.number)))
                }
            }
        })
        .await
    }
}
