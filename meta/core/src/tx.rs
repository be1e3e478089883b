//! One command's writes, held back until it is known to succeed.
//!
//! What always holds: reads see the writes; `commit` puts all of them, in key order; dropping puts none.
//! So an operation may write as it goes and still fail at any point without a trace.

use crate::record::{Stats, encode, load};
use crate::{Kv, KvRead, StateError, keys};
use bytes::Bytes;
use holdfast_objstore_proto::StripeId;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

pub(crate) struct Tx<'a> {
    kv: &'a mut dyn Kv,
    writes: BTreeMap<Vec<u8>, Option<Bytes>>,
    /// How the counters change.
    pub delta: Delta,
    /// What becomes of inline bytes.
    pub effects: Effects,
}

/// What a command means for the inline bytes that the service keeps beside the state.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be kept, as of this command's index.
    pub staged: Vec<(StripeId, Bytes)>,
    /// No longer needed.
    pub freed: Vec<StripeId>,
    /// A pack fell below half live.
    pub sparse: bool,
}

/// Changes of [`Stats`].
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delta {
    pub inodes: i64,
    pub stripes: i64,
    pub bytes: i64,
    pub live: i64,
    pub retired: i64,
    pub staged: i64,
    pub staged_bytes: i64,
    pub packs: i64,
    pub pack_bytes: i64,
    pub packed: i64,
    pub packed_bytes: i64,
    pub sparse: i64,
    pub small: i64,
    pub dead: i64,
}

impl<'a> Tx<'a> {
    pub fn new(kv: &'a mut dyn Kv) -> Self {
        Self { kv, writes: BTreeMap::new(), delta: Delta::default(), effects: Effects::default() }
    }
    pub fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.writes.insert(key, Some(value));
    }
    pub fn delete(&mut self, key: Vec<u8>) {
        self.writes.insert(key, None);
    }
    /// Forgets everything written so far.
    pub fn reset(&mut self) {
        self.writes.clear();
        self.delta = Delta::default();
        self.effects = Effects::default();
    }
    /// Puts everything; answers what it means for inline bytes.
    pub fn commit(self) -> Result<Effects, StateError> {
        let d = self.delta;
        if d != Delta::default() {
            let old: Stats = load(&*self.kv, &keys::stats())?.unwrap_or_default();
            let add = |n: u64, d: i64| n.checked_add_signed(d).ok_or_else(|| crate::fail::broken("a counter fell below zero"));
            let new = Stats {
                inodes: add(old.inodes, d.inodes)?,
                stripes: add(old.stripes, d.stripes)?,
                bytes: add(old.bytes, d.bytes)?,
                live: add(old.live, d.live)?,
                retired: add(old.retired, d.retired)?,
                staged: add(old.staged, d.staged)?,
                staged_bytes: add(old.staged_bytes, d.staged_bytes)?,
                packs: add(old.packs, d.packs)?,
                pack_bytes: add(old.pack_bytes, d.pack_bytes)?,
                packed: add(old.packed, d.packed)?,
                packed_bytes: add(old.packed_bytes, d.packed_bytes)?,
                sparse: add(old.sparse, d.sparse)?,
                small: add(old.small, d.small)?,
                dead: add(old.dead, d.dead)?,
            };
            self.kv.put(&keys::stats(), encode(&new));
        }
        for (key, value) in self.writes {
            match value {
                Some(v) => self.kv.put(&key, v),
                None => self.kv.delete(&key),
            }
        }
        Ok(self.effects)
    }
}

impl KvRead for Tx<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        match self.writes.get(key) {
            Some(v) => Ok(v.clone()),
            None => self.kv.get(key),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError> {
        if from >= to {
            return Ok(());
        }
        let mut ours = self.writes.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to))).peekable();
        let mut stopped = false;
        self.kv.scan(from, to, &mut |k, v| {
            while let Some((key, value)) = ours.next_if(|(key, _)| key.as_slice() < k) {
                if let Some(value) = value
                    && visit(key, value).is_break()
                {
                    stopped = true;
                    return ControlFlow::Break(());
                }
            }
            let flow = match ours.next_if(|(key, _)| key.as_slice() == k) {
                Some((_, None)) => ControlFlow::Continue(()),
                Some((key, Some(value))) => visit(key, value),
                None => visit(k, v),
            };
            stopped = flow.is_break();
            flow
        })?;
        if !stopped {
            for (key, value) in ours {
                if let Some(value) = value
                    && visit(key, value).is_break()
                {
                    break;
                }
            }
        }
        Ok(())
    }
}
