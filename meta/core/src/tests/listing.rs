//! Listings: order, delimiters, pages, what is hidden, and what they cost.

use super::rng::Rng;
use super::world::{World, name, shown};
use crate::{KvRead, StateError, kv::MemKv, read};
use bytes::Bytes;
use holdfast_objstore_proto::meta::*;
use std::cell::Cell;
use std::ops::ControlFlow;

#[test]
fn keys_list_in_byte_order_with_directories_as_name_slash() {
    let mut w = World::new();
    let b = w.tree.id;
    for key in ["a/z", "a.txt", "a0", "b", "a/b/c", "a-"] {
        w.put_ok(b, key, 1);
    }
    w.dir(w.tree.root, "empty");
    w.make(w.tree.root, "link", Kind::Symlink);
    w.put_ok(b, "marked/", 0);
    let all = ["a-", "a.txt", "a/b/c", "a/z", "a0", "b", "marked/"];
    let page = w.list(b, "", "", None, 100);
    assert_eq!(shown(&page), all);
    assert_eq!((page.next, page.hidden), (None, 0));
    assert_eq!(shown(&w.list(b, "", "/", None, 100)), ["a-", "a.txt", "[a/]", "a0", "b", "[marked/]"]);
    assert_eq!(shown(&w.list(b, "a/", "/", None, 100)), ["[a/b/]", "a/z"]);
    assert_eq!(shown(&w.list(b, "a", "", None, 100)), &all[..5]);
    assert_eq!(shown(&w.list(b, "a/b/", "/", None, 100)), ["a/b/c"]);
    assert_eq!(shown(&w.list(b, "marked/", "/", None, 100)), ["marked/"]);
    assert_eq!(shown(&w.list(b, "", "", Some("a.txt"), 100)), &all[2..]);
    assert_eq!(shown(&w.list(b, "", "/", Some("a/"), 100)), ["a0", "b", "[marked/]"]);
    assert_eq!(shown(&w.list(b, "", "", Some("a/"), 100)), &all[2..]);
    assert_eq!(shown(&w.list(b, "", "a", None, 100)), ["[a]", "b", "[ma]"]);
    assert!(w.list(b, "", "", None, 0).items.is_empty());
    assert!(w.list(b, "zz", "", None, 10).items.is_empty());
    assert!(w.list(b, "b/", "", None, 10).items.is_empty());
}

#[test]
fn names_that_s3_cannot_show_are_counted_and_passed() {
    let mut w = World::new();
    let (b, root) = (w.tree.id, w.tree.root);
    let raw = |n: &'static [u8], kind, w: &mut World| {
        let ino = w.ino();
        let c = Command::Create {
            dir: root,
            name: Bytes::from_static(n),
            ino,
            kind,
            mode: 0o755,
            owner: super::world::OWNER,
            rdev: 0,
            target: name(""),
        };
        w.attr_of(c).ino
    };
    raw(b"bad\xff", Kind::File, &mut w);
    let d = raw(b"dir\xff", Kind::Dir, &mut w);
    w.file(d, "below");
    w.file(root, "z");
    let mut at = root;
    for _ in 0..5 {
        at = w.dir(at, &"d".repeat(250));
    }
    w.file(at, "deep");
    let page = w.list(b, "", "", None, 100);
    assert_eq!((shown(&page), page.hidden), (vec!["z".to_string()], 3));
    assert_eq!(shown(&w.list(b, "", "/", None, 100)), ["z"]);
}

/// All keys of a bucket by the rules, from the list of keys.
fn expected(keys: &[String], prefix: &str, delimiter: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for k in keys.iter().filter(|k| k.starts_with(prefix)) {
        let at = if delimiter.is_empty() { None } else { k[prefix.len()..].find(delimiter) };
        let item = match at {
            Some(at) => format!("[{}]", &k[..prefix.len() + at + delimiter.len()]),
            None => k.clone(),
        };
        if out.last() != Some(&item) {
            out.push(item);
        }
    }
    out
}

#[test]
fn pages_of_any_size_add_up_to_the_whole() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut w = World::new();
        w.checked = false;
        let shape = if seed % 2 == 0 { Shape::Tree } else { Shape::Flat };
        let bucket = w.bucket("test", shape);
        let mut keys = Vec::new();
        for _ in 0..60 {
            let depth = 1 + rng.below(4);
            let parts: Vec<&str> = (0..depth).map(|_| *rng.pick(&["a", "b", "a-", "a.", "ab", "é", "x0"])).collect();
            let key = parts.join("/") + if rng.below(8) == 0 { "/" } else { "" };
            let put = w.put(bucket.id, &key, 0);
            if matches!(w.run(Command::PutObject(put)), Reply::Put { .. }) {
                keys.push(key);
            }
        }
        keys.sort();
        keys.dedup();
        assert!(keys.len() > 10);
        for prefix in ["", "a", "a/", "a/b", "a/b/", "é/", "b/a-/"] {
            for delimiter in ["", "/", "a", "b/", "-/"] {
                let want = expected(&keys, prefix, delimiter);
                for keys_max in [1, 2, 3, 1000] {
                    let mut got = Vec::new();
                    let mut after: Option<Name> = None;
                    loop {
                        let q = ListQuery { prefix: name(prefix), delimiter: Some(name(delimiter)), after: after.clone(), keys_max };
                        let page = read::list(&w.kv, bucket.id, &q).unwrap().unwrap();
                        assert!(page.items.len() <= keys_max);
                        got.extend(shown(&page));
                        match page.next {
                            Some(next) => assert!(after.replace(next.clone()).is_none_or(|a| a < next)),
                            None => break,
                        }
                    }
                    assert_eq!(got, want, "seed {seed} prefix {prefix:?} delimiter {delimiter:?} by {keys_max}");
                }
            }
        }
    }
}

/// Counts what a read costs.
struct Counted<'a>(&'a MemKv, Cell<usize>);

impl KvRead for Counted<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        self.1.set(self.1.get() + 1);
        self.0.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError> {
        self.0.scan(from, to, &mut |k, v| {
            self.1.set(self.1.get() + 1);
            visit(k, v)
        })
    }
}

#[test]
fn common_prefixes_cost_what_they_return_not_what_is_below() {
    let mut w = World::new();
    w.checked = false;
    let flat = w.bucket("flat", Shape::Flat).id;
    for bucket in [w.tree.id, flat] {
        for dir in 0..5 {
            for f in 0..400 {
                w.put_ok(bucket, &format!("d{dir}/{f:04}"), 0);
            }
        }
        let counted = Counted(&w.kv, Cell::new(0));
        let q = ListQuery { prefix: name(""), delimiter: Some(name("/")), after: None, keys_max: 1000 };
        let page = read::list(&counted, bucket, &q).unwrap().unwrap();
        assert_eq!(shown(&page), ["[d0/]", "[d1/]", "[d2/]", "[d3/]", "[d4/]"]);
        assert!(counted.1.get() < 150, "{} reads", counted.1.get());
        let counted = Counted(&w.kv, Cell::new(0));
        let q = ListQuery { prefix: name("d3/"), delimiter: None, after: Some(name("d3/0200")), keys_max: 10 };
        let page = read::list(&counted, bucket, &q).unwrap().unwrap();
        assert_eq!((page.items.len(), page.next), (10, Some(name("d3/0210"))));
        assert!(counted.1.get() < 80, "{} reads", counted.1.get());
    }
}

#[test]
fn a_page_that_passes_too_much_ends_early_and_can_go_on() {
    let mut w = World::new();
    w.checked = false;
    let root = w.tree.root;
    // The last name of the first page is the directory.
    for i in 0..crate::limits::LIST_VISITS_MAX + 9 {
        if i % 4000 == 0 {
            w.open();
        }
        w.make(root, &format!("link{i:06}"), Kind::Symlink);
    }
    let d = w.dir(root, "m");
    w.file(d, "x");
    w.file(root, "z");
    for (delimiter, want) in [("", ["m/x", "z"]), ("/", ["[m/]", "z"])] {
        let page = w.list(w.tree.id, "", delimiter, None, 10);
        assert!(page.items.is_empty());
        let next = String::from_utf8(page.next.unwrap().to_vec()).unwrap();
        let page = w.list(w.tree.id, "", delimiter, Some(&next), 10);
        assert_eq!((shown(&page), page.next), (want.map(String::from).to_vec(), None));
    }
}
