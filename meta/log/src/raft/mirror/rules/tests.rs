//! Every order of events up to bounds: nothing acknowledged depends on a copy that may be lost, and nothing gets stuck.

use super::*;
use std::collections::{BTreeSet, VecDeque};

/// Records written in all.
const WRITTEN: u64 = 2;

/// The rules with what happened around them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    rules: Rules,
    /// What copies really hold: stays true of those that failed.
    stable: BTreeMap<Place, u64>,
    /// Copies that get records.
    fed: BTreeSet<Place>,
    failures: u8,
    lates: u8,
    ended: bool,
}

impl World {
    fn new(known: u16, members: u16, copies: usize) -> Self {
        let set = Set { epoch: Epoch { start: 1, change: 0 }, known: (0..known).collect(), members: (0..members).collect() };
        let mut rules = Rules::new(set, copies, 0, &[]);
        let commands = rules.begin();
        let fed: BTreeSet<Place> = (0..members).collect();
        let stable = fed.iter().map(|p| (*p, 0)).collect();
        let mut world = Self { rules, stable, fed, failures: 0, lates: 0, ended: false };
        world.take(commands);
        world
    }

    fn take(&mut self, commands: Vec<Command>) {
        for c in commands {
            match c {
                Command::Fill(p) => {
                    assert!(self.fed.insert(p), "filled although it is fed");
                    self.stable.insert(p, 0);
                }
                Command::Drop(p) => assert!(self.fed.remove(&p), "dropped twice"),
                Command::Fail(_) => self.ended = true,
                Command::Propose(set) => {
                    assert!(!set.members.is_empty() && set.members.iter().all(|m| set.known.contains(m)));
                    assert!(set.members.iter().all(|m| !self.rules.has_failed(*m)), "a set with a copy that failed");
                }
                Command::Ack(_) => {}
            }
        }
        self.check();
    }

    fn step(&mut self, event: Event) {
        let acked = self.rules.acked;
        let commands = self.rules.step(event);
        let acks: Vec<u64> = commands.iter().filter_map(|c| if let Command::Ack(n) = c { Some(*n) } else { None }).collect();
        assert!(acks.iter().all(|n| *n > acked) && acks.len() <= 1);
        self.take(commands);
    }

    /// Whichever set a start now finds: one of its copies has all that was acknowledged, also when a device more is lost,
    /// as long as none of its copies is lost already.
    fn check(&self) {
        for set in [Some(&self.rules.set), self.rules.proposed.as_ref()].into_iter().flatten() {
            let (mut lost, mut holders) = (0, 0);
            for m in &set.members {
                match self.rules.has_failed(*m) {
                    true => lost += 1,
                    false => holders += usize::from(self.stable[m] >= self.rules.acked),
                }
            }
            let promised = set.need().saturating_sub(lost);
            assert!(holders >= promised, "{} of {set:?} hold {}", holders, self.rules.acked);
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for p in &self.fed {
            let at = self.stable[p];
            let gone = self.rules.has_failed(*p);
            if self.rules.filling == Some(*p) {
                // A copy is filled with all there was when filling began, and with what came since.
                events.extend((0..=WRITTEN).filter(|n| *n >= self.rules.acked).map(|_| Event::Filled(*p)).take(1));
            } else if at < WRITTEN && !gone {
                events.push(Event::Durable(*p, at + 1));
            }
            if self.failures < 2 && !gone {
                events.push(Event::Failed(*p));
            }
            let behind = self.stable.iter().any(|(o, n)| o != p && *n > at && !self.rules.has_failed(*o));
            if self.lates < 2 && behind && !gone {
                events.push(Event::Late(*p));
            }
        }
        events.extend(self.stable.keys().filter(|p| self.rules.is_late(**p) && !self.fed.contains(p)).map(|p| Event::Back(*p)));
        if self.rules.proposed.is_some() {
            events.push(Event::Counts);
        }
        events
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Durable(p, n) => drop(self.stable.insert(p, n)),
            Event::Filled(p) => {
                // All there is reached it.
                let most = self.stable.values().copied().max().unwrap_or(0);
                self.stable.insert(p, most);
                self.step(Event::Durable(p, most));
            }
            Event::Failed(_) => self.failures += 1,
            Event::Late(_) => self.lates += 1,
            _ => {}
        }
        self.step(event);
    }

    /// Without further harm everything is acknowledged, or the log failed.
    fn settles(mut self) {
        for _ in 0..100 {
            let harmless = |e: &Event| !matches!(e, Event::Failed(_) | Event::Late(_));
            let Some(event) = self.events().into_iter().find(harmless) else { break };
            self.happen(event);
        }
        if self.ended {
            assert!(self.rules.set.members.iter().all(|m| self.rules.has_failed(*m)), "it gave up with a copy left");
            return;
        }
        assert_eq!(self.rules.acked, WRITTEN, "stuck: {:?}", self.rules);
        assert!(self.rules.is_settled());
        let good = self.rules.set.known.iter().filter(|p| !self.rules.has_failed(**p)).count();
        let want = self.rules.copies.min(good);
        assert!(self.rules.set.members.len() >= want, "fewer copies than could be: {:?}", self.rules);
    }
}

fn explore(known: u16, members: u16, copies: usize) -> usize {
    let first = World::new(known, members, copies);
    let mut seen = BTreeSet::from([first.clone()]);
    let mut queue = VecDeque::from([first]);
    while let Some(world) = queue.pop_front() {
        world.clone().settles();
        for event in world.events() {
            let mut next = world.clone();
            next.happen(event);
            if !next.ended && seen.insert(next.clone()) {
                queue.push_back(next);
            }
        }
    }
    seen.len()
}

#[test]
fn no_order_of_events_leaves_an_acknowledged_record_on_too_few_copies_or_gets_stuck() {
    let mut states = 0;
    for (known, members, copies) in [(1, 1, 1), (2, 1, 2), (2, 2, 2), (3, 2, 2), (3, 3, 3)] {
        states += explore(known, members, copies);
    }
    assert!(states > 1_000, "{states} states");
}

#[test]
fn one_copy_acknowledges_alone_and_two_only_together() {
    let set = |n: u16| Set { epoch: Epoch::default(), known: (0..n).collect(), members: (0..n).collect() };
    let mut one = Rules::new(set(1), 1, 0, &[]);
    assert_eq!(one.step(Event::Durable(0, 5)), [Command::Ack(5)]);
    let mut two = Rules::new(set(2), 2, 0, &[]);
    assert_eq!(two.step(Event::Durable(0, 5)), []);
    assert_eq!(two.step(Event::Durable(1, 3)), [Command::Ack(3)]);
    let mut three = Rules::new(set(3), 3, 0, &[]);
    assert_eq!(three.step(Event::Durable(2, 5)), []);
    assert_eq!(three.step(Event::Durable(0, 9)), [Command::Ack(5)]);
}

#[test]
fn without_the_second_copy_nothing_is_acknowledged_before_the_set_without_it_counts() {
    let set = Set { epoch: Epoch { start: 4, change: 1 }, known: vec![0, 1, 2], members: vec![0, 1] };
    let mut r = Rules::new(set.clone(), 2, 0, &[2]);
    let without = Set { epoch: Epoch { start: 4, change: 2 }, members: vec![0], ..set };
    assert_eq!(r.step(Event::Failed(1)), [Command::Propose(without.clone())]);
    assert_eq!(r.step(Event::Durable(0, 7)), []);
    assert_eq!(r.step(Event::Counts), [Command::Drop(1), Command::Ack(7)]);
    assert_eq!(r.set(), &without);
    assert_eq!(
        r.step(Event::Refused),
        [Command::Fail("which copies of the log count could not be made durable on a majority of the devices")]
    );
    assert_eq!(r.step(Event::Durable(0, 9)), []);
}

#[test]
fn a_copy_that_lags_behind_what_was_acknowledged_is_not_left_alone() {
    let set = Set { epoch: Epoch::default(), known: vec![0, 1, 2], members: vec![0, 1, 2] };
    let mut r = Rules::new(set, 3, 0, &[]);
    r.step(Event::Durable(0, 5));
    assert_eq!(r.step(Event::Durable(1, 5)), [Command::Ack(5)]);
    r.step(Event::Durable(2, 3));
    // Two copies stay, and one of them lacks what was acknowledged by the one that failed.
    assert_eq!(r.step(Event::Failed(0)), []);
    assert!(matches!(r.step(Event::Durable(2, 5)).as_slice(), [Command::Propose(s)] if s.members == [1, 2]));
}
