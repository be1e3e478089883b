//! Shards that arrived after their write was answered without them, but before the flush of their stripe.
//!
//! What always holds: bounded; an entry that is forgotten costs nothing but a repair that finds the shard in place.

use holdfast_objstore_proto::StripeId;
use parking_lot::Mutex;
use std::collections::VecDeque;

const ENTRIES_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Late(Mutex<VecDeque<(StripeId, u64, u32)>>);

impl Late {
    /// Shard `shard` of the writing of `stripe` with this digest is on its OSD now.
    pub fn arrived(&self, stripe: StripeId, digest: u64, shard: usize) {
        let mut entries = self.0.lock();
        if entries.len() == ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back((stripe, digest, 1 << shard));
    }

    /// The shards that arrived, as bits; forgets them.
    pub fn take(&self, stripe: StripeId, digest: u64) -> u32 {
        let mut bits = 0;
        self.0.lock().retain(|&(s, d, shard)| {
            let it = s == stripe && d == digest;
            if it {
                bits |= shard;
            }
            !it
        });
        bits
    }
}
