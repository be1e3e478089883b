//! What a snapshot in the pool covers, and which rows changed since.
//!
//! What always holds: every row that differs between the newest snapshot and a durable commit is among the changed ones, or a snapshot of all
//! rows is asked for.
//! What it leaves out: making snapshots (`service/work/snapshots`); what the log keeps behind one (`meta/log`).

use super::overlay::Overlay;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Keys of changed rows are remembered up to so many bytes; past it the next snapshot is of all rows.
const KEYS_BYTES_MAX: usize = 32 << 20;
/// Rows noted at a time: commands that are applied look here too, and must not wait for a whole overlay.
const NOTED_AT_ONCE: usize = 64;
/// What a key takes beside its bytes.
const KEY_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct Cover(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Snapshots are made.
    on: bool,
    /// Index of the last command in the newest one; 0: the log alone tells everything from its beginning.
    covered: u64,
    /// One is being made, of a commit that has at least this command.
    taking: Option<u64>,
    /// The log no longer reaches back to the newest one.
    lost: bool,
    /// Changed rows, with the commit that changed them last.
    changed: BTreeMap<Vec<u8>, u64>,
    bytes: usize,
    /// Changes up to this commit are not all among those.
    unknown: Option<u64>,
}

/// What a snapshot has to hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    All,
    Rows(Vec<Vec<u8>>),
}

impl Cover {
    /// Snapshots are made from now on; the newest ends at `covered` and the durable rows at `durable`.
    pub(crate) fn begin(&self, covered: u64, durable: u64) {
        let mut s = self.0.lock();
        (s.on, s.covered) = (true, covered);
        s.unknown = (covered != durable).then_some(durable);
    }

    /// These rows are about to be part of the commit that ends at `applied`.
    pub(crate) fn folding(&self, overlay: &Overlay, applied: u64) {
        let mut rows = overlay.iter().map(|(key, _)| key).peekable();
        while rows.peek().is_some() {
            let mut s = self.0.lock();
            if !s.on {
                return;
            }
            for key in rows.by_ref().take(NOTED_AT_ONCE) {
                if s.changed.insert(key.to_vec(), applied).is_none() {
                    s.bytes += key.len() + KEY_BYTES;
                }
            }
        }
        let mut s = self.0.lock();
        if s.bytes > KEYS_BYTES_MAX {
            (s.changed, s.bytes, s.unknown) = (BTreeMap::new(), 0, Some(applied));
        }
    }

    /// From which entry on the log is to be kept.
    pub(crate) fn keep(&self) -> Option<u64> {
        let s = self.0.lock();
        let newest = (!s.lost).then_some(s.covered);
        if s.on { [newest, s.taking].into_iter().flatten().min() } else { None }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.0.lock().covered
    }

    /// Whether the log reaches back to the newest snapshot, so that with it the state can be rebuilt.
    pub(crate) fn whole(&self) -> bool {
        !self.0.lock().lost
    }

    /// The log has every entry from `first` on.
    pub(crate) fn reaches_back_to(&self, first: u64) {
        let mut s = self.0.lock();
        // The entry that the snapshot ends at is not needed itself.
        s.lost |= s.on && if s.covered == 0 { first > 1 } else { first > s.covered + 1 };
    }

    /// A snapshot is begun, of a commit at least as new as `durable`: the log is kept from there.
    pub(crate) fn take(&self, durable: u64) {
        self.0.lock().taking = Some(durable);
    }

    /// What differs between the newest snapshot and the commit that ends at `applied`.
    pub(crate) fn change(&self) -> Change {
        let s = self.0.lock();
        match s.unknown {
            Some(_) => Change::All,
            None => Change::Rows(s.changed.keys().cloned().collect()),
        }
    }

    /// The snapshot up to `applied` can be found now.
    pub(crate) fn taken(&self, applied: u64) {
        let mut s = self.0.lock();
        (s.covered, s.taking, s.lost) = (applied, None, false);
        s.changed.retain(|_, at| *at > applied);
        s.bytes = s.changed.keys().map(|k| k.len() + KEY_BYTES).sum();
        s.unknown = s.unknown.filter(|at| *at > applied);
    }

    /// The snapshot begun last came to nothing.
    pub(crate) fn given_up(&self) {
        self.0.lock().taking = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn overlay(keys: &[&str]) -> Overlay {
        let mut o = Overlay::default();
        keys.iter().for_each(|k| o.set(k.as_bytes(), Some(Bytes::from_static(b"v"))));
        o
    }
    fn rows(keys: &[&str]) -> Change {
        Change::Rows(keys.iter().map(|k| k.as_bytes().to_vec()).collect())
    }

    #[test]
    fn what_changed_since_a_snapshot_is_known_or_all_is_asked_for() {
        let c = Cover::default();
        c.folding(&overlay(&["ignored"]), 1);
        assert_eq!(c.keep(), None);
        c.begin(5, 5);
        assert_eq!((c.keep(), c.change()), (Some(5), rows(&[])));
        c.folding(&overlay(&["a", "b"]), 10);
        c.take(10);
        c.folding(&overlay(&["b", "c"]), 20);
        assert_eq!((c.keep(), c.change()), (Some(5), rows(&["a", "b", "c"])));
        c.taken(10);
        assert_eq!((c.keep(), c.change()), (Some(10), rows(&["b", "c"])));
        // A restart does not know what changed since the snapshot.
        let c = Cover::default();
        c.begin(10, 20);
        assert_eq!(c.change(), Change::All);
        c.taken(15);
        assert_eq!(c.change(), Change::All);
        c.taken(20);
        assert_eq!(c.change(), rows(&[]));
    }

    #[test]
    fn a_snapshot_that_the_log_no_longer_reaches_back_to_keeps_nothing() {
        let c = Cover::default();
        c.begin(10, 10);
        c.reaches_back_to(11);
        assert!(c.whole());
        c.reaches_back_to(12);
        assert_eq!((c.whole(), c.keep()), (false, None));
        c.take(30);
        assert_eq!(c.keep(), Some(30));
        c.given_up();
        assert_eq!(c.keep(), None);
        c.take(40);
        c.taken(41);
        c.reaches_back_to(42);
        assert_eq!((c.whole(), c.keep()), (true, Some(41)));
    }
}
