//! Who may cache what: the decision about every grant, use and recall, and the table it is made on.
//!
//! A session holds EXCL on an inode or directory, for reading or for writing, or nothing. [`decide`] is a pure function of one
//! row of the table, the asker and what it asks; [`Table`] keeps the rows and carries the decisions out. The
//! caller brings the time, runs the recalls it is told to run, and wakes those it told to wait whenever a row changes.
//!
//! What always holds: at most one session holds an inode; nobody is granted an inode while a change of it is
//! under way; stamps grow over the whole table, and one stamp names one unbroken hold; a session never waits for a recall
//! from itself.
//! What it leaves out: what a holder must do when recalled (fs/vfs), waiting and time-outs (meta/server).

use holdfast_objstore_proto::{InodeId, SessionId};
use std::collections::HashMap;

/// What a holder declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Using {
    /// It caches data, attributes or names, all of them committed: a foreign read needs nothing from it.
    Read,
    /// It may hold newer data or attributes than what is committed: any foreign use must take them from it first.
    Write,
}

/// One session's EXCL on one inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub session: SessionId,
    pub using: Using,
    pub stamp: u64,
}

/// One inode's row. A row that is all default says nothing and is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Row {
    pub hold: Option<Hold>,
    /// The hold is being taken back.
    pub recalling: bool,
    /// Changes that wait for recalls (of this inode or another) before they are proposed: they may wait long.
    pub pending: u32,
    /// Changes proposed and not yet applied: they end by themselves, soon.
    pub proposed: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    pub session: SessionId,
    /// Whether it may be granted anything.
    pub caching: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Reads committed state; is granted the inode for reading when it is free.
    Look,
    /// Changes the inode: data, attributes, links, or a directory's names.
    Change,
    /// Wants EXCL.
    Acquire(Using),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Goes on and holds the inode, with a new stamp or the one it has.
    Grant,
    /// Goes on without a grant.
    Through,
    /// Recalls the holder, then asks again.
    Recall,
    /// Waits until the row changes, then asks again.
    Wait,
}

/// `may_grant`: the table has room and the inode is not held down.
pub fn decide(row: &Row, asker: Asker, ask: Ask, may_grant: bool) -> Decision {
    let take_back = if row.recalling { Decision::Wait } else { Decision::Recall };
    match (row.hold, ask) {
        // The holder itself. Under recall it gets nothing new and waits for nothing: its own flush may be asking.
        (Some(h), Ask::Change) if h.session == asker.session => Decision::Through,
        (Some(h), _) if h.session == asker.session && row.recalling => Decision::Through,
        (Some(h), Ask::Look | Ask::Acquire(_)) if h.session == asker.session => Decision::Grant,
        // Somebody else holds it.
        (Some(_), Ask::Change | Ask::Acquire(Using::Write)) => take_back,
        (Some(Hold { using: Using::Write, .. }), Ask::Look | Ask::Acquire(Using::Read)) => take_back,
        // Between a recall and its answer the holder may take in what nobody else can see, whatever it declared.
        (Some(Hold { using: Using::Read, .. }), Ask::Look | Ask::Acquire(Using::Read)) if row.recalling => Decision::Wait,
        // A reader beside a reader: both see what is committed, and the first keeps its caches.
        (Some(Hold { using: Using::Read, .. }), Ask::Look | Ask::Acquire(Using::Read)) => Decision::Through,
        // Nobody holds it.
        (None, Ask::Change) => Decision::Through,
        (None, Ask::Look | Ask::Acquire(_)) if !asker.caching || !may_grant || row.pending > 0 => Decision::Through,
        (None, Ask::Look) if row.proposed > 0 => Decision::Through,
        (None, Ask::Acquire(_)) if row.proposed > 0 => Decision::Wait,
        (None, Ask::Look | Ask::Acquire(_)) => Decision::Grant,
    }
}

/// Bounds of a table.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Holds at once; beyond it everybody reads and writes through.
    pub grants_max: usize,
    /// An inode recalled this often …
    pub hold_down_recalls: u32,
    /// … within this many nanoseconds …
    pub hold_down_window_ns: u64,
    /// … is granted to nobody for this long.
    pub hold_down_ns: u64,
}

impl Limits {
    /// Memory one hold takes, about: its row, and its share of a table at its fullest.
    pub const GRANT_BYTES: usize = 2 * size_of::<(InodeId, Row)>();
}

impl Default for Limits {
    fn default() -> Self {
        Self { grants_max: 1 << 18, hold_down_recalls: 3, hold_down_window_ns: 1_000_000_000, hold_down_ns: 1_000_000_000 }
    }
}

/// Recalls of one inode in the current window.
#[derive(Debug, Clone, Copy)]
struct Past {
    since_ns: u64,
    recalls: u32,
    down_until_ns: u64,
}

/// Inodes with a recent recall that are remembered at most; older ones go first.
const PAST_MAX: usize = 4096;

/// A decision carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The asker holds the inode under this stamp.
    Excl {
        stamp: u64,
    },
    Through,
    /// The caller now runs this recall and reports its end with [`Table::recalled`].
    Recall(Hold),
    Wait,
}

/// All rows.
pub struct Table {
    rows: HashMap<InodeId, Row>,
    past: HashMap<InodeId, Past>,
    held: HashMap<SessionId, usize>,
    held_all: usize,
    stamp: u64,
    limits: Limits,
}

impl Table {
    pub fn new(limits: Limits) -> Self {
        Self { rows: HashMap::new(), past: HashMap::new(), held: HashMap::new(), held_all: 0, stamp: 0, limits }
    }

    pub fn row(&self, ino: InodeId) -> Row {
        self.rows.get(&ino).copied().unwrap_or_default()
    }

    /// Holds of all sessions.
    pub fn held(&self) -> usize {
        self.held_all
    }

    pub fn held_by(&self, session: SessionId) -> usize {
        self.held.get(&session).copied().unwrap_or(0)
    }

    /// Whether another session holds the inode in a way that a read must know of.
    pub fn hides(&self, ino: InodeId, from: SessionId) -> bool {
        self.rows.get(&ino).is_some_and(|r| r.hold.is_some_and(|h| h.session != from && (h.using == Using::Write || r.recalling)))
    }

    /// Decides and carries out. `now_ns` is boot time.
    pub fn ask(&mut self, ino: InodeId, asker: Asker, ask: Ask, now_ns: u64) -> Answer {
        let row = self.row(ino);
        let may_grant = self.held_all < self.limits.grants_max && !self.held_down(ino, now_ns);
        match decide(&row, asker, ask, may_grant) {
            Decision::Grant => Answer::Excl { stamp: self.grant(ino, asker.session, ask) },
            Decision::Through => Answer::Through,
            Decision::Wait => Answer::Wait,
            Decision::Recall => {
                let hold = row.hold.expect("only a hold is recalled");
                self.change(ino, |r| r.recalling = true);
                self.note_recall(ino, now_ns);
                Answer::Recall(hold)
            }
        }
    }

    fn grant(&mut self, ino: InodeId, session: SessionId, ask: Ask) -> u64 {
        let using = if let Ask::Acquire(u) = ask { u } else { Using::Read };
        if let Some(h) = self.rows.get_mut(&ino).and_then(|r| r.hold.as_mut()) {
            // An upgrade keeps its stamp: a release that crosses the reply then ends both.
            h.using = h.using.max(using);
            return h.stamp;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        self.change(ino, |r| r.hold = Some(Hold { session, using, stamp }));
        *self.held.entry(session).or_default() += 1;
        self.held_all += 1;
        stamp
    }

    /// The holder answered a recall. Only the hold with this stamp ends; whether it did.
    pub fn recalled(&mut self, ino: InodeId, stamp: u64) -> bool {
        let ends = self.row(ino).hold.is_some_and(|h| h.stamp == stamp);
        if ends {
            self.drop_hold(ino);
        }
        ends
    }

    /// The holder gives it back; whether it had it.
    pub fn release(&mut self, ino: InodeId, session: SessionId) -> bool {
        let ends = self.row(ino).hold.is_some_and(|h| h.session == session);
        if ends {
            self.drop_hold(ino);
        }
        ends
    }

    /// The session is over. Returns what it held, in order.
    pub fn end_session(&mut self, session: SessionId) -> Vec<InodeId> {
        let mut inos: Vec<InodeId> =
            self.rows.iter().filter(|(_, r)| r.hold.is_some_and(|h| h.session == session)).map(|(i, _)| *i).collect();
        inos.sort_unstable();
        for ino in &inos {
            self.drop_hold(*ino);
        }
        inos
    }

    fn drop_hold(&mut self, ino: InodeId) {
        let Some(hold) = self.row(ino).hold else { return };
        self.change(ino, |r| {
            r.hold = None;
            r.recalling = false;
        });
        self.held_all -= 1;
        if let Some(n) = self.held.get_mut(&hold.session) {
            *n -= 1;
            if *n == 0 {
                self.held.remove(&hold.session);
            }
        }
    }

    /// A change of these inodes begins: until it is applied or given up, nobody new is granted them.
    pub fn change_waits(&mut self, inos: &[InodeId]) {
        for ino in inos {
            self.change(*ino, |r| r.pending += 1);
        }
    }

    /// It no longer waits for anybody: it is in the log's hands.
    pub fn change_proposed(&mut self, inos: &[InodeId]) {
        for ino in inos {
            self.change(*ino, |r| {
                r.pending -= 1;
                r.proposed += 1;
            });
        }
    }

    /// A waiting change is given up, or looked at afresh.
    pub fn change_given_up(&mut self, inos: &[InodeId]) {
        for ino in inos {
            self.change(*ino, |r| r.pending -= 1);
        }
    }

    /// A proposed change is applied, or will never be.
    pub fn change_applied(&mut self, inos: &[InodeId]) {
        for ino in inos {
            self.change(*ino, |r| r.proposed -= 1);
        }
    }

    /// Changes a row and forgets it when it says nothing.
    fn change(&mut self, ino: InodeId, change: impl FnOnce(&mut Row)) {
        let row = self.rows.entry(ino).or_default();
        change(row);
        if *row == Row::default() {
            self.rows.remove(&ino);
        }
    }

    fn held_down(&self, ino: InodeId, now_ns: u64) -> bool {
        self.past.get(&ino).is_some_and(|p| now_ns < p.down_until_ns)
    }

    fn note_recall(&mut self, ino: InodeId, now_ns: u64) {
        let limits = self.limits;
        if self.past.len() >= PAST_MAX && !self.past.contains_key(&ino) {
            let live = |p: &Past| now_ns < p.down_until_ns.max(p.since_ns + limits.hold_down_window_ns);
            self.past.retain(|_, p| live(p));
            if self.past.len() >= PAST_MAX {
                // Everything is in dispute at once: without a memory of this one it is merely recalled more often.
                return;
            }
        }
        let past = self.past.entry(ino).or_insert(Past { since_ns: now_ns, recalls: 0, down_until_ns: 0 });
        if now_ns.saturating_sub(past.since_ns) >= limits.hold_down_window_ns {
            *past = Past { since_ns: now_ns, recalls: 0, down_until_ns: past.down_until_ns };
        }
        past.recalls += 1;
        if past.recalls >= limits.hold_down_recalls {
            past.down_until_ns = now_ns + limits.hold_down_ns;
            past.recalls = 0;
            past.since_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests;
