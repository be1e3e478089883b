//! Names are linearizable over all doors and over every end of the process: there is one order of all changes of names in which
//! each took effect between its call and its answer, that explains every answer and every audit. What was answered is durable, so
//! an end takes nothing back; what was not answered happened before the end or never.

use crate::history::{Answer, Audit, Event, Life, Op, Ticket};
use crate::plan::PATHS;
use std::collections::{BTreeMap, BTreeSet};

/// An inode, as far as it is known: one whose making nobody heard of is named by its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ino {
    Known(u64),
    Unheard(usize),
}

type Names = [Option<Ino>; PATHS.len()];

/// One possibility: what the names are, and which calls under way have taken effect already.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    names: Names,
    done: BTreeSet<usize>,
}

/// Possibilities at one time at most: beyond it a history is too entangled to be judged, which is an error of the plan.
const STATES_MAX: usize = 50_000;

pub fn check(lives: &[Life], last: &Audit) -> Result<(), String> {
    for (n, life) in lives.iter().enumerate() {
        let after = lives.get(n + 1).map_or(last, |l| &l.begin);
        check_life(life, after).map_err(|why| format!("life {n}: {why}"))?;
    }
    Ok(())
}

fn names_of(audit: &Audit) -> Names {
    std::array::from_fn(|path| audit.names.get(&path).map(|i| Ino::Known(i.0)))
}

fn check_life(life: &Life, after: &Audit) -> Result<(), String> {
    let heard: BTreeSet<u64> = life
        .events
        .iter()
        .filter_map(|e| match (&e.op, e.answer()) {
            (Op::Create { .. }, Some(Answer::Inode(Some(i)))) => Some(i.0),
            (Op::Put { ino, .. }, _) => Some(ino.0),
            _ => None,
        })
        .chain(life.begin.names.values().map(|i| i.0))
        .collect();
    // Calls and answers in order.
    let mut moments: BTreeMap<Ticket, (usize, bool)> = BTreeMap::new();
    for (n, e) in life.events.iter().enumerate().filter(|(_, e)| is_of_names(&e.op)) {
        moments.insert(e.called, (n, false));
        if let Some((t, answer)) = &e.answered
            && !matches!(answer, Answer::Unsure(_))
        {
            moments.insert(*t, (n, true));
        }
    }
    let mut states = BTreeSet::from([State { names: names_of(&life.begin), done: BTreeSet::new() }]);
    let mut under_way: BTreeSet<usize> = BTreeSet::new();
    for (n, answered) in moments.into_values() {
        if !answered {
            under_way.insert(n);
            continue;
        }
        let event = &life.events[n];
        let was = states.clone();
        states = spread(states, &under_way, &life.events, &heard)?;
        states.retain(|s| s.done.contains(&n));
        states = states
            .into_iter()
            .map(|mut s| {
                s.done.remove(&n);
                s
            })
            .collect();
        under_way.remove(&n);
        if states.is_empty() {
            let waiting: Vec<_> = under_way.iter().map(|n| &life.events[*n].op).collect();
            return Err(format!(
                "{:?} at ticket {} of client {} cannot be answered {:?}: names may be {:?}; under way: {waiting:?}",
                event.op,
                event.called,
                event.client,
                event.answer(),
                shown(&was)
            ));
        }
    }
    let ends = spread(states, &under_way, &life.events, &heard)?;
    let found = names_of(after);
    if !ends.iter().any(|s| agrees(&s.names, &found, &heard)) {
        return Err(format!("after {:?} the names are {:?}; they may be {:?}", life.end, after.names, shown(&ends)));
    }
    Ok(())
}

fn shown(states: &BTreeSet<State>) -> Vec<String> {
    let distinct: BTreeSet<&Names> = states.iter().map(|s| &s.names).collect();
    let one = |n: &Names| {
        let there = n.iter().enumerate().filter_map(|(p, i)| Some((PATHS[p], (*i)?)));
        there
            .map(|(p, i)| match i {
                Ino::Known(i) => format!("{p}={i}"),
                Ino::Unheard(e) => format!("{p}=event {e}"),
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    distinct.into_iter().take(6).map(one).collect()
}

fn is_of_names(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Lookup { .. }
            | Op::Put { .. }
            | Op::Delete { .. }
    )
}

fn agrees(names: &Names, found: &Names, heard: &BTreeSet<u64>) -> bool {
    names.iter().zip(found).all(|(a, b)| match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => same(*a, *b, heard),
        _ => false,
    })
}

fn same(a: Ino, b: Ino, heard: &BTreeSet<u64>) -> bool {
    match (a, b) {
        (Ino::Known(a), Ino::Known(b)) => a == b,
        (Ino::Unheard(_), Ino::Known(i)) | (Ino::Known(i), Ino::Unheard(_)) => !heard.contains(&i),
        (Ino::Unheard(a), Ino::Unheard(b)) => a == b,
    }
}

/// Every possibility that calls under way may lead to, each taking effect at most once.
fn spread(from: BTreeSet<State>, under_way: &BTreeSet<usize>, events: &[Event], heard: &BTreeSet<u64>) -> Result<BTreeSet<State>, String> {
    let mut all = from.clone();
    let mut fresh: Vec<State> = from.into_iter().collect();
    while let Some(state) = fresh.pop() {
        for n in under_way.iter().filter(|n| !state.done.contains(n)) {
            let Some(names) = effect(&state.names, *n, &events[*n], heard) else { continue };
            let mut next = State { names, done: state.done.clone() };
            next.done.insert(*n);
            if all.insert(next.clone()) {
                fresh.push(next);
            }
        }
        if all.len() > STATES_MAX {
            return Err(format!("more than {STATES_MAX} possibilities: too many calls at once"));
        }
    }
    Ok(all)
}

/// The names after a call took effect, if its answer (when it had one) allows that it did in this state.
fn effect(names: &Names, number: usize, event: &Event, heard: &BTreeSet<u64>) -> Option<Names> {
    let mut names = *names;
    let answer = match event.answer() {
        Some(Answer::Unsure(_)) => None,
        other => other,
    };
    if matches!(answer, Some(Answer::Refused(_))) {
        return Some(names);
    }
    match &event.op {
        Op::Create { path } => match (names[*path], answer) {
            (Some(_), Some(Answer::Exists)) => Some(names),
            (None, Some(Answer::Inode(Some(i)))) => {
                names[*path] = Some(Ino::Known(i.0));
                Some(names)
            }
            (None, None) => {
                names[*path] = Some(Ino::Unheard(number));
                Some(names)
            }
            _ => None,
        },
        Op::Put { path, ino, .. } => {
            names[*path] = Some(Ino::Known(ino.0));
            matches!(answer, None | Some(Answer::Done)).then_some(names)
        }
        Op::Unlink { path } => match (names[*path].take(), answer) {
            (Some(_), None | Some(Answer::Done)) | (None, Some(Answer::NotFound)) => Some(names),
            _ => None,
        },
        Op::Delete { path } => match (names[*path].take(), answer) {
            (_, None) | (None, Some(Answer::Inode(None) | Answer::NotFound)) => Some(names),
            (Some(was), Some(Answer::Inode(Some(i)))) if same(was, Ino::Known(i.0), heard) => Some(names),
            _ => None,
        },
        // Two names of one inode stay two, says rename(2).
        Op::Rename { from, to } if names[*from].is_some() && names[*from] == names[*to] => {
            matches!(answer, None | Some(Answer::Done)).then_some(names)
        }
        Op::Rename { from, to } => match (names[*from].take(), answer) {
            (Some(moved), None | Some(Answer::Done)) => {
                names[*to] = Some(moved);
                Some(names)
            }
            (None, Some(Answer::NotFound)) => Some(names),
            _ => None,
        },
        Op::Link { ino, to } => {
            let named = names.iter().flatten().any(|n| same(*n, Ino::Known(ino.0), heard));
            match (named, names[*to], answer) {
                (true, None, None | Some(Answer::Done)) => {
                    names[*to] = Some(Ino::Known(ino.0));
                    Some(names)
                }
                (_, Some(_), Some(Answer::Exists)) | (false, _, Some(Answer::NotFound)) => Some(names),
                _ => None,
            }
        }
        Op::Lookup { path } => match (names[*path], answer?) {
            (None, Answer::Inode(None)) => Some(names),
            (Some(is), Answer::Inode(Some(i))) if same(is, Ino::Known(i.0), heard) => {
                // From now on it is known by its number.
                let known = Some(Ino::Known(i.0));
                names.iter_mut().filter(|n| **n == Some(is)).for_each(|n| *n = known);
                Some(names)
            }
            _ => None,
        },
        _ => None,
    }
}
