//! Names, as POSIX has them.

use super::world::{OWNER, World, name};
use crate::limits::LINKS_MAX;
use crate::{dir, read};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::*;

fn rename(w: &mut World, from: (InodeId, &str), to: (InodeId, &str), mode: RenameMode) -> Reply {
    w.run(Command::Rename { from_dir: from.0, from: name(from.1), to_dir: to.0, to: name(to.1), mode })
}

fn replaces(w: &mut World, from: (InodeId, &str), to: (InodeId, &str)) -> Reply {
    rename(w, from, to, RenameMode::Replace)
}

#[test]
fn create_makes_every_kind_and_stamps_the_directory() {
    let mut w = World::new();
    let root = w.tree.root;
    let kinds = [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDev, Kind::BlockDev];
    for (i, kind) in kinds.into_iter().enumerate() {
        let before = w.attr(root);
        let command = w.create(root, &format!("n{i}"), kind);
        let attr = w.attr_of(command);
        let after = w.attr(root);
        assert_eq!((attr.kind, attr.mode, attr.uid, attr.gid, attr.change), (kind, 0o755, 1000, 100, 1));
        assert_eq!(attr.rdev, if matches!(kind, Kind::CharDev | Kind::BlockDev) { 5 } else { 0 });
        assert_eq!(attr.nlink, if kind == Kind::Dir { 2 } else { 1 });
        assert_eq!([attr.atime, attr.mtime, attr.ctime, attr.btime], [w.now; 4]);
        assert_eq!((after.size, after.mtime, after.ctime), (before.size + 1, w.now, w.now));
        assert!(after.change > before.change);
        assert_eq!(after.nlink, before.nlink + (kind == Kind::Dir) as u32);
        assert_eq!(w.look(root, &format!("n{i}")), Some(attr));
    }
    let link = w.look(root, "n2").unwrap();
    assert_eq!(link.size, 10);
    assert_eq!(read::readlink(&w.kv, link.ino).unwrap().unwrap(), "over/there");
    assert!(read::readlink(&w.kv, root).unwrap().is_err());
}

#[test]
fn create_refuses_what_cannot_be() {
    let mut w = World::new();
    let root = w.tree.root;
    let f = w.file(root, "f");
    for bad in ["", ".", "..", "a/b", "a\0b"] {
        let c = w.create(root, bad, Kind::File);
        w.fails_like(c, MetaError::Invalid(String::new()));
    }
    let long = w.create(root, &"x".repeat(256), Kind::File);
    w.fails(long, MetaError::NameTooLong);
    w.file(root, &"x".repeat(255));
    let again = w.create(root, "f", Kind::Dir);
    w.fails(again, MetaError::Exists);
    let below = w.create(f, "x", Kind::File);
    w.fails(below, MetaError::NotDir);
    let nowhere = w.create(InodeId(1 << 40), "x", Kind::File);
    w.fails(nowhere, MetaError::Stale);
    let flat = w.bucket("flat", Shape::Flat);
    let in_flat = w.create(flat.root, "x", Kind::File);
    w.fails(in_flat, MetaError::NotPermitted);
    let d = w.dir(root, "d");
    w.run(Command::Rmdir { dir: root, name: name("d") });
    let in_removed = w.create(d, "x", Kind::File);
    w.fails(in_removed, MetaError::NotFound);
    let mut target = |t: &str| {
        let ino = w.ino();
        w.run(Command::Create { dir: root, name: name("l"), ino, kind: Kind::Symlink, mode: 0o777, owner: OWNER, rdev: 0, target: name(t) })
    };
    assert!(matches!(target(""), Reply::Error(MetaError::Invalid(_))));
    assert_eq!(target(&"t".repeat(4096)), Reply::Error(MetaError::NameTooLong));
    assert!(matches!(target(&"t".repeat(4095)), Reply::Attr(_)));
}

#[test]
fn a_directory_with_sgid_hands_down_its_group() {
    let mut w = World::new();
    let d = w.dir(w.tree.root, "d");
    w.attr_of(Command::SetAttr { ino: d, change: AttrChange { mode: Some(0o2775), gid: Some(77), ..Default::default() } });
    let f = w.file(d, "f");
    let s = w.dir(d, "s");
    assert_eq!((w.attr(f).gid, w.attr(f).mode), (77, 0o755));
    assert_eq!((w.attr(s).gid, w.attr(s).mode), (77, 0o2755));
}

#[test]
fn links_count_and_the_last_one_makes_an_orphan() {
    let mut w = World::new();
    let root = w.tree.root;
    let (f, d) = (w.file(root, "f"), w.dir(root, "d"));
    let attr = w.attr_of(Command::Link { dir: d, name: name("g"), ino: f });
    assert_eq!((attr.nlink, attr.ctime), (2, w.now));
    w.fails(Command::Link { dir: d, name: name("g"), ino: f }, MetaError::Exists);
    w.fails(Command::Link { dir: root, name: name("h"), ino: d }, MetaError::NotPermitted);
    w.fails(Command::Unlink { dir: root, name: name("d") }, MetaError::IsDir);
    w.fails(Command::Unlink { dir: root, name: name("none") }, MetaError::NotFound);
    assert_eq!(w.run(Command::Unlink { dir: root, name: name("f") }), Reply::Unlinked { ino: f, nlink: 1 });
    assert!(w.orphans().is_empty());
    assert_eq!(w.run(Command::Unlink { dir: d, name: name("g") }), Reply::Unlinked { ino: f, nlink: 0 });
    assert_eq!(w.orphans(), [f]);
    w.fails(Command::Link { dir: d, name: name("back"), ino: f }, MetaError::NotFound);
    assert_eq!(w.attr(f).nlink, 0);
    w.reap_all(1);
    assert_eq!(read::getattr(&w.kv, f).unwrap(), Err(MetaError::Stale));
    assert!(w.orphans().is_empty());
}

#[test]
fn an_inode_has_at_most_so_many_links() {
    let mut w = World::new();
    let root = w.tree.root;
    let f = w.file(root, "f");
    w.checked = false;
    let mut inode = dir::inode(&w.kv, f).unwrap();
    inode.nlink = LINKS_MAX;
    crate::Kv::put(&mut w.kv, &crate::keys::inode(f), crate::record::encode(&inode));
    w.fails(Command::Link { dir: root, name: name("g"), ino: f }, MetaError::TooManyLinks);
}

#[test]
fn rmdir_takes_only_empty_directories() {
    let mut w = World::new();
    let root = w.tree.root;
    let d = w.dir(root, "d");
    w.file(d, "f");
    w.fails(Command::Rmdir { dir: root, name: name("d") }, MetaError::NotEmpty);
    w.fails(Command::Rmdir { dir: d, name: name("f") }, MetaError::NotDir);
    w.fails(Command::Rmdir { dir: root, name: name("none") }, MetaError::NotFound);
    w.run(Command::Unlink { dir: d, name: name("f") });
    assert_eq!(w.run(Command::Rmdir { dir: root, name: name("d") }), Reply::Unlinked { ino: d, nlink: 0 });
    assert_eq!(w.attr(root).nlink, 2);
    // Whoever has it open still sees a directory, without names.
    assert_eq!((w.attr(d).nlink, w.names(d).len()), (0, 0));
    w.reap_all(1);
    assert_eq!(w.stats().inodes, 1);
}

#[test]
fn rename_moves_between_directories_and_keeps_the_links_right() {
    let mut w = World::new();
    let root = w.tree.root;
    let (a, b) = (w.dir(root, "a"), w.dir(root, "b"));
    let d = w.dir(a, "d");
    assert_eq!(replaces(&mut w, (a, "d"), (b, "e")), Reply::Renamed { moved: d, replaced: None });
    assert_eq!((w.attr(a).nlink, w.attr(b).nlink, w.attr(a).size, w.attr(b).size), (2, 3, 0, 1));
    assert_eq!(read::parent(&w.kv, d).unwrap().unwrap(), b);
    assert_eq!(w.attr(d).ctime, w.now);
    assert_eq!(replaces(&mut w, (a, "d"), (b, "e")), Reply::Error(MetaError::NotFound));
}

#[test]
fn rename_replaces_by_the_rules() {
    let mut w = World::new();
    let root = w.tree.root;
    let (f, g) = (w.file(root, "f"), w.file(root, "g"));
    let (d, e) = (w.dir(root, "d"), w.dir(root, "e"));
    w.file(e, "full");
    assert_eq!(replaces(&mut w, (root, "f"), (root, "d")), Reply::Error(MetaError::IsDir));
    assert_eq!(replaces(&mut w, (root, "d"), (root, "f")), Reply::Error(MetaError::NotDir));
    assert_eq!(replaces(&mut w, (root, "d"), (root, "e")), Reply::Error(MetaError::NotEmpty));
    assert_eq!(replaces(&mut w, (root, "f"), (root, "g")), Reply::Renamed { moved: f, replaced: Some((g, 0)) });
    assert_eq!(replaces(&mut w, (root, "e"), (root, "d")), Reply::Renamed { moved: e, replaced: Some((d, 0)) });
    assert_eq!(w.names(root), ["g", "d"]);
    assert_eq!((w.attr(root).nlink, w.attr(root).size), (3, 2));
    let linked = w.attr_of(Command::Link { dir: root, name: name("h"), ino: f });
    assert_eq!(linked.nlink, 2);
    // Two links of one inode: nothing happens.
    assert_eq!(replaces(&mut w, (root, "g"), (root, "h")), Reply::Renamed { moved: f, replaced: None });
    assert_eq!(w.names(root), ["g", "d", "h"]);
    assert_eq!(replaces(&mut w, (root, "g"), (root, "g")), Reply::Renamed { moved: f, replaced: None });
    assert_eq!(rename(&mut w, (root, "g"), (root, "h"), RenameMode::NoReplace), Reply::Error(MetaError::Exists));
    assert_eq!(rename(&mut w, (root, "g"), (root, "i"), RenameMode::NoReplace), Reply::Renamed { moved: f, replaced: None });
}

#[test]
fn a_directory_never_moves_below_itself() {
    let mut w = World::new();
    let root = w.tree.root;
    let a = w.dir(root, "a");
    let b = w.dir(a, "b");
    let c = w.dir(b, "c");
    for (dir, n) in [(a, "x"), (b, "x"), (c, "x")] {
        assert!(matches!(replaces(&mut w, (root, "a"), (dir, n)), Reply::Error(MetaError::Invalid(_))));
    }
    assert!(matches!(rename(&mut w, (b, "c"), (root, "a"), RenameMode::Exchange), Reply::Error(MetaError::Invalid(_))));
    assert!(matches!(rename(&mut w, (root, "a"), (b, "c"), RenameMode::Exchange), Reply::Error(MetaError::Invalid(_))));
    // The target is above the source.
    assert_eq!(replaces(&mut w, (b, "c"), (root, "a")), Reply::Error(MetaError::NotEmpty));
}

#[test]
fn exchange_swaps_a_file_and_a_directory() {
    let mut w = World::new();
    let root = w.tree.root;
    let (a, b) = (w.dir(root, "a"), w.dir(root, "b"));
    let (f, d) = (w.file(a, "f"), w.dir(b, "d"));
    w.file(d, "inside");
    assert_eq!(rename(&mut w, (a, "f"), (b, "d"), RenameMode::Exchange), Reply::Renamed { moved: f, replaced: None });
    assert_eq!((w.look(a, "f").unwrap().ino, w.look(b, "d").unwrap().ino), (d, f));
    assert_eq!((w.attr(a).nlink, w.attr(b).nlink), (3, 2));
    assert_eq!(read::parent(&w.kv, d).unwrap().unwrap(), a);
    assert_eq!(rename(&mut w, (a, "f"), (b, "none"), RenameMode::Exchange), Reply::Error(MetaError::NotFound));
    let g = w.file(a, "g");
    assert_eq!(rename(&mut w, (a, "f"), (a, "g"), RenameMode::Exchange), Reply::Renamed { moved: d, replaced: None });
    assert_eq!((w.look(a, "f").unwrap().ino, w.look(a, "g").unwrap().ino), (g, d));
}

#[test]
fn a_name_is_a_file_or_a_directory_never_both() {
    let mut w = World::new();
    let root = w.tree.root;
    let d = w.dir(root, "a");
    assert_eq!(w.look(root, "a").unwrap().ino, d);
    assert_eq!(w.look(root, "a/"), None);
    let c = w.create(root, "a", Kind::File);
    w.fails(c, MetaError::Exists);
}

#[test]
fn cookies_are_stable_and_never_given_twice() {
    let mut w = World::new();
    let root = w.tree.root;
    for n in ["a", "b", "c", "d"] {
        w.file(root, n);
    }
    let all = read::readdir(&w.kv, root, 0, 10).unwrap().unwrap();
    let cookies: Vec<u64> = all.iter().map(|(e, _)| e.cookie).collect();
    assert_eq!(cookies, [3, 4, 5, 6]);
    w.run(Command::Unlink { dir: root, name: name("b") });
    w.run(Command::Unlink { dir: root, name: name("d") });
    w.file(root, "e");
    let rest = read::readdir(&w.kv, root, 3, 1).unwrap().unwrap();
    assert_eq!((rest.len(), &rest[0].0.name[..], rest[0].0.cookie), (1, &b"c"[..], 5));
    let rest = read::readdir(&w.kv, root, 5, 10).unwrap().unwrap();
    assert_eq!((rest.len(), rest[0].0.cookie), (1, 7));
    assert!(read::readdir(&w.kv, root, u64::MAX, 10).unwrap().unwrap().is_empty());
    // A reader that renames as it goes meets each entry once.
    assert!(matches!(replaces(&mut w, (root, "a"), (root, "z")), Reply::Renamed { .. }));
    assert_eq!(w.names(root), ["z", "c", "e"]);
    // A name that is replaced was there all the time.
    assert!(matches!(replaces(&mut w, (root, "z"), (root, "c")), Reply::Renamed { .. }));
    assert_eq!(read::readdir(&w.kv, root, 0, 10).unwrap().unwrap()[0].0.cookie, 5);
}

#[test]
fn set_attr_changes_what_it_names() {
    let mut w = World::new();
    let f = w.file(w.tree.root, "f");
    let before = w.attr(f);
    let same = w.attr_of(Command::SetAttr { ino: f, change: AttrChange::default() });
    assert_eq!(same, before);
    let change = AttrChange { mode: Some(0o104_644), uid: Some(5), atime: Some(-9), mtime: Some(99), ..Default::default() };
    let after = w.attr_of(Command::SetAttr { ino: f, change });
    let want = Attr { mode: 0o4644, uid: 5, atime: -9, mtime: 99, ctime: w.now, change: before.change + 1, ..before };
    assert_eq!(after, want);
    w.fails(Command::SetAttr { ino: InodeId(999_999), change }, MetaError::Stale);
}
