//! The ordered key-value state that `apply` runs on, and its simplest implementation.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The state could not be read, or holds bytes that no version of this code wrote. Final: the service stops.
#[derive(Debug, Clone, thiserror::Error)]
#[error("metadata state: {0}")]
pub struct StateError(pub String);

/// Ordered reads. Keys are at most 1,100 bytes.
pub trait KvRead {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError>;
    /// Visits pairs with `from <= key < to` in byte order until `visit` breaks.
    #[expect(clippy::type_complexity, reason = "one callback, spelt out where it is implemented")]
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError>;
}

/// Reads that see this batch's own writes, and writes that take effect at once for them.
pub trait Kv: KvRead {
    fn put(&mut self, key: &[u8], value: Bytes);
    fn delete(&mut self, key: &[u8]);
}

/// State in memory: for tests, models and the in-process fake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemKv(pub BTreeMap<Vec<u8>, Bytes>);

impl KvRead for MemKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        Ok(self.0.get(key).cloned())
    }
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError> {
        if from >= to {
            return Ok(());
        }
        for (k, v) in self.0.range(from.to_vec()..to.to_vec()) {
            if visit(k, v).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Kv for MemKv {
    fn put(&mut self, key: &[u8], value: Bytes) {
        self.0.insert(key.to_vec(), value);
    }
    fn delete(&mut self, key: &[u8]) {
        self.0.remove(key);
    }
}
