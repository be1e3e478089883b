//! The entries in memory: all that were appended and not purged.
//!
//! What always holds: indexes are consecutive, and begin right after the purge point.

use super::types::{Id, RaftEntry};
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

#[derive(Default)]
pub struct Window {
    purged: Option<Id>,
    entries: VecDeque<RaftEntry>,
}

impl Window {
    /// The newest purged id.
    pub fn purged(&self) -> Option<Id> {
        self.purged
    }

    /// The last id, be it purged.
    pub fn last(&self) -> Option<Id> {
        self.entries.back().map(|e| e.log_id).or(self.purged)
    }

    /// Index of the first entry that is, or would be, in the window.
    pub fn first_index(&self) -> u64 {
        self.entries.front().map_or_else(|| self.next_index(), |e| e.log_id.index)
    }

    /// Index of the next entry to append.
    pub fn next_index(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds the next entry; one out of order is refused.
    pub fn push(&mut self, entry: RaftEntry) -> Result<(), String> {
        let want = self.next_index();
        if entry.log_id.index != want {
            return Err(format!("entry {} where {want} comes next", entry.log_id.index));
        }
        self.entries.push_back(entry);
        Ok(())
    }

    /// Adds an entry found in the log at start: the first one found may lie anywhere behind the
    /// purge point known so far, since a purge found later may account for the gap ([`Window::is_whole`] tells).
    pub fn push_found(&mut self, entry: RaftEntry) -> Result<(), String> {
        if self.entries.is_empty() && self.purged.is_none_or(|p| p.index < entry.log_id.index) {
            self.entries.push_back(entry);
            return Ok(());
        }
        self.push(entry)
    }

    /// Drops everything after `after`.
    pub fn truncate(&mut self, after: Option<Id>) {
        while self.entries.back().is_some_and(|e| after.is_none_or(|a| e.log_id.index > a.index)) {
            self.entries.pop_back();
        }
    }

    /// Drops everything up to `upto`, which may lie beyond the end.
    pub fn purge(&mut self, upto: Id) {
        while self.entries.front().is_some_and(|e| e.log_id.index <= upto.index) {
            self.entries.pop_front();
        }
        if self.purged.is_none_or(|p| p < upto) {
            self.purged = Some(upto);
        }
    }

    /// Takes purged entries back: those right behind `purged` up to the purge point, in order.
    pub fn take_back(&mut self, purged: Option<Id>, entries: impl DoubleEndedIterator<Item = RaftEntry>) {
        entries.rev().for_each(|e| self.entries.push_front(e));
        self.purged = purged;
    }

    /// Whether the entries begin right after the purge point.
    pub fn is_whole(&self) -> bool {
        self.entries.front().is_none_or(|e| e.log_id.index == self.purged.map_or(0, |p| p.index + 1))
    }

    /// Copies of the entries in a range of indexes, as far as they are here.
    pub fn range(&self, range: impl RangeBounds<u64>) -> Vec<RaftEntry> {
        let first = self.first_index();
        let from = match range.start_bound() {
            Bound::Included(i) => *i,
            Bound::Excluded(i) => i.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(i) => i.saturating_add(1),
            Bound::Excluded(i) => *i,
            Bound::Unbounded => u64::MAX,
        };
        let clip = |i: u64| i.saturating_sub(first).min(self.entries.len() as u64) as usize;
        let (from, to) = (clip(from), clip(to));
        if from >= to { Vec::new() } else { self.entries.range(from..to).cloned().collect() }
    }

    /// The id at an index: in the window, or the purge point itself.
    pub fn id_at(&self, index: u64) -> Option<Id> {
        if let Some(p) = self.purged.filter(|p| p.index == index) {
            return Some(p);
        }
        let at = index.checked_sub(self.first_index())?;
        self.entries.get(usize::try_from(at).ok()?).map(|e| e.log_id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{Payload, id};
    use super::*;

    fn entry(term: u64, index: u64) -> RaftEntry {
        RaftEntry { log_id: id(term, 1, index), payload: Payload::Blank }
    }
    fn indexes(w: &Window, r: impl RangeBounds<u64>) -> Vec<u64> {
        w.range(r).iter().map(|e| e.log_id.index).collect()
    }

    #[test]
    fn a_window_stays_consecutive_through_truncation_and_purge() {
        let mut w = Window::default();
        (0..10).for_each(|i| w.push(entry(1, i)).expect("in order"));
        assert!(w.push(entry(1, 11)).is_err());
        w.truncate(Some(id(1, 1, 7)));
        w.push(entry(2, 8)).expect("in order");
        w.purge(id(1, 1, 3));
        assert_eq!(indexes(&w, ..), [4, 5, 6, 7, 8]);
        assert_eq!(indexes(&w, 0..6), [4, 5]);
        assert_eq!(indexes(&w, 8..=20), [8]);
        assert!(indexes(&w, 9..).is_empty() && w.is_whole());
        assert_eq!((w.id_at(3), w.id_at(8), w.id_at(2), w.id_at(9)), (Some(id(1, 1, 3)), Some(id(2, 1, 8)), None, None));
        w.purge(id(2, 1, 20));
        assert_eq!((w.last(), w.next_index(), w.len()), (Some(id(2, 1, 20)), 21, 0));
        w.truncate(None);
        assert_eq!(w.next_index(), 21);
    }
}
