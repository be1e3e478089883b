//! What of a log counts after a stop of any kind: the decisions, without any I/O.
//!
//! Segments are looked at in the order of their lives, records in the order of their places. [`Judge`] is told what is
//! found and decides. Let `s` be the sequence number expected at a place, `D` the highest durable number any accepted
//! record carries (or the checkpoint proves).
//!
//! | found at the place of record `s`                                | decision                                                    |
//! |-----------------------------------------------------------------|-------------------------------------------------------------|
//! | a whole head with number `s`                                    | accepted; visited once `D ≥ s` or the end is known          |
//! | nothing (zeroes), a former life's record, or foreign bytes      | a gap at `s`; the rest of the segment is searched for heads |
//! | a head cut short, a head whose checksum differs, a bad meta     | a gap at `s`, likewise                                      |
//! | a whole head of an older open epoch, or of another number       | a gap at `s`: it was dropped by an earlier recovery         |
//! | a gap at `s`, later `D ≥ s`                                     | corruption: a fault; what follows it counts                 |
//! | a gap at `s`, `D < s` to the end                                | the end: `s` and all behind it are dropped, sealed there    |
//! | the same, zeroes or foreign bytes, nothing behind it            | the end, and not called torn                                |
//! | head `s` whole, `D < s`, payload block differs                  | the end: as a gap at `s`                                    |
//! | head `s` whole, `D ≥ s`, payload block differs                  | accepted: reads answer `Corrupt`                            |
//! | a seal                                                          | the segment ends; lives below the one it names are orphans  |
//! | next segment present behind a gap, its records `> s`, `D < s`   | dropped with the tail; the segment goes out of service      |
//! | next segment in service without any record                      | a spare that was never used; goes out of service            |
//! | the life a seal names is retired                                | numbers may jump; the next record found sets them           |
//! | records behind a gap in one segment, the next begins lower      | they were dropped by an earlier recovery whose seal is bad  |
//!
//! and of segment headers (see `open.rs`):
//!
//! | found in the two slots                                          | decision                                                    |
//! |-----------------------------------------------------------------|-------------------------------------------------------------|
//! | both blank, no record behind                                    | half made: filled with zeroes anew before use               |
//! | one valid                                                       | it counts                                                   |
//! | one valid, one torn, first record of a later life than it says  | that life is in service: the torn slot said so              |
//! | none valid, first record whole                                  | that record's life is in service                            |
//! | none valid, no first record                                     | the segment is lost: a fault; the file is left alone        |
//! | number or log id of another                                     | no valid header                                             |
//! | one life in two segments                                        | refused: one is a copy                                      |
//! | a file the root does not know                                   | half made                                                   |
//! | a file the root knows is missing or short                       | the segment is lost: a fault                                |
//!
//! Each row is a test in `tests/recovery.rs`.

use super::error::Fault;
use super::format::head::{Head, KIND_SEAL};
use super::format::{Bad, Position};
use std::collections::VecDeque;

/// What is found, in order, and not yet decided.
#[derive(Debug)]
pub(super) enum Item {
    Record(Head),
    Gap(Gap),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    pub at: Position,
    /// The least number the missing record can have.
    pub seq: u64,
    /// Whether `seq` is its number, rather than a bound.
    pub exact: bool,
    /// Number of the record found next, when one was.
    pub next_seq: Option<u64>,
    pub why: Bad,
}

/// What may be told to the owner.
#[derive(Debug)]
pub(super) enum Decided {
    Record(Head),
    Fault(Fault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Exactly(u64),
    AtLeast(u64),
}

/// See the module.
pub(super) struct Judge {
    expected: Expected,
    epoch: u64,
    durable: u64,
    last_seq: u64,
    in_gap: bool,
    /// The least life after the seal that ended the last segment.
    sealed: Option<u32>,
    /// Number at the first gap of the segment being scanned.
    first_gap: Option<u64>,
    held: VecDeque<Item>,
}

/// What to do with a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Scan,
    /// An earlier recovery dropped it.
    Orphan,
}

impl Judge {
    /// `from_seq`: the first number no checkpoint covers; everything before it is known durable.
    pub fn new(from_seq: u64) -> Self {
        Self {
            expected: Expected::AtLeast(from_seq),
            epoch: 0,
            durable: from_seq - 1,
            last_seq: from_seq - 1,
            in_gap: false,
            sealed: None,
            first_gap: None,
            held: VecDeque::new(),
        }
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The life the last segment's seal names, if the chain ends in a seal.
    pub fn sealed(&self) -> Option<u32> {
        self.sealed
    }

    /// The next segment, in the order of lives. `starts_at_checkpoint`: it is scanned from the checkpoint's very position.
    pub fn segment(&mut self, life: u32, seq_floor: u64, starts_at_checkpoint: bool) -> Next {
        if self.sealed.is_some_and(|least| life < least) {
            return Next::Orphan;
        }
        let follows = self.sealed == Some(life) || starts_at_checkpoint;
        self.sealed = None;
        self.expected = match (self.expected, self.first_gap.take()) {
            // What stood behind a gap may have been dropped once; then this segment begins lower.
            (_, Some(gap)) => Expected::AtLeast((gap + 1).max(self.durable + 1).max(seq_floor)),
            (Expected::Exactly(n), None) if follows => Expected::Exactly(n),
            (Expected::AtLeast(n), None) if starts_at_checkpoint => Expected::Exactly(n),
            (Expected::Exactly(n) | Expected::AtLeast(n), None) => Expected::AtLeast(n.max(seq_floor)),
        };
        self.in_gap = self.held.back().is_some_and(|i| matches!(i, Item::Gap(_)));
        Next::Scan
    }

    /// A whole head found at its place. Answers whether it counts; if not, tell [`Judge::bad`] about the place.
    pub fn head(&mut self, head: Head) -> bool {
        let fits = match self.expected {
            Expected::Exactly(n) => head.seq == n,
            Expected::AtLeast(n) => head.seq >= n,
        };
        if !fits || head.epoch < self.epoch {
            return false;
        }
        let seq = head.seq;
        while self.held.back().is_some_and(|i| i.seq() >= seq) {
            self.held.pop_back();
        }
        if let Some(Item::Gap(gap)) = self.held.back_mut() {
            gap.next_seq = Some(seq);
            if !gap.exact {
                // Its first number is unknown; it ends just below this one.
                gap.seq = gap.seq.max(seq - 1);
            }
        }
        self.epoch = head.epoch;
        self.durable = self.durable.max(head.durable);
        self.last_seq = seq;
        self.expected = Expected::Exactly(seq + 1);
        self.in_gap = false;
        if head.kind == KIND_SEAL {
            let next_life = head.meta.first_chunk::<4>().map(|b| u32::from_le_bytes(*b)).unwrap_or(0);
            self.sealed = Some(next_life.max(head.location.position.life + 1));
        }
        self.held.push_back(Item::Record(head));
        true
    }

    /// No record that counts lies at this place, where one should begin.
    pub fn bad(&mut self, at: Position, why: Bad) {
        if self.in_gap {
            return;
        }
        let (seq, exact) = match self.expected {
            Expected::Exactly(n) => (n, true),
            Expected::AtLeast(n) => (n, false),
        };
        self.held.push_back(Item::Gap(Gap { at, seq, exact, next_seq: None, why }));
        self.first_gap.get_or_insert(seq);
        self.expected = Expected::AtLeast(seq + exact as u64);
        self.in_gap = true;
    }

    /// Takes what is decided: everything up to the durable number.
    pub fn decided(&mut self) -> Option<Decided> {
        if self.held.front()?.seq() > self.durable {
            return None;
        }
        Some(match self.held.pop_front()? {
            Item::Record(head) => Decided::Record(head),
            Item::Gap(gap) => Decided::Fault(Fault::Records {
                at: gap.at,
                first_seq: gap.seq,
                next_seq: gap.next_seq.unwrap_or(gap.seq + 1),
                why: gap.why.to_string(),
            }),
        })
    }

    /// At the end: what is undecided, of which everything from the first gap on is to be dropped. Call after `decided` ran dry.
    pub fn undecided(self) -> VecDeque<Item> {
        self.held
    }
}

impl Item {
    pub fn seq(&self) -> u64 {
        match self {
            Item::Record(head) => head.seq,
            Item::Gap(gap) => gap.seq,
        }
    }
}

impl Gap {
    /// Whether this is how a log looks that simply ended here.
    pub fn looks_clean(&self) -> bool {
        matches!(self.why, Bad::Blank | Bad::Stale | Bad::Foreign)
    }
}
