//! The first state, and the check that a state is one this code can read.
//!
//! The header is fixed for ever: `"HFMS"`, then the format version as a big-endian u32.

use crate::fail::broken;
use crate::limits::BLOCK_IDS;
use crate::record::{Counters, Session, encode};
use crate::session::{SERVICE_EPOCH, SERVICE_SESSION};
use crate::{Kv, StateError, keys};
use bytes::Bytes;
use std::ops::ControlFlow;

/// Version of the state's format that this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"HFMS";

/// Creates the empty state (format version, incarnation 1, service session) if the kv is empty; checks the version otherwise.
/// Idempotent. An error names a newer format, or says that the state is not one of ours.
pub fn initialise(kv: &mut dyn Kv) -> Result<(), StateError> {
    if let Some(header) = kv.get(&keys::header())? {
        let (magic, version) = header.split_at_checked(4).ok_or_else(|| broken("its header is cut short"))?;
        if magic != MAGIC {
            return Err(broken("its header is not that of a metadata state"));
        }
        let version = u32::from_be_bytes(version.try_into().map_err(|_| broken("its header has another length"))?);
        return match version {
            FORMAT_VERSION => Ok(()),
            v => Err(broken(format!("its format is version {v}, this program reads version {FORMAT_VERSION}"))),
        };
    }
    let mut empty = true;
    kv.scan(&[], &[0xff], &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    })?;
    if !empty {
        return Err(broken("it holds records but no header"));
    }
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
    kv.put(&keys::header(), Bytes::from(header));
    // Block 0 of inodes is the state's own (0 is no inode's id); block 0 of stripes is never granted, so that no id is all zeroes.
    let counters = Counters {
        incarnation: 1,
        stripe_block: 1,
        inode_block: 1,
        own_inode: 1,
        own_inode_end: BLOCK_IDS,
        session: SERVICE_SESSION.0 + 1,
        bucket: 1,
        upload: 1,
        completed: 0,
        sessions: 0,
        buckets: 0,
    };
    kv.put(&keys::counters(), encode(&counters));
    let service = Session { epoch: SERVICE_EPOCH, client: "service".into(), opened: 0, trimmed: 0, stripe_blocks: 0, inode_blocks: 0 };
    kv.put(&keys::session(SERVICE_SESSION), encode(&service));
    Ok(())
}
