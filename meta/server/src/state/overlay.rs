//! What changed since the last checkpoint, in memory.
//!
//! What always holds: `bytes` is what the rows take, counted the same way on the way in and out.
//! What it leaves out: locking; the layers above it have one writer.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes a row takes beside its key and value: tree node share, allocation headers, handles.
const ROW_BYTES: usize = 112;

/// Rows put (`Some`) and deleted (`None`).
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    rows: BTreeMap<Vec<u8>, Option<Bytes>>,
    bytes: usize,
}

pub(crate) type Rows<'a> = std::collections::btree_map::Range<'a, Vec<u8>, Option<Bytes>>;

fn row_bytes(key: &[u8], value: &Option<Bytes>) -> usize {
    ROW_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len)
}

impl Overlay {
    pub(crate) fn set(&mut self, key: &[u8], value: Option<Bytes>) {
        let new = row_bytes(key, &value);
        match self.rows.get_mut(key) {
            Some(slot) => {
                self.bytes -= row_bytes(key, slot);
                *slot = value;
            }
            None => {
                self.rows.insert(key.to_vec(), value);
            }
        }
        self.bytes += new;
    }

    /// Forgets a key, which only the bottom layer may do.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        if let Some(old) = self.rows.remove(key) {
            self.bytes -= row_bytes(key, &old);
        }
    }

    /// `None`: nothing is known here; `Some(None)`: deleted.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.rows.get(key)
    }

    /// Rows with `from <= key < to`; the caller has checked that `from < to`.
    pub(crate) fn range<'a>(&'a self, from: &[u8], to: &[u8]) -> Rows<'a> {
        self.rows.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&Bytes>)> {
        self.rows.iter().map(|(k, v)| (k.as_slice(), v.as_ref()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_counts_its_bytes_the_same_way_in_and_out() {
        let mut o = Overlay::default();
        o.set(b"k", Some(Bytes::from_static(b"value")));
        let first = o.bytes();
        o.set(b"k", Some(Bytes::from_static(b"longer value")));
        o.set(b"k", None);
        o.set(b"k", Some(Bytes::from_static(b"value")));
        assert_eq!(o.bytes(), first);
        assert_eq!(o.range(b"a", b"z").count(), 1);
    }
}
