//! Inline stripes, packs, and how stripes move between them.

use super::world::{World, name};
use crate::limits::INLINE_BYTES_MAX;
use crate::read::{self, PackBounds};
use bytes::Bytes;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;

const BOUNDS: PackBounds = PackBounds { bytes_max: 4 << 20, members_max: 512 };

fn staged(w: &World) -> read::Gathered {
    read::gather_staged(&w.kv, BOUNDS).unwrap().unwrap().expect("something is staged")
}

/// Packs what is gathered; the pack's id.
fn commit(w: &mut World, found: &read::Gathered) -> StripeId {
    let p = w.pack_of(found);
    let id = p.stripe.id;
    assert_eq!(w.run(Command::Pack(p)), Reply::Packed { moved: found.places.len() as u32 });
    id
}

#[test]
fn inline_bytes_are_read_from_memory_until_they_are_packed_and_then_from_the_pack() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let (a, b) = (w.write_inline(f, 0, 4096), w.write_inline(f, 8192, 100));
    let stats = w.stats();
    assert_eq!((stats.stripes, stats.staged, stats.staged_bytes, stats.live), (0, 2, 4196, 4196));
    let map = w.extents(f);
    assert_eq!(map[1].inline.as_deref(), Some(&*super::world::inline_bytes(b, 100)));
    assert!(map[1].stripe.is_bare() && map[1].stripe.len == 100);
    let found = staged(&w);
    assert_eq!((found.bucket, found.code, found.bytes), (w.tree.id, Some(Code::new(4, 2)), 4196));
    let pack = commit(&mut w, &found);
    assert_eq!(w.map(f), [(0, 4096, pack, 0), (8192, 100, pack, 4096)]);
    assert!(w.extents(f).iter().all(|e| e.inline.is_none() && e.stripe.id == pack));
    let stats = w.stats();
    assert_eq!((stats.stripes, stats.packs, stats.pack_bytes, stats.packed, stats.staged), (1, 1, 4196, 2, 0));
    // They have no shards of their own; the pack has.
    assert_eq!(read::stripes_live(&w.kv, &[a, b, pack]).unwrap().unwrap(), [false, false, true]);
}

#[test]
fn a_staged_stripe_that_is_overwritten_or_cut_off_costs_nothing_more() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    for _ in 0..5 {
        w.write_inline(f, 0, 4096);
    }
    assert_eq!((w.staged.len(), w.stats().retired), (1, 0));
    let found = staged(&w);
    w.truncate(f, 0);
    assert_eq!((w.staged.len(), w.stats().staged_bytes), (0, 0));
    // The packer was under way with it: its pack has nothing to hold and goes.
    let p = w.pack_of(&found);
    let pack = p.stripe.id;
    assert_eq!(w.run(Command::Pack(p)), Reply::Packed { moved: 0 });
    assert_eq!(w.retired(), [pack]);
    assert_eq!(w.stats().packs, 0);
}

#[test]
fn a_pack_below_half_is_listed_rewritten_and_without_members_retired() {
    let mut w = World::new();
    let root = w.tree.root;
    let files: Vec<_> = ["a", "b", "c", "d"].into_iter().map(|n| (n, w.file(root, n))).collect();
    for (_, f) in &files {
        w.write_inline(*f, 0, 4096);
    }
    let found = staged(&w);
    let pack = commit(&mut w, &found);
    let sparse = |w: &World| read::gather_sparse(&w.kv, None, BOUNDS).unwrap().unwrap();
    w.truncate(files[0].1, 0);
    w.truncate(files[1].1, 0);
    assert_eq!(sparse(&w), None, "half live is not below half");
    w.truncate(files[2].1, 0);
    let found = sparse(&w).expect("a quarter is live");
    assert_eq!((found.places.len(), w.stats().sparse, found.last), (1, 1, pack));
    assert_eq!(read::gather_sparse(&w.kv, Some(pack), BOUNDS).unwrap().unwrap(), None, "it is the last one");
    let second = commit(&mut w, &found);
    assert_eq!((w.retired(), w.map(files[3].1)), (vec![pack], vec![(0, 4096, second, 0)]));
    assert_eq!(w.stats().sparse, 0);
    w.run(Command::Unlink { dir: root, name: name("d") });
    w.reap_all(10);
    assert_eq!(w.retired(), [pack, second]);
    assert_eq!((w.stats().packed, w.stats().packs, w.stats().stripes), (0, 0, 0));
}

#[test]
fn copies_by_reference_share_one_move() {
    let mut w = World::new();
    let b = w.tree.id;
    let i = w.inline(5000);
    let id = i.stripe;
    let mut p = w.put(b, "first", 0);
    p.size = 5000;
    p.extents.push(Extent { offset: 0, len: 5000, stripe: id, stripe_offset: 0 });
    p.inline.push(i);
    let Reply::Put { attr, .. } = w.run(Command::PutObject(p)) else { panic!() };
    let copy = PutObject { copy_from: Some((attr.ino, attr.change)), ..w.put(b, "second", 0) };
    let Reply::Put { attr: second, .. } = w.run(Command::PutObject(copy)) else { panic!() };
    let found = staged(&w);
    let pack = commit(&mut w, &found);
    assert_eq!((w.map(attr.ino), w.map(second.ino)), (vec![(0, 5000, pack, 0)], vec![(0, 5000, pack, 0)]));
    w.delete(b, "first");
    w.reap_all(10);
    assert!(w.retired().is_empty());
    w.delete(b, "second");
    w.reap_all(10);
    assert_eq!(w.retired(), [pack]);
}

#[test]
fn cold_small_stripes_are_gathered_and_their_copies_retired() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let olds: Vec<_> = (0..3).map(|n| w.write(f, n << 20, 60 << 10)).collect();
    w.write(f, 8 << 20, 65 << 10);
    let until = w.now;
    let young = w.write(f, 12 << 20, 4096);
    assert_eq!(w.stats().small, 4, "what is coded is left alone");
    assert_eq!(read::small_buckets(&w.kv).unwrap().unwrap(), [w.tree.id]);
    let found = read::gather_small(&w.kv, w.tree.id, until, None, BOUNDS).unwrap().unwrap().expect("three are old");
    assert_eq!(
        found.places.iter().map(|p| (p.stripe, p.from)).collect::<Vec<_>>(),
        olds.iter().map(|s| (*s, Home::Shards)).collect::<Vec<_>>()
    );
    assert_eq!(found.last, young, "it was looked at, and is left alone");
    let behind = read::gather_small(&w.kv, w.tree.id, until, Some(olds[0]), BOUNDS).unwrap().unwrap().expect("two are left");
    assert_eq!(behind.places, found.places[1..]);
    let pack = commit(&mut w, &found);
    assert_eq!(w.retired(), olds);
    assert_eq!(w.map(f)[1], (1 << 20, 60 << 10, pack, 60 << 10));
    assert_eq!(w.stats().small, 1);
    // Forgotten after they were deleted, they are found all the same.
    w.serve(Command::ForgetStripes { stripes: olds });
    w.truncate(f, 1);
    assert_eq!(w.map(f), [(0, 1, pack, 0)]);
}

#[test]
fn staging_again_moves_the_bytes_to_a_later_entry() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let id = w.write_inline(f, 0, 10);
    let first = w.staged[&id].0;
    let inline = vec![Inline { stripe: id, data: w.staged[&id].1.clone() }];
    w.fails(Command::Restage { inline: inline.clone() }, MetaError::NotPermitted);
    assert_eq!(w.serve(Command::Restage { inline: inline.clone() }), Reply::Done);
    assert!(w.staged[&id].0 > first);
    let found = staged(&w);
    commit(&mut w, &found);
    // Packed since: there is nothing to do.
    assert_eq!(w.serve(Command::Restage { inline }), Reply::Done);
    assert!(w.staged.is_empty());
}

#[test]
fn a_command_with_inline_bytes_is_refused_whole_or_not_at_all() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let refused = |e| MetaError::PublishRefused(e);
    let mut p = w.publish(f, &[]);
    let foreign = StripeId { counter: 1 << 40, ..Default::default() };
    p.inline = vec![Inline { stripe: foreign, data: Bytes::from_static(b"x") }];
    w.fails_like(Command::Publish(p.clone()), refused(String::new()));
    p.number += 1;
    p.inline = vec![w.inline(INLINE_BYTES_MAX + 1)];
    w.fails_like(Command::Publish(p.clone()), MetaError::Invalid(String::new()));
    p.number += 1;
    p.inline = vec![w.inline(10)];
    p.extents = vec![Extent { offset: 0, len: 11, stripe: p.inline[0].stripe, stripe_offset: 0 }];
    p.size = 11;
    w.fails_like(Command::Publish(p), refused(String::new()));
    assert!(w.staged.is_empty() && w.stats().staged == 0);
    let overlap = Pack {
        bucket: w.tree.id,
        members: vec![
            PackMember { stripe: foreign, len: 10, at: 0, from: Home::Shards },
            PackMember { stripe: foreign, len: 10, at: 9, from: Home::Shards },
        ],
        stripe: w.stripe(100),
    };
    w.fails_like(Command::Pack(overlap), MetaError::Invalid(String::new()));
}
