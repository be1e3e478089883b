//! Which units of a volume are free.
//!
//! What always holds: free runs do not touch each other; the lowest that is large enough is taken, so that files lie in few pieces.

use std::collections::BTreeMap;

/// Adjacent units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub first: u32,
    pub count: u32,
}

/// Free units, as runs by their first.
#[derive(Debug, Default)]
pub struct Free {
    runs: BTreeMap<u32, u32>,
    units: u32,
}

impl Free {
    pub fn all(units: u32) -> Free {
        let mut free = Free::default();
        free.give(Run { first: 0, count: units });
        free
    }

    pub fn units(&self) -> u32 {
        self.units
    }

    /// Takes `count` units, in one piece where there is one; `None` and nothing taken when there are fewer.
    pub fn take(&mut self, count: u32) -> Option<Vec<Run>> {
        if count > self.units {
            return None;
        }
        let mut taken = Vec::new();
        let mut left = count;
        while left > 0 {
            let fits = self.runs.iter().find(|(_, n)| **n >= left).or_else(|| self.runs.iter().max_by_key(|(_, n)| **n));
            let (&first, &n) = fits?;
            let run = Run { first, count: n.min(left) };
            self.cut(run);
            left -= run.count;
            taken.push(run);
        }
        Some(taken)
    }

    /// Takes exactly this run. False: not all of it was free, and nothing was taken.
    pub fn claim(&mut self, run: Run) -> bool {
        if run.count == 0 || run.first.checked_add(run.count).is_none() {
            return false;
        }
        let Some((&first, &n)) = self.runs.range(..=run.first).next_back() else { return false };
        if first + n < run.first + run.count {
            return false;
        }
        self.cut(run);
        true
    }

    /// Removes a run that lies within a free one.
    fn cut(&mut self, run: Run) {
        let Some((&first, &n)) = self.runs.range(..=run.first).next_back() else { return };
        self.runs.remove(&first);
        if first < run.first {
            self.runs.insert(first, run.first - first);
        }
        let (end, cut_end) = (first + n, run.first + run.count);
        if cut_end < end {
            self.runs.insert(cut_end, end - cut_end);
        }
        self.units -= run.count;
    }

    pub fn give(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        self.units += run.count;
        let (mut first, mut count) = (run.first, run.count);
        if let Some((&before, &n)) = self.runs.range(..first).next_back()
            && before + n == first
        {
            self.runs.remove(&before);
            (first, count) = (before, n + count);
        }
        if let Some(n) = self.runs.remove(&(first + count)) {
            count += n;
        }
        self.runs.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_in_one_piece_where_they_can_and_go_back_together() {
        let mut f = Free::all(100);
        let run = |first, count| Run { first, count };
        assert_eq!(f.take(10), Some(vec![run(0, 10)]));
        assert_eq!(f.take(20), Some(vec![run(10, 20)]));
        f.give(run(0, 10));
        assert_eq!(f.take(5), Some(vec![run(0, 5)]));
        assert_eq!(f.take(70), Some(vec![run(30, 70)]));
        f.give(run(20, 4));
        assert_eq!(f.take(8), Some(vec![run(5, 5), run(20, 3)]), "in pieces where it must");
        assert_eq!((f.take(2), f.units()), (None, 1));
        f.give(run(5, 5));
        f.give(run(20, 3));
        f.give(run(10, 10));
        assert_eq!((f.runs.len(), f.units()), (1, 19));
        assert!(!f.claim(run(4, 3)) && !f.claim(run(23, 2)) && !f.claim(run(7, 0)) && !f.claim(run(u32::MAX, 2)));
        assert!(f.claim(run(7, 3)) && !f.claim(run(9, 1)));
        assert_eq!(f.units(), 16);
    }
}
