//! What commands touch.

use super::world::{World, name};
use crate::{Touch, TouchKind, touches};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::*;

fn change(ino: InodeId) -> Touch {
    Touch { ino, kind: TouchKind::ChangeFile }
}

fn named(ino: InodeId, n: &str) -> Touch {
    Touch { ino, kind: TouchKind::ChangeDir { name: name(n) } }
}

#[test]
fn names_touch_their_directories_and_what_they_stand_for() {
    let mut w = World::new();
    let root = w.tree.root;
    let (d, f) = (w.dir(root, "d"), w.file(root, "f"));
    let t = |w: &World, c: &Command| touches(&w.kv, c).unwrap();
    let create = w.create(d, "x", Kind::File);
    assert_eq!(t(&w, &create), [named(d, "x")]);
    assert_eq!(t(&w, &Command::Unlink { dir: root, name: name("f") }), [named(root, "f"), change(f)]);
    assert_eq!(t(&w, &Command::Unlink { dir: root, name: name("none") }), [named(root, "none")]);
    assert_eq!(t(&w, &Command::Rmdir { dir: root, name: name("d") }), [named(root, "d"), change(d)]);
    let rename = Command::Rename { from_dir: root, from: name("f"), to_dir: d, to: name("g"), mode: RenameMode::Replace };
    assert_eq!(t(&w, &rename), [named(root, "f"), named(d, "g"), change(f)]);
    let g = w.file(d, "g");
    assert_eq!(t(&w, &rename), [named(root, "f"), named(d, "g"), change(f), change(g)]);
    assert_eq!(t(&w, &Command::Link { dir: d, name: name("h"), ino: f }), [named(d, "h"), change(f)]);
    assert_eq!(t(&w, &Command::Truncate { ino: f, number: 1, size: 0, mtime: 0 }), [change(f)]);
    assert_eq!(t(&w, &Command::GrantInodes { count: 1 }), []);
}

#[test]
fn keys_touch_the_directory_where_a_name_appears() {
    let mut w = World::new();
    let (root, b) = (w.tree.root, w.tree.id);
    let d = w.dir(root, "d");
    let put = w.put(b, "d/x/y", 0);
    assert_eq!(touches(&w.kv, &Command::PutObject(put)).unwrap(), [named(d, "x")]);
    let (f, _) = w.put_ok(b, "d/x/y", 1);
    let x = w.look(d, "x").unwrap().ino;
    let mut put = w.put(b, "d/x/y", 0);
    put.copy_from = Some((InodeId(99), 1));
    let mut want = [named(x, "y"), change(f.ino), Touch { ino: InodeId(99), kind: TouchKind::Read }];
    want.sort_by_key(|t| t.ino);
    assert_eq!(touches(&w.kv, &Command::PutObject(put)).unwrap(), want);
    let delete = Command::DeleteObject { bucket: b, key: name("d/x/y"), condition: Condition::default() };
    let mut want = vec![named(d, "x"), named(x, "y"), change(x), change(f.ino)];
    want.sort_by_key(|t| (t.ino, t.kind != TouchKind::ChangeFile));
    assert_eq!(touches(&w.kv, &delete).unwrap(), want);
}
