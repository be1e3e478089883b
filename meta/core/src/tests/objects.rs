//! Objects under keys, in flat buckets and in trees.

use super::world::{OWNER, World, name};
use crate::read;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::*;

fn conflict(w: &mut World, bucket: holdfast_objstore_proto::BucketId, key: &str) -> String {
    let p = w.put(bucket, key, 0);
    match w.run(Command::PutObject(p)) {
        Reply::Error(MetaError::KeyConflict(why)) => why,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn flat_keys_are_opaque() {
    let mut w = World::new();
    let b = w.bucket("flat", Shape::Flat).id;
    for key in ["a", "a/b", "a//b", "./x", "../..", "a/", "\u{0}"] {
        w.put_ok(b, key, 3);
    }
    for key in ["a", "a/b", "a//b", "./x", "../..", "a/", "\u{0}"] {
        let (attr, info) = w.resolve(b, key).unwrap();
        assert_eq!((attr.size, info.etag), (3, Some(format!("md5-of-{key}-3"))));
    }
    assert_eq!(w.resolve(b, "a//").err(), Some(MetaError::NotFound));
    assert!(w.delete(b, "a/").is_some());
    assert!(w.resolve(b, "a").is_ok() && w.resolve(b, "a/").is_err());
    assert_eq!(w.delete(b, "a/"), None);
    let long = w.put(b, &"k".repeat(1025), 0);
    w.fails(Command::PutObject(long), MetaError::NameTooLong);
    w.put_ok(b, &"k".repeat(1024), 0);
    let none = w.put(b, "", 0);
    w.fails_like(Command::PutObject(none), MetaError::Invalid(String::new()));
}

#[test]
fn a_put_in_a_tree_is_a_file_at_that_path() {
    let mut w = World::new();
    let (b, root) = (w.tree.id, w.tree.root);
    let (attr, replaced) = w.put_ok(b, "a/b/c", 100);
    assert_eq!(replaced, None);
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.size, attr.mapped), (0o644, 1000, 100, 100, 100));
    let a = w.look(root, "a").unwrap();
    assert_eq!((a.kind, a.mode, a.uid, a.nlink), (Kind::Dir, 0o755, 1000, 3));
    let b_dir = w.look(a.ino, "b").unwrap();
    assert_eq!(w.look(b_dir.ino, "c"), Some(attr));
    // The reverse: a file of the mount is an object.
    let f = w.file(root, "f");
    w.write(f, 0, 10);
    let (attr, info) = w.resolve(b, "f").unwrap();
    assert_eq!((attr.ino, attr.size), (f, 10));
    assert_eq!(info.etag, Some(format!("{:016x}-2", f.0)));
    assert_eq!(w.resolve(b, "a").err(), Some(MetaError::NotFound));
    assert_eq!(w.resolve(b, "a/").err(), Some(MetaError::NotFound));
}

#[test]
fn keys_that_cannot_be_paths_conflict() {
    let mut w = World::new();
    let b = w.tree.id;
    w.put_ok(b, "file", 1);
    w.dir(w.tree.root, "dir");
    w.make(w.tree.root, "link", Kind::Symlink);
    for (key, why) in [
        ("a//b", "empty segment"),
        ("/a", "empty segment"),
        ("/", "empty segment"),
        ("a//", "empty segment"),
        ("./x", "'.'"),
        ("a/../b", "'..'"),
        ("file/x", "'file' is not a directory"),
        ("file/x/y", "'file' is not a directory"),
        ("file/", "is a file"),
        ("dir", "is a directory"),
        ("link", "symbolic link"),
        ("link/x", "'link' is not a directory"),
        ("a\0b", "NUL"),
    ] {
        let said = conflict(&mut w, b, key);
        assert!(said.contains(why), "{key}: {said}");
    }
    assert!(conflict(&mut w, b, &format!("x/{}/y", "s".repeat(256))).contains("255"));
    let data = w.put(b, "new/", 5);
    w.fails_like(Command::PutObject(data), MetaError::KeyConflict(String::new()));
    // None of it left anything behind.
    assert_eq!(w.names(w.tree.root), ["file", "dir", "link"]);
}

#[test]
fn a_put_over_a_file_keeps_mode_and_owner_and_breaks_links() {
    let mut w = World::new();
    let (b, root) = (w.tree.id, w.tree.root);
    let f = w.file(root, "f");
    w.write(f, 0, 50);
    w.attr_of(Command::SetAttr { ino: f, change: AttrChange { mode: Some(0o640), uid: Some(7), gid: Some(8), ..Default::default() } });
    w.attr_of(Command::Link { dir: root, name: name("g"), ino: f });
    let cookie = read::readdir(&w.kv, root, 0, 1).unwrap().unwrap()[0].0.cookie;
    let (attr, replaced) = w.put_ok(b, "f", 20);
    assert_eq!(replaced, Some(f));
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.nlink), (0o640, 7, 8, 1));
    assert_eq!(w.look(root, "g").map(|a| (a.ino, a.nlink)), Some((f, 1)));
    assert_eq!(read::readdir(&w.kv, root, 0, 1).unwrap().unwrap()[0].0.cookie, cookie);
    let (_, replaced) = w.put_ok(b, "g", 20);
    assert_eq!((replaced, w.orphans()), (Some(f), vec![f]));
}

#[test]
fn conditions_are_checked_in_the_commit() {
    let mut w = World::new();
    let b = w.tree.id;
    let mut put = |key: &str, condition: Condition| {
        let p = PutObject { condition, ..w.put(b, key, if key.ends_with('/') { 0 } else { 1 }) };
        match w.run(Command::PutObject(p)) {
            Reply::Put { etag, .. } => Ok(etag),
            Reply::Error(e) => Err(e),
            other => panic!("{other:?}"),
        }
    };
    let absent = Condition { absent: true, etag: None };
    let etag = |e: &str| Condition { absent: false, etag: Some(e.into()) };
    assert_eq!(put("k", etag("*")), Err(MetaError::NotFound));
    let first = put("k", absent.clone()).unwrap();
    assert_eq!(first, "md5-of-k-1");
    assert_eq!(put("k", absent.clone()), Err(MetaError::PreconditionFailed));
    assert_eq!(put("k", etag("other")), Err(MetaError::PreconditionFailed));
    assert!(put("k", etag(&first)).is_ok());
    assert!(put("k", etag("*")).is_ok());
    assert!(put("d/", absent.clone()).is_ok());
    assert_eq!(put("d/", absent), Err(MetaError::PreconditionFailed));
    let delete = |e: &str| Command::DeleteObject { bucket: b, key: name("k"), condition: etag(e) };
    w.fails(delete("other"), MetaError::PreconditionFailed);
    assert!(matches!(w.run(delete(&first)), Reply::Removed { ino: Some(_) }));
    w.fails(delete("*"), MetaError::NotFound);
}

#[test]
fn parents_that_a_put_made_vanish_with_their_last_key() {
    let mut w = World::new();
    let (b, root) = (w.tree.id, w.tree.root);
    w.put_ok(b, "a/b/c", 1);
    w.put_ok(b, "a/x", 1);
    w.delete(b, "a/b/c");
    let a = w.look(root, "a").unwrap().ino;
    assert_eq!(w.names(a), ["x"]);
    w.delete(b, "a/x");
    assert!(w.names(root).is_empty());
    w.reap_all(8);
    assert_eq!(w.stats().inodes, 1);
    // Not through the mount, nor when the mount made or changed them.
    w.put_ok(b, "a/x", 1);
    let a = w.look(root, "a").unwrap().ino;
    w.run(Command::Unlink { dir: a, name: name("x") });
    assert_eq!(w.names(root), ["a"]);
    w.put_ok(b, "a/y", 1);
    w.attr_of(Command::SetAttr { ino: a, change: AttrChange { mode: Some(0o700), ..Default::default() } });
    w.delete(b, "a/y");
    assert_eq!(w.names(root), ["a"]);
    let d = w.dir(root, "d");
    w.put_ok(b, "d/e/f", 1);
    w.delete(b, "d/e/f");
    assert!(w.names(d).is_empty());
    assert_eq!(w.names(root), ["a", "d"]);
}

#[test]
fn a_key_with_a_slash_makes_a_directory_an_object() {
    let mut w = World::new();
    let (b, root) = (w.tree.id, w.tree.root);
    let (attr, _) = w.put_ok(b, "p/d/", 0);
    assert_eq!((attr.kind, attr.nlink), (Kind::Dir, 2));
    assert_eq!(w.resolve(b, "p/d/").unwrap().0.ino, attr.ino);
    // It keeps its parents, and stays when what is in it goes.
    w.put_ok(b, "p/d/f", 1);
    w.delete(b, "p/d/f");
    assert!(w.resolve(b, "p/d/").is_ok());
    // While it holds something, only the object goes.
    w.put_ok(b, "p/d/f", 1);
    assert_eq!(w.delete(b, "p/d/"), Some(attr.ino));
    assert!(w.resolve(b, "p/d/").is_err() && w.resolve(b, "p/d/f").is_ok());
    assert_eq!(w.delete(b, "p/d/"), None);
    w.delete(b, "p/d/f");
    assert!(w.names(root).is_empty());
    w.put_ok(b, "p/d/", 0);
    w.delete(b, "p/d/");
    assert!(w.names(root).is_empty());
    // A directory of the mount is not removed with its object.
    let m = w.dir(root, "m");
    let (attr, _) = w.put_ok(b, "m/", 0);
    assert_eq!(attr.ino, m);
    w.delete(b, "m/");
    assert_eq!(w.names(root), ["m"]);
    assert_eq!(w.delete(b, "m/"), None);
    assert_eq!(w.delete(b, "m"), None);
}

#[test]
fn a_change_of_data_drops_all_but_the_headers() {
    let mut w = World::new();
    let b = w.tree.id;
    let mut p = w.put(b, "f", 10);
    p.info.checksums = vec![("CRC32".into(), "AAAA".into())];
    p.info.parts = vec![10];
    let want = p.info.clone();
    let f = p.ino;
    w.run(Command::PutObject(p));
    assert_eq!(w.resolve(b, "f").unwrap().1, want);
    w.attr_of(Command::SetAttr { ino: f, change: AttrChange { mode: Some(0o600), ..Default::default() } });
    assert_eq!(w.resolve(b, "f").unwrap().1, want);
    w.truncate(f, 5);
    let etag = format!("{:016x}-2", f.0);
    let after = ObjectInfo { etag: Some(etag), headers: want.headers, ..Default::default() };
    assert_eq!(w.resolve(b, "f").unwrap().1, after);
    w.write(f, 0, 3);
    assert_eq!(w.resolve(b, "f").unwrap().1.etag, Some(format!("{:016x}-3", f.0)));
}

#[test]
fn a_copy_shares_stripes_until_the_last_one_goes() {
    let mut w = World::new();
    let (b, root) = (w.tree.id, w.tree.root);
    let f = w.file(root, "f");
    let s = w.write(f, 0, 100);
    let t = w.write(f, 10 << 20, 60);
    let change = w.attr(f).change;
    let copy = |w: &mut World, key: &str, change| {
        let p = PutObject { copy_from: Some((f, change)), ..w.put(b, key, 0) };
        w.run(Command::PutObject(p))
    };
    assert!(matches!(copy(&mut w, "g", change + 1), Reply::Error(MetaError::Retry(_))));
    let Reply::Put { attr, .. } = copy(&mut w, "g", change) else { panic!() };
    assert_eq!((attr.size, attr.mapped), ((10 << 20) + 60, 160));
    assert_eq!(w.map(attr.ino), w.map(f));
    let stats = w.stats();
    assert_eq!((stats.stripes, stats.bytes, stats.live), (2, 160, 320));
    // Onto itself, as S3 changes headers.
    let Reply::Put { replaced, .. } = copy(&mut w, "f", change) else { panic!() };
    assert_eq!(replaced, Some(f));
    w.reap_all(4);
    assert!(w.retired().is_empty());
    assert!(matches!(copy(&mut w, "h", change), Reply::Error(MetaError::Stale)));
    w.delete(b, "f");
    w.reap_all(4);
    assert!(w.retired().is_empty());
    w.delete(b, "g");
    w.reap_all(4);
    assert_eq!(w.retired(), [s, t]);
}

#[test]
fn buckets_are_made_once_and_removed_empty() {
    let mut w = World::new();
    let flat = w.bucket("flat", Shape::Flat);
    let make = |n: &str| Command::CreateBucket {
        name: name(n),
        shape: Shape::Tree,
        code: holdfast_objstore_proto::Code::new(4, 2),
        owner: OWNER,
        mode: 0o700,
    };
    w.fails(make("flat"), MetaError::BucketExists);
    w.fails_like(make("ab"), MetaError::Invalid(String::new()));
    w.fails_like(make(&"x".repeat(64)), MetaError::Invalid(String::new()));
    assert_eq!(read::bucket(&w.kv, b"flat").unwrap().unwrap(), flat);
    let all = read::buckets(&w.kv).unwrap().unwrap();
    assert_eq!(all.iter().map(|b| &b.name[..]).collect::<Vec<_>>(), [&b"flat"[..], b"home"]);
    let delete = || Command::DeleteBucket { name: name("flat") };
    w.put_ok(flat.id, "k", 1);
    w.fails(delete(), MetaError::BucketNotEmpty);
    w.delete(flat.id, "k");
    let Reply::Upload(upload) = w.run(Command::CreateUpload { bucket: flat.id, key: name("k"), info: Default::default() }) else {
        panic!()
    };
    w.fails(delete(), MetaError::BucketNotEmpty);
    w.run(Command::AbortUpload { bucket: flat.id, upload });
    assert_eq!(w.run(delete()), Reply::Done);
    w.fails(delete(), MetaError::NoSuchBucket);
    let p = w.put(flat.id, "k", 1);
    w.fails(Command::PutObject(p), MetaError::NoSuchBucket);
    w.reap_all(1);
    assert_eq!(w.stats().inodes, 1);
    assert_ne!(w.bucket("flat", Shape::Flat).id, flat.id);
    assert_eq!(read::getattr(&w.kv, InodeId(flat.root.0)).unwrap(), Err(MetaError::Stale));
}
