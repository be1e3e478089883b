//! Identifiers. All are unique for the life of a cluster and never reused.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(/// One log of shards.
    OsdId, u16, "osd.");
id!(/// A bucket; 0 is never given.
    BucketId, u32, "bucket.");
id!(/// An inode. The top 16 bits are the metadata group (0 for the first), the rest a counter that starts at 1.
    InodeId, u64, "inode.");
id!(/// A client of the metadata service: a mount, a gateway, a background worker. Group in the top 16 bits, as in inodes.
    SessionId, u64, "session.");
id!(/// Raised when a session is evicted; what a session sends under an older epoch is refused.
    SessionEpoch, u64, "epoch.");
id!(/// A multipart upload.
    UploadId, u64, "upload.");

/// A stripe: (metadata incarnation, group, counter), 128 bits. Restoring metadata raises the incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct StripeId {
    pub incarnation: u32,
    pub group: u32,
    pub counter: u64,
}

impl StripeId {
    /// Big-endian, so that byte order is number order.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..4].copy_from_slice(&self.incarnation.to_be_bytes());
        b[4..8].copy_from_slice(&self.group.to_be_bytes());
        b[8..].copy_from_slice(&self.counter.to_be_bytes());
        b
    }
    pub fn from_bytes(b: [u8; 16]) -> Self {
        let n = u128::from_be_bytes(b);
        Self { incarnation: (n >> 96) as u32, group: (n >> 64) as u32, counter: n as u64 }
    }
}

impl fmt::Display for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stripe.{}.{}.{}", self.incarnation, self.group, self.counter)
    }
}

/// Stripe ids a session may use: `count` counters from `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeRange {
    pub first: StripeId,
    pub count: u64,
}

impl StripeRange {
    pub fn contains(&self, id: StripeId) -> bool {
        (id.incarnation, id.group) == (self.first.incarnation, self.first.group) && id.counter.wrapping_sub(self.first.counter) < self.count
    }
}

/// Inode ids a session may use: `count` ids from `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeRange {
    pub first: InodeId,
    pub count: u64,
}

impl InodeRange {
    pub fn contains(&self, id: InodeId) -> bool {
        id.0.wrapping_sub(self.first.0) < self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripe_ids_keep_their_order_as_bytes() {
        let a = StripeId { incarnation: 1, group: 0, counter: u64::MAX };
        let b = StripeId { incarnation: 1, group: 1, counter: 0 };
        assert!(a < b && a.to_bytes() < b.to_bytes());
        assert_eq!(StripeId::from_bytes(a.to_bytes()), a);
        let r = StripeRange { first: StripeId { counter: 10, ..b }, count: 5 };
        assert!(r.contains(StripeId { counter: 14, ..b }) && !r.contains(StripeId { counter: 15, ..b }));
        assert!(!r.contains(StripeId { counter: 12, ..a }));
    }
}
