//! What becomes of the copies of the log: events in, commands out, no I/O and no clock.
//!
//! | event | what follows |
//! |---|---|
//! | a copy has records on stable media | those that enough copies of every set that may be in force have are acknowledged |
//! | a copy failed or is late | a set without it is proposed, once the others hold all that was acknowledged |
//! | the proposed set counts | it is in force; copies outside it get nothing any more |
//! | the proposed set cannot count | the log fails |
//! | fewer copies than wanted, a device to spare | a copy is filled there |
//! | the filled copy is whole | a set with it is proposed |
//! | every copy of the set has failed | the log fails |
//! | other devices are to be known | copies leave those that are not, once others have them; then a set with the new ones is proposed |
//! | that set cannot count | one that keeps the devices as they were is proposed in its place |
//! | a device is another one now | the set in force is proposed once more: the new device has not stored it |
//!
//! What always holds: at most one set is proposed beside the one in force, and until it is decided records are acknowledged only when
//! both would allow it; so whichever of the two a start finds, one of its members has all that was acknowledged. A set changes the copies or
//! the devices, never both: one that was refused may be found by a start, and its copies are those of the set in force.

use super::set::{Epoch, Place, Set};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A copy has every record up to this number on stable media.
    Durable(Place, u64),
    /// A copy takes no more writes until the next start.
    Failed(Place),
    /// A copy is too far behind.
    Late(Place),
    /// A copy that was late is idle again.
    Back(Place),
    /// A device without a copy in force is another one now, or serves again.
    Renewed(Place),
    /// The copy being filled has all that the log held when filling began.
    Filled(Place),
    /// The proposed set is durable on a quorum.
    Counts,
    /// The proposed set cannot become so.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Everything up to this number is acknowledged.
    Ack(u64),
    /// Make this set durable on a quorum of the known devices, and of those known before; answer with `Counts` or `Refused`.
    Propose(Set),
    /// Fill a copy there; answer with `Filled`, `Failed` or `Late`.
    Fill(Place),
    /// Hand that copy no more records.
    Drop(Place),
    /// The log can go on no more.
    Fail(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Good,
    Late,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rules {
    /// Copies wanted.
    copies: usize,
    set: Set,
    proposed: Option<Set>,
    durable: BTreeMap<Place, u64>,
    health: BTreeMap<Place, Health>,
    filling: Option<Place>,
    /// Filled, and in no set yet.
    joined: Option<Place>,
    /// The devices that are to be known.
    wanted: Vec<Place>,
    /// The change that was proposed last.
    change: u32,
    /// A set was refused that a start may find, or a device lacks the one in force: one that comes after it is to count.
    supersede: bool,
    acked: u64,
    failed: bool,
}

impl Rules {
    /// The rules over a set that counts, all of whose copies have every record up to `upto`.
    pub fn new(set: Set, copies: usize, upto: u64, failed: &[Place]) -> Self {
        let durable = set.members.iter().map(|m| (*m, upto)).collect();
        let health = failed.iter().map(|p| (*p, Health::Failed)).collect();
        let (wanted, change) = (set.known.clone(), set.epoch.change);
        let (proposed, filling, joined) = (None, None, None);
        Self { copies, set, proposed, durable, health, filling, joined, wanted, change, supersede: false, acked: upto, failed: false }
    }

    pub fn set(&self) -> &Set {
        &self.set
    }
    /// The copy being made whole.
    pub fn filling(&self) -> Option<Place> {
        self.filling.or(self.joined)
    }
    pub fn has_failed(&self, place: Place) -> bool {
        self.health(place) == Health::Failed
    }
    pub fn is_late(&self, place: Place) -> bool {
        self.health(place) == Health::Late
    }

    /// Whether nothing more can be done now to have as many copies as wanted.
    pub fn is_settled(&self) -> bool {
        self.failed || (self.proposed.is_none() && self.filling.is_none() && self.joined.is_none())
    }

    /// From now on these devices are to be known, all of which are there or were known. To be called at a start too: it begins what is to be done.
    pub fn devices(&mut self, wanted: Vec<Place>) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.failed || wanted.is_empty() {
            return commands;
        }
        self.wanted = wanted;
        for place in self.filling.into_iter().chain(self.joined) {
            if !self.wanted.contains(&place) && !self.in_a_set(place) {
                (self.filling, self.joined) = (None, None);
                commands.push(Command::Drop(place));
            }
        }
        self.settle(&mut commands);
        commands
    }

    /// Takes in what happened; answers what to do, in order.
    pub fn step(&mut self, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.failed {
            return commands;
        }
        match event {
            Event::Durable(place, upto) => {
                let durable = self.durable.entry(place).or_default();
                *durable = (*durable).max(upto);
            }
            Event::Failed(place) => self.lose(place, Health::Failed, &mut commands),
            Event::Late(place) if self.health(place) == Health::Good => self.lose(place, Health::Late, &mut commands),
            Event::Late(_) => {}
            Event::Back(place) => {
                if self.health(place) == Health::Late && !self.in_a_set(place) {
                    self.health.remove(&place);
                }
            }
            Event::Renewed(place) => {
                if !self.in_a_set(place) {
                    self.health.remove(&place);
                    // It has not stored the set in force.
                    self.supersede |= self.set.known.contains(&place);
                }
            }
            Event::Filled(place) => {
                if self.filling == Some(place) {
                    self.filling = None;
                    self.joined = Some(place);
                }
            }
            Event::Counts => {
                if let Some(set) = self.proposed.take() {
                    let old = std::mem::replace(&mut self.set, set);
                    self.supersede = false;
                    self.joined = self.joined.filter(|j| !self.set.members.contains(j));
                    commands.extend(old.members.iter().filter(|m| !self.set.members.contains(m)).map(|m| Command::Drop(*m)));
                }
            }
            Event::Refused => match self.proposed.take_if(|p| p.members == self.set.members) {
                // Its copies are those in force, so nothing depends on it: not on one either that was only to come after it.
                Some(set) => {
                    self.wanted = self.set.known.clone();
                    self.supersede = !set.before.is_empty();
                }
                None => self.fail("which copies of the log count could not be made durable on a majority of the devices", &mut commands),
            },
        }
        self.settle(&mut commands);
        commands
    }

    fn health(&self, place: Place) -> Health {
        self.health.get(&place).copied().unwrap_or(Health::Good)
    }

    fn in_a_set(&self, place: Place) -> bool {
        self.set.members.contains(&place) || self.proposed.as_ref().is_some_and(|p| p.members.contains(&place))
    }

    fn lose(&mut self, place: Place, health: Health, commands: &mut Vec<Command>) {
        self.health.insert(place, health);
        // One that is about to be in force is left out like any other, by the next set.
        let in_a_set = self.in_a_set(place);
        if self.filling.take_if(|f| *f == place).is_some() || (!in_a_set && self.joined.take_if(|j| *j == place).is_some()) {
            commands.push(Command::Drop(place));
        }
    }

    fn fail(&mut self, why: &'static str, commands: &mut Vec<Command>) {
        self.failed = true;
        commands.push(Command::Fail(why));
    }

    /// The number up to which enough copies of a set have everything. Copies that failed do not count.
    fn held(&self, members: &[Place]) -> u64 {
        let live = members.iter().filter(|m| self.health(**m) != Health::Failed);
        let mut durable: Vec<u64> = live.map(|m| self.durable.get(m).copied().unwrap_or(0)).collect();
        durable.sort_unstable_by(|a, b| b.cmp(a));
        let need = members.len().min(2);
        if need == 0 { 0 } else { durable.get(need - 1).copied().unwrap_or(0) }
    }

    fn settle(&mut self, commands: &mut Vec<Command>) {
        if self.failed {
            return;
        }
        let held = self.held(&self.set.members).min(self.proposed.as_ref().map_or(u64::MAX, |p| self.held(&p.members)));
        if held > self.acked {
            self.acked = held;
            commands.push(Command::Ack(held));
        }
        if !self.set.members.iter().any(|m| self.health(*m) == Health::Good) {
            // Those that are merely late are all there is.
            let members = &self.set.members;
            self.health.retain(|p, h| *h != Health::Late || !members.contains(p));
        }
        if self.proposed.is_none() {
            self.propose(commands);
        }
        if !self.failed && self.filling.is_none() && self.joined.is_none() && self.staying().len() < self.copies {
            if let Some(spare) = self.spare() {
                self.filling = Some(spare);
                self.durable.remove(&spare);
                commands.push(Command::Fill(spare));
            }
        }
    }

    /// Good copies, with the one that joins.
    fn good(&self) -> Vec<Place> {
        let good = |m: &Place| self.health(*m) == Health::Good;
        self.set.members.iter().copied().chain(self.joined).filter(good).collect()
    }

    /// Those of them on devices that are to be known.
    fn staying(&self) -> Vec<Place> {
        self.good().into_iter().filter(|m| self.wanted.contains(m)).collect()
    }

    /// A device that a copy can be filled on.
    fn spare(&self) -> Option<Place> {
        let may = |p: &Place| self.wanted.contains(p) && self.health(*p) == Health::Good && !self.in_a_set(*p);
        self.set.known.iter().copied().find(may)
    }

    /// The copies that the next set is to have.
    fn next_members(&self) -> Vec<Place> {
        let (good, staying) = (self.good(), self.staying());
        // Copies leave a device when there are enough without them, or as many as there can be.
        let more = self.filling.is_some() || self.spare().is_some() || self.wanted.iter().any(|w| !self.set.known.contains(w));
        if !staying.is_empty() && (staying.len() >= self.copies || !more) { staying } else { good }
    }

    /// The devices that the next set is to know: those of its copies, and those that are wanted.
    fn next_known(&self) -> Vec<Place> {
        let needed = |p: &Place| self.wanted.contains(p) || self.in_a_set(*p) || self.filling() == Some(*p);
        let fresh = self.wanted.iter().filter(|w| !self.set.known.contains(w));
        self.set.known.iter().filter(|p| needed(p)).chain(fresh).copied().collect()
    }

    /// Proposes the next set, if there is to be another.
    fn propose(&mut self, commands: &mut Vec<Command>) {
        let (members, known) = (self.next_members(), self.next_known());
        let before = if members != self.set.members {
            if members.is_empty() {
                return self.fail("every copy of the log is out of service", commands);
            }
            if self.held(&members) < self.acked {
                return;
            }
            Vec::new()
        } else if known != self.set.known {
            self.set.known.clone()
        } else if self.supersede || !self.set.before.is_empty() {
            Vec::new()
        } else {
            return;
        };
        let known = if before.is_empty() { self.set.known.clone() } else { known };
        self.change += 1;
        let epoch = Epoch { start: self.set.epoch.start, change: self.change };
        let set = Set { epoch, known, before, members };
        commands.push(Command::Propose(set.clone()));
        self.proposed = Some(set);
    }
}
