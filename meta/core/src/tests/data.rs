//! Publish, Truncate, orphans, stripes.

use super::world::{World, name};
use crate::read;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

#[test]
fn later_extents_lie_over_earlier_ones() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let a = w.write(f, 0, 100);
    let b = w.write(f, 30, 20);
    assert_eq!(w.map(f), [(0, 30, a, 0), (30, 20, b, 0), (50, 50, a, 50)]);
    let attr = w.attr(f);
    assert_eq!((attr.size, attr.mapped, attr.number), (100, 100, 2));
    let stats = w.stats();
    assert_eq!((stats.stripes, stats.bytes, stats.live), (2, 120, 100));
    let c = w.write(f, 0, 100);
    assert_eq!(w.map(f), [(0, 100, c, 0)]);
    assert_eq!(w.retired(), [a, b]);
    w.serve(Command::ForgetStripes { stripes: vec![a, b, a, c] });
    assert!(w.retired().is_empty());
    assert_eq!(w.map(f).len(), 1);
}

#[test]
fn extents_are_cut_at_chunk_borders_and_joined_within() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let s = w.write(f, 3 * MIB, 2 << 20);
    assert_eq!(w.map(f), [(3 * MIB, 1 << 20, s, 0), (4 * MIB, 1 << 20, s, 1 << 20)]);
    let only_second = read::extents(&w.kv, f, 1..2, &|_| None).unwrap().unwrap();
    assert_eq!((only_second.len(), only_second[0].offset), (1, 4 * MIB));
    let g = w.file(w.tree.root, "g");
    let mut p = w.publish(g, &[(0, 200)]);
    let id = p.stripes[0].id;
    // Written as two runs of one stripe: one extent.
    p.extents = vec![
        Extent { offset: 100, len: 100, stripe: id, stripe_offset: 100 },
        Extent { offset: 0, len: 100, stripe: id, stripe_offset: 0 },
    ];
    w.attr_of(Command::Publish(p));
    assert_eq!(w.map(g), [(0, 200, id, 0)]);
}

#[test]
fn a_publish_out_of_number_is_refused_and_a_failed_one_uses_its_number() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let gap = Publish { number: 2, ..w.publish(f, &[(0, 10)]) };
    w.fails_like(Command::Publish(gap), MetaError::PublishRefused(String::new()));
    assert_eq!(w.attr(f).number, 0);
    let mut foreign = w.publish(f, &[(0, 10)]);
    foreign.extents[0].stripe.counter += 1;
    w.fails_like(Command::Publish(foreign), MetaError::PublishRefused(String::new()));
    assert_eq!((w.attr(f).number, w.attr(f).size), (1, 0));
    let repeat = Publish { number: 1, ..w.publish(f, &[(0, 10)]) };
    w.fails_like(Command::Publish(repeat), MetaError::PublishRefused(String::new()));
    w.write(f, 0, 10);
    assert_eq!(w.attr(f).number, 2);
    w.fails_like(Command::Truncate { ino: f, number: 2, size: 0, mtime: 0 }, MetaError::PublishRefused(String::new()));
    w.fails(Command::Truncate { ino: f, number: 3, size: u64::MAX, mtime: 0 }, MetaError::FileTooLarge);
    assert_eq!((w.attr(f).number, w.attr(f).size), (3, 10));
    let huge = Publish { size: u64::MAX, ..w.publish(f, &[]) };
    w.fails(Command::Publish(huge), MetaError::FileTooLarge);
    let empty = w.publish(f, &[]);
    w.fails(Command::Publish(Publish { ino: InodeId(1 << 40), ..empty.clone() }), MetaError::Stale);
    w.fails(Command::Publish(Publish { ino: w.tree.root, ..empty }), MetaError::IsDir);
}

#[test]
fn a_publish_takes_only_unused_stripes_of_its_own_session() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let first = w.publish(f, &[(0, 10)]);
    w.attr_of(Command::Publish(first.clone()));
    // Again, though retired and forgotten since.
    w.truncate(f, 0);
    w.serve(Command::ForgetStripes { stripes: vec![first.stripes[0].id] });
    let again = Publish { number: 3, ..first };
    w.fails_like(Command::Publish(again), MetaError::PublishRefused(String::new()));
    let mine = w.publish(f, &[(0, 10)]);
    w.open();
    w.fails_like(Command::Publish(mine), MetaError::PublishRefused(String::new()));
    for spoil in [
        |s: &mut StripeMeta| s.len = 0,
        |s: &mut StripeMeta| s.len = 5,
        |s: &mut StripeMeta| s.missing = 2,
        |s: &mut StripeMeta| s.osds.clear(),
        |s: &mut StripeMeta| s.id.counter += 100_000,
    ] {
        let mut p = w.publish(f, &[(0, 10)]);
        spoil(Arc::make_mut(&mut p.stripes[0]));
        w.fails_like(Command::Publish(p), MetaError::PublishRefused(String::new()));
    }
    let mut beyond = w.publish(f, &[(0, 10)]);
    beyond.size = 9;
    w.fails_like(Command::Publish(beyond), MetaError::PublishRefused(String::new()));
    assert!(w.map(f).is_empty());
}

#[test]
fn a_stripe_that_nothing_refers_to_is_retired_at_once() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let mut p = w.publish(f, &[(0, 10), (0, 10), (20, 10)]);
    p.extents.pop();
    let ids: Vec<StripeId> = p.stripes.iter().map(|s| s.id).collect();
    w.attr_of(Command::Publish(p));
    assert_eq!(w.map(f), [(0, 10, ids[1], 0)]);
    assert_eq!(w.retired(), [ids[0], ids[2]]);
}

#[test]
fn a_publish_never_shrinks_and_clears_suid() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    w.write(f, 0, 100);
    w.attr_of(Command::SetAttr { ino: f, change: AttrChange { mode: Some(0o6755), ..Default::default() } });
    let p = Publish { size: 5, mtime: 7, clear_suid: true, ..w.publish(f, &[]) };
    let attr = w.attr_of(Command::Publish(p));
    assert_eq!((attr.size, attr.mode, attr.mtime), (100, 0o755, 7));
    w.attr_of(Command::SetAttr { ino: f, change: AttrChange { mode: Some(0o6744), ..Default::default() } });
    let p = Publish { clear_suid: true, ..w.publish(f, &[]) };
    assert_eq!(w.attr_of(Command::Publish(p)).mode, 0o2744);
}

#[test]
fn a_fragmented_chunk_changes_its_form_and_not_its_data() {
    let mut w = World::new();
    w.checked = false;
    let f = w.file(w.tree.root, "f");
    let base = w.write(f, 0, 4 << 20);
    let mut want = Vec::new();
    let mut at = 0u64;
    for i in 0..200u64 {
        let offset = i * 20_480;
        let id = w.write(f, offset, 4096);
        if at < offset {
            want.push((at, (offset - at) as u32, base, at as u32));
        }
        want.push((offset, 4096, id, 0));
        at = offset + 4096;
    }
    want.push((at, (4 * MIB - at) as u32, base, at as u32));
    assert_eq!(w.map(f), want);
    assert!(crate::check(&w.kv).is_empty());
    // One write in the split form rewrites one block.
    let biggest = w.kv.0.values().map(|v| v.len()).max().unwrap();
    assert!(biggest < 1500, "{biggest}");
    // And it goes back to one record once it has half the fragments that changed its form.
    let split = |w: &World| w.kv.0.keys().filter(|k| k[0] == crate::keys::CHUNK && k.len() == 14).count();
    assert!(split(&w) > 10);
    let calm = w.write(f, 0, 3 << 20);
    assert!(split(&w) > 10, "a hundred fragments are left");
    let calmer = w.write(f, 3 << 20, 700 << 10);
    assert_eq!(split(&w), 0);
    let end = (3 << 20) + (700 << 10);
    let rest: Vec<_> = w.map(f).into_iter().filter(|e| e.0 >= end).collect();
    assert_eq!(w.map(f)[..2], [(0, 3 << 20, calm, 0), (3 << 20, 700 << 10, calmer, 0)]);
    assert!(rest.len() > 20 && rest[1..] == want[want.len() - rest.len() + 1..]);
    assert!(crate::check(&w.kv).is_empty());
    for i in 0..200u64 {
        w.write(f, i * 20_480, 4096);
    }
    assert!(split(&w) > 10);
    want = w.map(f);
    w.truncate(f, 100_000);
    want.retain(|e| e.0 < 100_000);
    want.last_mut().unwrap().1 = (100_000 - want.last().unwrap().0) as u32;
    assert_eq!(w.map(f), want);
    assert!(crate::check(&w.kv).is_empty());
    // A write of the whole chunk makes it one record again.
    let whole = w.write(f, 0, 4 << 20);
    assert_eq!(w.map(f), [(0, 4 << 20, whole, 0)]);
    assert!(crate::check(&w.kv).is_empty());
    assert_eq!(w.stats().stripes, 1);
}

#[test]
fn truncate_down_then_up_reads_zeroes() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let s = w.write(f, 0, 1000);
    let attr = w.truncate(f, 400);
    assert_eq!((attr.size, attr.mapped, attr.number), (400, 400, 2));
    w.truncate(f, 1000);
    assert_eq!(w.map(f), [(0, 400, s, 0)]);
    w.truncate(f, 0);
    assert!(w.map(f).is_empty());
    assert_eq!(w.retired(), [s]);
}

#[test]
fn a_long_tail_is_cut_at_once_and_freed_later() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    for chunk in 0..100 {
        w.write(f, chunk * 4 * MIB, 1000);
    }
    let live = w.stats().live;
    let attr = w.truncate(f, 10 * 4 * MIB + 500);
    assert!(attr.mapped >= 10_500, "what is left is counted");
    assert_eq!(live - w.stats().live, 500 + 16 * 1000, "the cut chunk and sixteen behind it");
    assert_eq!(w.orphans().len(), 1, "a hidden orphan stands for the rest");
    assert_eq!(w.map(f).len(), 11);
    // Growing does not bring it back, and a write into it starts from nothing.
    w.truncate(f, 400 * MIB);
    assert_eq!(w.map(f).len(), 11);
    let s = w.write(f, 60 * 4 * MIB + 100, 50);
    let map = w.map(f);
    assert_eq!((map.len(), map[11]), (12, (60 * 4 * MIB + 100, 50, s, 0)));
    let commands = w.reap_all(10);
    assert!(commands > 5, "{commands}");
    assert_eq!(w.map(f), map);
    let attr = w.attr(f);
    assert_eq!((attr.mapped, w.stats().live), (10_550, 10_550));
    assert!(w.orphans().is_empty());
}

#[test]
fn cuts_lie_behind_one_another_and_are_paid_off() {
    let mut w = World::new();
    w.checked = false;
    let f = w.file(w.tree.root, "f");
    for chunk in 0..300 {
        w.write(f, chunk * 4 * MIB, 10);
    }
    w.truncate(f, 0);
    for round in 1..60 {
        for chunk in 0..25 {
            w.write(f, (round * 3 + chunk) * 4 * MIB, 10);
        }
        let mapped = w.map(f).len();
        w.truncate(f, (round * 3 + 2) * 4 * MIB);
        assert!(w.map(f).len() < mapped);
        let cuts = dir_cuts(&w, f);
        assert!(cuts <= 10, "{cuts} after {round} rounds");
        let complaints = crate::check(&w.kv);
        assert!(complaints.is_empty(), "{complaints:?}");
    }
    w.reap_all(7);
    assert!(crate::check(&w.kv).is_empty());
    assert_eq!(w.attr(f).mapped, w.map(f).len() as u64 * 10);
}

fn dir_cuts(w: &World, f: InodeId) -> usize {
    crate::dir::inode(&w.kv, f).unwrap().cuts().len()
}

#[test]
fn unlinking_a_big_file_is_one_step_and_reaping_it_many() {
    let mut w = World::new();
    let root = w.tree.root;
    let f = w.file(root, "f");
    for chunk in 0..100 {
        w.write(f, chunk * 4 * MIB, 1000);
    }
    w.truncate(f, 50 * 4 * MIB);
    w.run(Command::Unlink { dir: root, name: name("f") });
    assert_eq!(w.stats().stripes, 84);
    // Still open somewhere: it can be read and written.
    w.write(f, 0, 10);
    assert_eq!(w.map(f).len(), 51);
    assert_eq!(w.serve(Command::ReapOrphan { ino: f, chunks_max: 10 }), Reply::Reaped { done: false });
    assert_eq!(read::getattr(&w.kv, f).unwrap(), Err(MetaError::Stale));
    let stale = Command::Truncate { ino: f, number: 103, size: 0, mtime: 0 };
    w.fails(stale, MetaError::Stale);
    w.reap_all(10);
    let stats = w.stats();
    assert_eq!((stats.inodes, stats.stripes, stats.live, stats.retired), (1, 0, 0, 101));
    assert_eq!(w.serve(Command::ReapOrphan { ino: f, chunks_max: 10 }), Reply::Reaped { done: true });
    let page = read::retired(&w.kv, Some(w.retired()[49]), 10).unwrap().unwrap();
    assert_eq!(page[0].id, w.retired()[50]);
}

#[test]
fn repair_swaps_a_stripe_only_if_it_is_still_the_same() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let mut p = w.publish(f, &[(0, 10)]);
    let stripe = Arc::make_mut(&mut p.stripes[0]);
    (stripe.code, stripe.missing) = (Code::new(1, 2), 0b100);
    stripe.osds = [OsdId(1), OsdId(2), OsdId(3)].into_iter().collect();
    let old = p.stripes[0].clone();
    w.attr_of(Command::Publish(p));
    let queue = |w: &World| read::missing(&w.kv, None, 10).unwrap().unwrap();
    assert_eq!(queue(&w), std::slice::from_ref(&old));
    let mut new = (*old).clone();
    (new.missing, new.osds[2]) = (0, OsdId(9));
    let new = Arc::new(new);
    let swap = |old: &Arc<StripeMeta>, new: &Arc<StripeMeta>| Command::SwapStripe { old: old.clone(), new: new.clone() };
    assert_eq!(w.serve(swap(&new, &old)), Reply::Swapped { swapped: false });
    assert_eq!(w.serve(swap(&old, &new)), Reply::Swapped { swapped: true });
    assert_eq!(w.serve(swap(&old, &new)), Reply::Swapped { swapped: false });
    assert!(queue(&w).is_empty());
    assert_eq!(w.extents(f)[0].stripe, new);
    assert_eq!(w.serve(swap(&new, &old)), Reply::Swapped { swapped: true });
    w.truncate(f, 0);
    assert!(queue(&w).is_empty());
    assert_eq!(w.serve(swap(&old, &new)), Reply::Swapped { swapped: false });
}

#[test]
fn stripes_are_live_while_referred_to_or_still_publishable() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let used = w.write(f, 0, 10);
    let gone = w.write(f, 0, 5);
    w.truncate(f, 0);
    let kept = w.write(f, 0, 10);
    let open = w.stripe(1).id;
    let never = StripeId { counter: 1 << 40, ..open };
    let live = |w: &World| read::stripes_live(&w.kv, &[used, gone, kept, open, never]).unwrap().unwrap();
    assert_eq!(live(&w), [true, true, true, true, false], "readers may still have the old map");
    assert_eq!(w.serve(Command::ForgetStripes { stripes: vec![used, gone] }), Reply::Done);
    assert_eq!(live(&w), [false, false, true, true, false]);
    w.run(Command::CloseSession);
    assert_eq!(live(&w), [false, false, true, false, false]);
}

#[test]
fn ranges_are_closed_while_no_session_may_publish_in_them_and_few_however_many_sessions_end() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let kept = w.write(f, 0, 10);
    let closed = |w: &World| read::closed_ranges(&w.kv).unwrap().unwrap().1;
    let covers = |w: &World, id: StripeId| closed(w).iter().any(|r| r.contains(id));
    assert!(!covers(&w, kept), "its session lives and has ids left in the block");
    w.run(Command::CloseSession);
    assert!(covers(&w, kept));
    assert_eq!(closed(&w).len(), 1);
    let range = closed(&w)[0];
    assert_eq!(read::held_in(&w.kv, range).unwrap().unwrap(), [kept]);
    for _ in 0..20 {
        w.open();
        w.stripe(1);
        assert_eq!(closed(&w).len(), 1, "the ranges of those that ended are one");
        w.run(Command::CloseSession);
    }
}
