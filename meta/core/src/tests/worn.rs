//! Worn stripes: what lives of them moves to a new one, run by run, and only where the files still say the same.

use super::world::{World, name};
use crate::read::{self, Cursor, Victims, Worn, WornBounds};
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;

const ALL: WornBounds = WornBounds { bytes_max: 4 << 20, runs_max: 1024, pieces_max: 4096 };

/// The deadest stripes whose living bytes fit, two records at a time.
fn choose(w: &World, live_max: u64, live_below: u32) -> Victims {
    let (mut victims, mut after) = (Victims::new(live_max, live_below), None);
    while let Some(next) = read::choose_worn(&w.kv, after, 2, &mut victims).unwrap().unwrap() {
        assert!(after < Some(next));
        after = Some(next);
    }
    victims
}

fn gather(w: &World, from: Cursor, bounds: WornBounds) -> Worn {
    read::gather_worn(&w.kv, from, bounds, &choose(w, u64::MAX, 500).ids()).unwrap().unwrap()
}

#[test]
fn what_lives_of_a_worn_stripe_moves_and_the_stripe_ends() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let old = w.write(f, 0, 1 << 20);
    assert_eq!((w.stats().dead, gather(&w, Cursor::default(), ALL)), (0, Worn::none()));
    w.write(f, 4096, 700 << 10);
    let before = w.map(f);
    assert_eq!(w.stats().dead, 700 << 10);
    let found = gather(&w, Cursor::default(), ALL);
    assert_eq!((found.bucket, found.code, found.next), (w.tree.id, Some(Code::new(4, 2)), None));
    assert_eq!(found.bytes, (1 << 20) - (700 << 10));
    let r = w.relocate_of(&found);
    let new = r.stripe.id;
    let attr = w.attr(f);
    assert_eq!(w.run(Command::Relocate(r)), Reply::Packed { moved: 2 });
    assert_eq!((w.retired(), w.stats().dead, w.attr(f)), (vec![old], 0, attr));
    let after = w.map(f);
    assert_eq!(after, [(0, 4096, new, 0), before[1], ((4 << 10) + (700 << 10), before[2].1, new, 4096)]);
}

#[test]
fn the_deadest_stripes_are_chosen_as_far_as_what_lives_of_them_fits() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    // Of each but the last a part is overwritten, and what lives of one lies in pieces all over it.
    let old: Vec<_> = (0..5).map(|n| w.write(f, n << 20, 1 << 20)).collect();
    for (n, dead) in [300, 600, 500, 900].into_iter().enumerate() {
        w.write(f, ((n as u64) << 20) + (60 << 10), dead << 10);
    }
    let ids = |kib: u64, below| choose(&w, kib << 10, below).ids().into_iter().collect::<Vec<_>>();
    assert_eq!(ids(10_000, 1000), old[..4]);
    assert_eq!(ids(10_000, 600), old[1..4]);
    assert_eq!(ids(124 + 424, 1000), [old[1], old[3]]);
    assert_eq!(ids(124 + 423, 1000), [old[3]]);
    assert_eq!(ids(123, 1000), []);
    assert_eq!(choose(&w, 600 << 10, 1000).live(), (124 + 424) << 10);
}

#[test]
fn a_write_a_truncation_and_a_deletion_on_the_way_win() {
    let mut w = World::new();
    let root = w.tree.root;
    let files: Vec<_> = ["a", "b", "c"].into_iter().map(|n| w.file(root, n)).collect();
    for f in &files {
        w.write(*f, 0, 1 << 20);
        w.write(*f, 0, 900 << 10);
    }
    let found = gather(&w, Cursor::default(), ALL);
    assert_eq!(found.runs.len(), 3);
    let r = w.relocate_of(&found);
    let new = r.stripe.id;
    // The middle of the run is written, another is cut in half, the last goes.
    let young = w.write(files[0], 950 << 10, 4096);
    w.truncate(files[1], 960 << 10);
    w.run(Command::Unlink { dir: root, name: name("c") });
    w.reap_all(10);
    assert_eq!(w.run(Command::Relocate(r)), Reply::Packed { moved: 2 });
    let ids: Vec<_> = w.map(files[0]).iter().map(|m| m.2).collect();
    assert_eq!(ids[1..], [new, young, new]);
    assert_eq!(w.map(files[1])[1], (900 << 10, 60 << 10, new, 124 << 10));
    // Nothing is moved a second time: not one byte is where it was copied from.
    let again = Relocate { bucket: found.bucket, stripe: w.stripe(found.bytes as u32), runs: w.relocate_of(&found).runs };
    let unused = again.stripe.id;
    assert_eq!(w.run(Command::Relocate(again)), Reply::Packed { moved: 0 });
    assert!(w.retired().contains(&unused), "a copy that nothing needs goes");
}

#[test]
fn a_pass_goes_on_where_it_stopped_and_ends() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    for n in 0..6 {
        w.write(f, n << 22, 4 << 20);
        w.write(f, n << 22, 3 << 20);
    }
    // A stripe's worth at a time, and no more than two maps looked at in one call.
    let bounds = WornBounds { bytes_max: (2 << 20) + 5, pieces_max: 3, ..ALL };
    let (mut at, mut bytes, mut calls) = (Cursor::default(), 0, 0);
    loop {
        let found = gather(&w, at, bounds);
        bytes += found.bytes;
        calls += 1;
        if !found.runs.is_empty() {
            let r = w.relocate_of(&found);
            assert!(matches!(w.run(Command::Relocate(r)), Reply::Packed { moved } if moved > 0));
        }
        match found.next {
            Some(next) => at = next,
            None => break,
        }
        assert!(calls < 100);
    }
    assert_eq!((bytes, w.stats().dead, w.retired().len()), (6 << 20, 0, 6));
}

#[test]
fn members_of_packs_are_worn_as_far_as_they_and_their_packs_are() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let members: Vec<_> = (0..4).map(|n| w.write_inline(f, n * 16384, 16384)).collect();
    let found = read::gather_staged(&w.kv, read::PackBounds { bytes_max: 4 << 20, members_max: 512 }).unwrap().unwrap().unwrap();
    assert_eq!(choose(&w, u64::MAX, 1001).ids().len(), 0, "staged bytes wait for their pack");
    let p = w.pack_of(&found);
    w.run(Command::Pack(p));
    // Each member is overwritten but for a quarter: the pack counts them whole.
    for n in 0..4 {
        w.write_inline(f, n * 16384, 12288);
    }
    assert_eq!(w.stats().sparse, 0);
    let found = gather(&w, Cursor::default(), ALL);
    assert_eq!(
        found.runs.iter().map(|r| (r.run.from, r.run.len)).collect::<Vec<_>>(),
        members.iter().map(|m| (*m, 4096)).collect::<Vec<_>>()
    );
    let r = w.relocate_of(&found);
    assert_eq!(w.run(Command::Relocate(r)), Reply::Packed { moved: 4 });
    assert_eq!((w.stats().packs, w.stats().packed), (0, 0));
}

#[test]
fn runs_that_contradict_themselves_are_refused() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let from = w.write(f, 0, 1 << 20);
    let stripe = w.stripe(8192);
    let run = Run { ino: f, offset: 0, len: 4096, from, from_at: 0, at: 0 };
    let bucket = w.tree.id;
    let of = |runs: Vec<Run>| Command::Relocate(Relocate { bucket, stripe: stripe.clone(), runs });
    for bad in [
        vec![],
        vec![run, Run { offset: 8192, from_at: 8192, ..run }],
        vec![Run { at: 8000, ..run }],
        vec![Run { len: 0, ..run }],
        vec![Run { offset: CHUNK_BYTES - 10, ..run }],
        vec![Run { offset: u64::MAX - 10, ..run }],
        vec![run, Run { at: 4096, ..run }],
    ] {
        w.fails_like(of(bad), MetaError::Invalid(String::new()));
    }
    assert_eq!(w.run(of(vec![run])), Reply::Packed { moved: 1 });
}
