//! The whole table of decisions, row by row, and the table's own invariants under random use.

use super::*;

const ME: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);
const INO: InodeId = InodeId(7);

fn hold(session: SessionId, using: Using) -> Option<Hold> {
    Some(Hold { session, using, stamp: 5 })
}

/// Every row of the table an asker can meet.
fn rows() -> Vec<Row> {
    let holds = [None, hold(ME, Using::Read), hold(ME, Using::Write), hold(OTHER, Using::Read), hold(OTHER, Using::Write)];
    let mut rows = Vec::new();
    for hold in holds {
        for recalling in [false, true] {
            for pending in [0, 1] {
                for proposed in [0, 1] {
                    if recalling && hold.is_none() {
                        continue;
                    }
                    rows.push(Row { hold, recalling, pending, proposed });
                }
            }
        }
    }
    rows
}

const ASKS: [Ask; 4] = [Ask::Look, Ask::Change, Ask::Acquire(Using::Read), Ask::Acquire(Using::Write)];

/// The same table written down the other way round: what the issue asks of each case, in words.
fn expected(row: &Row, caching: bool, ask: Ask, may_grant: bool) -> Decision {
    let mine = row.hold.is_some_and(|h| h.session == ME);
    let foreign = row.hold.filter(|h| h.session != ME);
    if mine {
        // A holder's own calls never recall from itself and never wait.
        return match ask {
            Ask::Change => Decision::Through,
            _ if row.recalling => Decision::Through,
            _ => Decision::Grant,
        };
    }
    if let Some(h) = foreign {
        // A file held for writing is recalled by any foreign use, anything else by a foreign change (or one that announces it).
        let conflict = h.using == Using::Write || matches!(ask, Ask::Change | Ask::Acquire(Using::Write));
        return match (conflict, row.recalling) {
            (true, true) => Decision::Wait,
            (true, false) => Decision::Recall,
            // Until it answered, what it took in meanwhile is seen by nobody.
            (false, true) => Decision::Wait,
            (false, false) => Decision::Through,
        };
    }
    match ask {
        Ask::Change => Decision::Through,
        _ if !caching || !may_grant => Decision::Through,
        // A change that waits for a recall may wait long: nobody waits for it.
        _ if row.pending > 0 => Decision::Through,
        Ask::Look if row.proposed > 0 => Decision::Through,
        Ask::Acquire(_) if row.proposed > 0 => Decision::Wait,
        _ => Decision::Grant,
    }
}

#[test]
fn every_case_of_the_table_is_decided_as_the_contract_says() {
    let mut cases = 0;
    for row in rows() {
        for ask in ASKS {
            for caching in [false, true] {
                for may_grant in [false, true] {
                    let asker = Asker { session: ME, caching };
                    assert_eq!(
                        decide(&row, asker, ask, may_grant),
                        expected(&row, caching, ask, may_grant),
                        "{row:?} {ask:?} caching={caching} may_grant={may_grant}"
                    );
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 36 * 4 * 2 * 2);
}

#[test]
fn no_case_grants_what_another_holds_or_what_is_being_changed() {
    for row in rows() {
        for ask in ASKS {
            for may_grant in [false, true] {
                let d = decide(&row, Asker { session: ME, caching: true }, ask, may_grant);
                let mine = row.hold.is_some_and(|h| h.session == ME);
                if d == Decision::Grant && !mine {
                    assert!(row.hold.is_none() && row.pending == 0 && row.proposed == 0 && may_grant);
                }
                if mine {
                    assert!(!matches!(d, Decision::Recall | Decision::Wait), "a holder never waits for itself");
                }
                if d == Decision::Wait {
                    assert!(row.recalling || row.proposed > 0, "a wait has an end");
                }
            }
        }
    }
}

fn me() -> Asker {
    Asker { session: ME, caching: true }
}
fn other() -> Asker {
    Asker { session: OTHER, caching: true }
}

#[test]
fn an_upgrade_keeps_its_stamp_and_a_new_hold_gets_a_higher_one() {
    let mut t = Table::new(Limits::default());
    let Answer::Excl { stamp } = t.ask(INO, me(), Ask::Look, 0) else { panic!("free") };
    assert_eq!(t.ask(INO, me(), Ask::Acquire(Using::Write), 0), Answer::Excl { stamp });
    assert!(t.hides(INO, OTHER) && !t.hides(INO, ME));
    assert_eq!(t.ask(INO, me(), Ask::Look, 0), Answer::Excl { stamp });
    assert!(t.hides(INO, OTHER), "a look does not weaken a hold");
    assert!(t.release(INO, ME) && !t.release(INO, ME));
    let Answer::Excl { stamp: next } = t.ask(INO, other(), Ask::Look, 0) else { panic!("free") };
    assert!(next > stamp);
}

#[test]
fn a_recall_ends_only_the_hold_it_names() {
    let mut t = Table::new(Limits::default());
    t.ask(INO, me(), Ask::Acquire(Using::Write), 0);
    let Answer::Recall(h) = t.ask(INO, other(), Ask::Look, 0) else { panic!("held for writing") };
    assert_eq!((h.session, t.ask(INO, other(), Ask::Look, 0)), (ME, Answer::Wait));
    assert_eq!(t.ask(INO, me(), Ask::Acquire(Using::Write), 0), Answer::Through, "nothing new under a recall");
    assert!(t.release(INO, ME));
    let Answer::Excl { stamp } = t.ask(INO, other(), Ask::Look, 0) else { panic!("free") };
    assert!(!t.recalled(INO, h.stamp), "the late answer of an ended hold ends nothing else");
    assert_eq!(t.row(INO).hold.map(|h| h.stamp), Some(stamp));
}

#[test]
fn a_reader_waits_for_the_end_of_a_recall_whatever_the_holder_declared() {
    let mut t = Table::new(Limits::default());
    t.ask(INO, me(), Ask::Acquire(Using::Read), 0);
    assert_eq!(t.ask(INO, other(), Ask::Look, 0), Answer::Through);
    assert!(!t.hides(INO, OTHER));
    let Answer::Recall(h) = t.ask(INO, other(), Ask::Change, 0) else { panic!("held") };
    assert!(t.hides(INO, OTHER) && !t.hides(INO, ME));
    assert_eq!(t.ask(INO, other(), Ask::Look, 0), Answer::Wait);
    assert_eq!(t.ask(INO, other(), Ask::Acquire(Using::Read), 0), Answer::Wait);
    assert_eq!(t.ask(INO, me(), Ask::Look, 0), Answer::Through);
    assert!(t.recalled(INO, h.stamp));
    assert!(!t.hides(INO, OTHER) && matches!(t.ask(INO, other(), Ask::Look, 0), Answer::Excl { .. }));
}

#[test]
fn a_change_under_way_keeps_the_inode_free_of_new_grants() {
    let mut t = Table::new(Limits::default());
    t.change_waits(&[INO]);
    assert_eq!(t.ask(INO, me(), Ask::Acquire(Using::Read), 0), Answer::Through);
    t.change_proposed(&[INO]);
    assert_eq!(t.ask(INO, me(), Ask::Look, 0), Answer::Through);
    assert_eq!(t.ask(INO, me(), Ask::Acquire(Using::Read), 0), Answer::Wait);
    t.change_applied(&[INO]);
    assert!(matches!(t.ask(INO, me(), Ask::Acquire(Using::Read), 0), Answer::Excl { .. }));
    assert_eq!(t.rows.len(), 1);
    t.release(INO, ME);
    assert!(t.rows.is_empty(), "a row that says nothing is not kept");
}

#[test]
fn the_third_recall_within_the_window_holds_the_inode_down() {
    let limits = Limits::default();
    let mut t = Table::new(limits);
    let mut now = 0;
    for (a, b) in [(me(), other()), (other(), me()), (me(), other())] {
        assert!(matches!(t.ask(INO, a, Ask::Acquire(Using::Write), now), Answer::Excl { .. }));
        let Answer::Recall(h) = t.ask(INO, b, Ask::Acquire(Using::Write), now) else { panic!("held") };
        t.recalled(INO, h.stamp);
        now += 1000;
    }
    assert_eq!(t.ask(INO, other(), Ask::Acquire(Using::Write), now), Answer::Through);
    now += limits.hold_down_ns;
    assert!(matches!(t.ask(INO, other(), Ask::Acquire(Using::Write), now), Answer::Excl { .. }));
}

#[test]
fn a_full_table_lets_everybody_through_and_forgets_ended_sessions() {
    let mut t = Table::new(Limits { grants_max: 2, ..Limits::default() });
    for i in [3, 1] {
        assert!(matches!(t.ask(InodeId(i), me(), Ask::Look, 0), Answer::Excl { .. }));
    }
    assert_eq!(t.ask(InodeId(9), me(), Ask::Look, 0), Answer::Through);
    assert_eq!((t.held(), t.held_by(ME)), (2, 2));
    assert_eq!(t.end_session(ME), vec![InodeId(1), InodeId(3)]);
    assert_eq!((t.held(), t.held_by(ME)), (0, 0));
    assert!(t.rows.is_empty() && t.held.is_empty());
}

#[test]
fn random_use_keeps_one_holder_and_growing_stamps() {
    for seed in 1..=50u64 {
        let mut rng = seed;
        let mut next = move |n: u64| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            rng % n
        };
        let mut t = Table::new(Limits { grants_max: 3, ..Limits::default() });
        let mut recalls: Vec<(InodeId, Hold)> = Vec::new();
        let mut stamps: HashMap<InodeId, u64> = HashMap::new();
        for step in 0..2000u64 {
            let ino = InodeId(1 + next(4));
            let asker = Asker { session: SessionId(1 + next(3)), caching: next(4) > 0 };
            match next(6) {
                0..=3 => {
                    let before = t.row(ino).hold;
                    match t.ask(ino, asker, ASKS[next(4) as usize], step * 10_000_000) {
                        Answer::Excl { stamp } => {
                            let kept = before.is_some_and(|h| h.session == asker.session && h.stamp == stamp);
                            assert!(kept || (before.is_none() && stamp > stamps.get(&ino).copied().unwrap_or(0)), "seed {seed}");
                            stamps.insert(ino, stamp);
                        }
                        Answer::Recall(h) => recalls.push((ino, h)),
                        Answer::Through | Answer::Wait => {}
                    }
                }
                4 => {
                    if !recalls.is_empty() {
                        let (ino, h) = recalls.swap_remove(next(recalls.len() as u64) as usize);
                        t.recalled(ino, h.stamp);
                    }
                }
                _ => {
                    t.release(ino, asker.session);
                }
            }
            assert!(t.held() <= 3);
            assert_eq!(t.held(), t.rows.values().filter(|r| r.hold.is_some()).count(), "seed {seed}");
            assert_eq!(t.held(), t.held.values().sum::<usize>());
        }
    }
}
