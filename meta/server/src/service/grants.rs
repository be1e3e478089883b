//! The grant table of the running service: `meta/core`'s rows, who waits for them, and the names being changed.
//!
//! What always holds: whoever is told to wait is woken when the row it waits for changes. Locks here are taken below the
//! state's read lock, never above it.
//! What it leaves out: running recalls (`recall`).

use crate::metrics::Metrics;
use holdfast_meta_client::Grant;
use holdfast_meta_core::lease::{Answer, Ask, Asker, Hold, Limits, Table};
use holdfast_objstore_proto::meta::Name;
use holdfast_objstore_proto::{InodeId, SessionId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap, HashSet};
use tokio::sync::oneshot;

/// Waiting for a row; ends (either way) when it changed.
pub(crate) type Waiting = oneshot::Receiver<()>;

/// Why a use cannot go on yet.
pub(crate) enum Blocked {
    /// Start this recall, then wait.
    Recall {
        ino: InodeId,
        hold: Hold,
        name: Option<Name>,
        waiting: Waiting,
    },
    Wait(Waiting),
}

/// What a change touches: inodes in ascending order, and the names it goes by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Inodes whose data, attributes or names change.
    pub changes: BTreeSet<InodeId>,
    /// Names that change, by directory.
    pub names: BTreeSet<(InodeId, Name)>,
    /// Inodes whose committed data or attributes the change depends on.
    pub reads: BTreeSet<InodeId>,
}

impl Plan {
    /// The name that changes in a directory, when it is one.
    fn only_name(&self, dir: InodeId) -> Option<Name> {
        let mut names = self.names.range((dir, Name::new())..).take_while(|(d, _)| *d == dir);
        let first = names.next()?;
        names.next().is_none().then(|| first.1.clone())
    }
}

/// A change that is ready to be proposed: its inodes and names are marked until it is given back.
pub(crate) struct Marked {
    /// In ascending order.
    pub inos: Vec<InodeId>,
    names: Vec<(InodeId, Name)>,
}

pub(crate) struct Rows {
    table: Table,
    waiters: HashMap<InodeId, Vec<oneshot::Sender<()>>>,
    /// Names with a change in the log: a second change of one waits, so that what a change touches is known before it is proposed.
    names: HashSet<(InodeId, Name)>,
    metrics: Metrics,
}

pub(crate) struct Grants(Mutex<Rows>);

impl Grants {
    pub(crate) fn new(limits: Limits, metrics: Metrics) -> Self {
        Self(Mutex::new(Rows { table: Table::new(limits), waiters: HashMap::new(), names: HashSet::new(), metrics }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Rows> {
        self.0.lock()
    }
}

impl Rows {
    pub(crate) fn held(&self) -> usize {
        self.table.held()
    }

    pub(crate) fn held_by(&self, session: SessionId) -> usize {
        self.table.held_by(session)
    }

    fn count(&self) {
        self.metrics.grants_held.set(self.table.held() as i64);
    }

    fn wait(&mut self, ino: InodeId) -> Waiting {
        let (wake, waiting) = oneshot::channel();
        let all = self.waiters.entry(ino).or_default();
        all.retain(|w| !w.is_closed());
        all.push(wake);
        waiting
    }

    fn wake(&mut self, ino: InodeId) {
        for w in self.waiters.remove(&ino).into_iter().flatten() {
            // One that no longer waits does not mind.
            let _ = w.send(());
        }
    }

    /// Wakes everybody: the service has failed and they should look.
    pub(crate) fn wake_all(&mut self) {
        self.waiters.clear();
    }

    /// Asks for one inode.
    pub(crate) fn ask(&mut self, ino: InodeId, asker: Asker, ask: Ask, now_ns: u64) -> Result<Grant, Blocked> {
        self.ask_for(ino, asker, ask, None, now_ns)
    }

    fn ask_for(&mut self, ino: InodeId, asker: Asker, ask: Ask, name: Option<Name>, now_ns: u64) -> Result<Grant, Blocked> {
        let before = self.table.held();
        match self.table.ask(ino, asker, ask, now_ns) {
            Answer::Excl { stamp } => {
                if self.table.held() > before {
                    self.metrics.grants.inc();
                    self.count();
                }
                Ok(Grant::Excl { stamp })
            }
            Answer::Through => Ok(Grant::Through),
            Answer::Recall(hold) => Err(Blocked::Recall { ino, hold, name, waiting: self.wait(ino) }),
            Answer::Wait => Err(Blocked::Wait(self.wait(ino))),
        }
    }

    /// A use that reads committed state and is granted nothing.
    pub(crate) fn look_through(&mut self, ino: InodeId, session: SessionId, now_ns: u64) -> Result<(), Blocked> {
        self.ask(ino, Asker { session, caching: false }, Ask::Look, now_ns).map(drop)
    }

    pub(crate) fn hides(&self, ino: InodeId, from: SessionId) -> bool {
        self.table.hides(ino, from)
    }

    /// Marks a change as ready, or says what it waits for; meanwhile `pending` (what it marked before) keeps its inodes from
    /// being granted anew.
    pub(crate) fn admit(&mut self, plan: &Plan, session: SessionId, pending: &mut Vec<InodeId>, now_ns: u64) -> Result<Marked, Blocked> {
        self.give_up(pending);
        let asker = Asker { session, caching: false };
        let blocked = self.blocked(plan, asker, now_ns);
        let inos: Vec<InodeId> = plan.changes.iter().copied().collect();
        self.table.change_waits(&inos);
        if let Some(b) = blocked {
            *pending = inos;
            return Err(b);
        }
        self.table.change_proposed(&inos);
        let names: Vec<_> = plan.names.iter().cloned().collect();
        self.names.extend(names.iter().cloned());
        Ok(Marked { inos, names })
    }

    /// The first thing that keeps the change from going on, in ascending inode order.
    fn blocked(&mut self, plan: &Plan, asker: Asker, now_ns: u64) -> Option<Blocked> {
        for ino in &plan.changes {
            if let Err(b) = self.ask_for(*ino, asker, Ask::Change, plan.only_name(*ino), now_ns) {
                return Some(b);
            }
        }
        for ino in &plan.reads {
            if let Err(b) = self.ask(*ino, asker, Ask::Look, now_ns) {
                return Some(b);
            }
        }
        // Last, since it is short: the other change is in the log.
        let busy = plan.names.iter().find(|n| self.names.contains(*n)).map(|(dir, _)| *dir)?;
        Some(Blocked::Wait(self.wait(busy)))
    }

    /// A change that waited is given up or looked at afresh. Those who found its inodes pending went on without a grant: nobody waits.
    pub(crate) fn give_up(&mut self, pending: &mut Vec<InodeId>) {
        self.table.change_given_up(pending);
        pending.clear();
    }

    /// A change is applied (or the log has failed).
    pub(crate) fn applied(&mut self, marked: &Marked) {
        self.table.change_applied(&marked.inos);
        for n in &marked.names {
            self.names.remove(n);
        }
        if self.waiters.is_empty() {
            return;
        }
        for ino in &marked.inos {
            self.wake(*ino);
        }
    }

    /// The holder answered.
    pub(crate) fn recalled(&mut self, ino: InodeId, stamp: u64) {
        self.table.recalled(ino, stamp);
        self.count();
        self.wake(ino);
    }

    pub(crate) fn release(&mut self, inos: &[InodeId], session: SessionId) {
        for ino in inos {
            if self.table.release(*ino, session) {
                self.wake(*ino);
            }
        }
        self.count();
    }

    pub(crate) fn end_session(&mut self, session: SessionId) {
        for ino in self.table.end_session(session) {
            self.wake(ino);
        }
        self.count();
    }
}
