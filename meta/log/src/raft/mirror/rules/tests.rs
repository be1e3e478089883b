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
    /// Devices to be known, one change after another.
    wants: Vec<Vec<Place>>,
    /// A set may be refused once.
    refusals: u8,
    /// Sets that were refused, which a start may find until another counts.
    refused: Vec<Set>,
    ended: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Event(Event),
    Want,
}

impl World {
    fn new(known: u16, members: u16, copies: usize, wants: &[&[Place]], harm: u8) -> Self {
        let set =
            Set { epoch: Epoch { start: 1, change: 0 }, known: (0..known).collect(), before: vec![], members: (0..members).collect() };
        let mut rules = Rules::new(set, copies, 0, &[]);
        let commands = rules.devices((0..known).collect());
        let fed: BTreeSet<Place> = (0..members).collect();
        let stable = fed.iter().map(|p| (*p, 0)).collect();
        let wants: Vec<Vec<Place>> = wants.iter().map(|w| w.to_vec()).collect();
        let (failures, lates, refusals) = (harm, harm, wants.len().min(1) as u8);
        let mut world = Self { rules, stable, fed, failures, lates, wants, refusals, refused: Vec::new(), ended: false };
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
                    let same = set.members == self.rules.set.members;
                    assert!(same || set.members.iter().all(|m| !self.rules.has_failed(*m)), "a set with a copy that failed");
                    assert!(set.before.is_empty() || same && set.before == self.rules.set.known, "copies and devices change at once");
                    assert!(set.known == self.rules.set.known || !set.before.is_empty(), "devices change without those before");
                    assert!(self.refused.iter().all(|r| r.epoch < set.epoch) && self.rules.set.epoch < set.epoch);
                }
                Command::Ack(_) => {}
            }
        }
        self.check();
    }

    fn step(&mut self, event: Event) {
        let acked = self.rules.acked;
        match event {
            Event::Counts => self.refused.clear(),
            Event::Refused => self.refused.extend(self.rules.proposed.clone()),
            _ => {}
        }
        let commands = self.rules.step(event);
        let acks: Vec<u64> = commands.iter().filter_map(|c| if let Command::Ack(n) = c { Some(*n) } else { None }).collect();
        assert!(acks.iter().all(|n| *n > acked) && acks.len() <= 1);
        self.take(commands);
    }

    /// Whichever set a start now finds: one of its copies has all that was acknowledged, also when a device more is lost,
    /// as long as none of its copies is lost already.
    fn check(&self) {
        for set in [Some(&self.rules.set), self.rules.proposed.as_ref()].into_iter().flatten().chain(&self.refused) {
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

    fn steps(&self) -> Vec<Step> {
        let want = (!self.wants.is_empty()).then_some(Step::Want);
        self.events().into_iter().map(Step::Event).chain(want).collect()
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Event(event) => self.happen(event),
            Step::Want => {
                let wanted = self.wants.remove(0);
                let commands = self.rules.devices(wanted);
                self.take(commands);
            }
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
            if self.failures > 0 && !gone {
                events.push(Event::Failed(*p));
            }
            let behind = self.stable.iter().any(|(o, n)| o != p && *n > at && !self.rules.has_failed(*o));
            if self.lates > 0 && behind && !gone {
                events.push(Event::Late(*p));
            }
        }
        events.extend(self.stable.keys().filter(|p| self.rules.is_late(**p) && !self.fed.contains(p)).map(|p| Event::Back(*p)));
        if let Some(set) = &self.rules.proposed {
            events.push(Event::Counts);
            if self.refusals > 0 && !set.before.is_empty() {
                events.push(Event::Refused);
            }
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
            Event::Failed(_) => self.failures -= 1,
            Event::Late(_) => self.lates -= 1,
            Event::Refused => self.refusals -= 1,
            _ => {}
        }
        self.step(event);
    }

    /// Without further harm everything is acknowledged, or the log failed.
    fn settles(mut self) {
        for _ in 0..100 {
            let harmless = |s: &Step| !matches!(s, Step::Event(Event::Failed(_) | Event::Late(_) | Event::Refused));
            let Some(step) = self.steps().into_iter().find(harmless) else { break };
            self.take_step(step);
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
        let (set, wanted) = (&self.rules.set, &self.rules.wanted);
        assert!(set.before.is_empty() && self.refused.is_empty() && wanted.iter().all(|w| set.known.contains(w)), "{:?}", self.rules);
        let leaving: Vec<&Place> = set.known.iter().filter(|p| !wanted.contains(p)).collect();
        let may_leave = wanted.iter().any(|p| !self.rules.has_failed(*p));
        assert!(leaving.is_empty() || !may_leave, "a device is not forgotten: {:?}", self.rules);
    }
}

fn explore(first: World) -> usize {
    let mut seen = BTreeSet::from([first.clone()]);
    let mut queue = VecDeque::from([first]);
    while let Some(world) = queue.pop_front() {
        world.clone().settles();
        for step in world.steps() {
            let mut next = world.clone();
            next.take_step(step);
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
        states += explore(World::new(known, members, copies, &[], 2));
    }
    assert!(states > 1_000, "{states} states");
}

#[test]
fn no_order_of_events_while_devices_come_and_go_leaves_a_record_on_too_few_copies_or_gets_stuck() {
    let mut states = 0;
    let cases: [(u16, u16, usize, &[&[Place]], u8); 6] = [
        (1, 1, 2, &[&[0, 1], &[1]], 1),
        (2, 1, 2, &[&[1, 2]], 1),
        (2, 2, 2, &[&[0, 2]], 0),
        (2, 2, 2, &[&[2, 3]], 0),
        (3, 2, 2, &[&[1, 2], &[1, 3]], 0),
        (3, 3, 3, &[&[0, 1, 3]], 0),
    ];
    for (known, members, copies, wants, lates) in cases {
        states += explore(World { lates, ..World::new(known, members, copies, wants, 1) });
    }
    assert!(states > 1_000, "{states} states");
}

/// Proposed sets count as far as the devices that are left can store them.
struct Stored {
    rules: Rules,
    gone: Vec<Place>,
    commands: VecDeque<Command>,
    number: u64,
}

impl Stored {
    fn devices(&mut self, wanted: &[Place]) {
        let commands = self.rules.devices(wanted.to_vec());
        self.run(commands);
    }

    fn lose(&mut self, place: Place) {
        self.gone.push(place);
        let commands = self.rules.step(Event::Failed(place));
        self.run(commands);
    }

    /// Whether a record that is written now is acknowledged.
    fn acknowledges(&mut self) -> bool {
        self.number += 1;
        for m in self.rules.set.members.clone() {
            let commands = self.rules.step(Event::Durable(m, self.number));
            self.run(commands);
        }
        self.rules.acked == self.number
    }

    fn run(&mut self, commands: Vec<Command>) {
        self.commands.extend(commands);
        while let Some(command) = self.commands.pop_front() {
            let events = match command {
                Command::Propose(set) => {
                    let have: Vec<Place> = set.stores().into_iter().filter(|p| !self.gone.contains(p)).collect();
                    vec![if set.decided_by(&have) { Event::Counts } else { Event::Refused }]
                }
                Command::Fill(p) if self.gone.contains(&p) => vec![Event::Failed(p)],
                Command::Fill(p) => vec![Event::Durable(p, self.number), Event::Filled(p)],
                _ => Vec::new(),
            };
            for event in events {
                let commands = self.rules.step(event);
                self.commands.extend(commands);
            }
        }
    }
}

#[test]
fn as_many_devices_as_there_are_may_go_one_after_another_when_each_is_replaced() {
    let set = Set { epoch: Epoch { start: 1, change: 1 }, known: vec![0, 1, 2], before: vec![], members: vec![0, 1] };
    let mut s = Stored { rules: Rules::new(set, 2, 0, &[]), gone: Vec::new(), commands: VecDeque::new(), number: 0 };
    let mut known = vec![0, 1, 2];
    for n in 0..12 {
        let lost = known.remove(if n == 0 { 1 } else { 0 });
        s.lose(lost);
        assert!(s.acknowledges(), "{lost} is lost: {:?}", s.rules);
        known.push(3 + n);
        s.devices(&known);
        assert!(s.acknowledges() && s.rules.set.members.len() == 2, "{lost} is replaced: {:?}", s.rules);
        assert_eq!(s.rules.set.known.iter().collect::<BTreeSet<_>>(), known.iter().collect());
    }
    // Without those that came, the third would have been the end.
    let set = Set { epoch: Epoch { start: 1, change: 1 }, known: vec![0, 1, 2], before: vec![], members: vec![0, 1] };
    let mut s = Stored { rules: Rules::new(set, 2, 0, &[]), gone: Vec::new(), commands: VecDeque::new(), number: 0 };
    s.lose(1);
    assert!(s.acknowledges());
    s.lose(2);
    assert!(!s.acknowledges());
}

#[test]
fn a_healthy_device_leaves_when_another_has_its_copy() {
    let set = Set { epoch: Epoch { start: 1, change: 1 }, known: vec![0, 1, 2], before: vec![], members: vec![0, 1] };
    let mut r = Rules::new(set, 2, 0, &[]);
    assert_eq!(r.devices(vec![1, 2]), [Command::Fill(2)]);
    let moved = r.step(Event::Filled(2));
    assert!(matches!(moved.as_slice(), [Command::Propose(s)] if s.members == [1, 2] && s.known == [0, 1, 2]), "{moved:?}");
    let left = r.step(Event::Counts);
    assert!(matches!(left.as_slice(), [Command::Drop(0), Command::Propose(s)] if s.known == [1, 2] && s.before == [0, 1, 2]), "{left:?}");
    let last = r.step(Event::Counts);
    assert!(matches!(last.as_slice(), [Command::Propose(s)] if s.known == [1, 2] && s.before.is_empty()), "{last:?}");
    assert_eq!(r.step(Event::Counts), []);
    assert!(r.is_settled());
}

#[test]
fn a_refused_change_of_devices_is_undone_and_the_log_goes_on() {
    let set = Set { epoch: Epoch { start: 1, change: 1 }, known: vec![0, 1], before: vec![], members: vec![0, 1] };
    let mut r = Rules::new(set, 2, 0, &[]);
    let asked = r.devices(vec![0, 2]);
    assert!(matches!(asked.as_slice(), [Command::Propose(s)] if s.known == [0, 1, 2] && s.before == [0, 1]), "{asked:?}");
    let undone = r.step(Event::Refused);
    assert!(matches!(undone.as_slice(), [Command::Propose(s)] if s.known == [0, 1] && s.epoch.change == 3), "{undone:?}");
    assert_eq!(r.step(Event::Counts), []);
    r.step(Event::Durable(0, 1));
    assert_eq!(r.step(Event::Durable(1, 1)), [Command::Ack(1)]);
}

#[test]
fn a_renewed_device_may_hold_a_copy_again_and_stores_the_set_in_force() {
    let set = Set { epoch: Epoch { start: 1, change: 1 }, known: vec![0, 1, 2], before: vec![], members: vec![0, 1] };
    let mut r = Rules::new(set.clone(), 2, 0, &[2]);
    r.step(Event::Failed(1));
    assert_eq!(r.step(Event::Counts), [Command::Drop(1)]);
    let again = |change, members: &[Place]| {
        let epoch = Epoch { start: 1, change };
        Command::Propose(Set { epoch, members: members.to_vec(), ..set.clone() })
    };
    assert_eq!(r.step(Event::Renewed(1)), [again(3, &[0]), Command::Fill(1)]);
    assert_eq!(r.step(Event::Counts), []);
    assert_eq!(r.step(Event::Filled(1)), [again(4, &[0, 1])]);
    assert_eq!(r.step(Event::Counts), []);
    // A spare has its say in what a start may conclude; that nobody can store it harms nothing.
    assert_eq!(r.step(Event::Renewed(2)), [again(5, &[0, 1])]);
    assert_eq!(r.step(Event::Refused), []);
    assert!(r.is_settled());
    r.step(Event::Durable(0, 1));
    assert_eq!(r.step(Event::Durable(1, 1)), [Command::Ack(1)]);
}

#[test]
fn one_copy_acknowledges_alone_and_two_only_together() {
    let set = |n: u16| Set { epoch: Epoch::default(), known: (0..n).collect(), before: vec![], members: (0..n).collect() };
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
    let set = Set { epoch: Epoch { start: 4, change: 1 }, known: vec![0, 1, 2], before: vec![], members: vec![0, 1] };
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
    let set = Set { epoch: Epoch::default(), known: vec![0, 1, 2], before: vec![], members: vec![0, 1, 2] };
    let mut r = Rules::new(set, 3, 0, &[]);
    r.step(Event::Durable(0, 5));
    assert_eq!(r.step(Event::Durable(1, 5)), [Command::Ack(5)]);
    r.step(Event::Durable(2, 3));
    // Two copies stay, and one of them lacks what was acknowledged by the one that failed.
    assert_eq!(r.step(Event::Failed(0)), []);
    assert!(matches!(r.step(Event::Durable(2, 5)).as_slice(), [Command::Propose(s)] if s.members == [1, 2]));
}
