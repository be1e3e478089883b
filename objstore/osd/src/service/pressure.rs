//! Slowing writers before cleaning falls too far behind.
//!
//! What always holds: a writer waits only while cleaning runs and gets on: each step of it rings, and so does its end, whatever it came
//! to. Nothing here holds a lock over a wait, and deletes, repair and cleaning do not come here.
//!
//! The law: while fewer segments are free than cleaning keeps, a put of `b` bytes costs `b · (begin - free) / begin`. Writers may spend
//! what cleaning has gained in this run, and half a segment ahead of it. So a writer is not slowed at the mark, and at the last segment
//! may write only what cleaning wins.

use super::clean::Marks;
use super::osd::{Inner, wait_for};
use std::sync::Arc;

impl Inner {
    pub(super) async fn pace(self: &Arc<Self>, bytes: u64) {
        let mut charged = false;
        loop {
            let space = self.log.space();
            let begin = Marks::of(&space).begin;
            if space.segments_free >= begin {
                return;
            }
            {
                let mut st = self.state.lock();
                if !st.cleaning.running {
                    drop(st);
                    // Nothing may have told it yet; whether it finds something to do is its own affair.
                    self.housekeep();
                    return;
                }
                if !charged {
                    charged = true;
                    st.cleaning.spent += bytes * (begin - space.segments_free) as u64 / begin as u64;
                }
                if st.cleaning.spent <= st.cleaning.gained + self.log.segment_room() / 2 {
                    return;
                }
            }
            self.metrics.paced.inc();
            wait_for(&self.eased, || {
                let st = self.state.lock();
                st.cleaning.running && st.cleaning.spent > st.cleaning.gained + self.log.segment_room() / 2
            })
            .await;
        }
    }
}
