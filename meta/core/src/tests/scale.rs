//! What an operation reads and writes does not grow with the number of files: counted, at 500, 5,000 and 50,000.

use crate::kv::{Kv, KvRead, MemKv, StateError};
use crate::tests::world::{OWNER, World, name};
use crate::{apply, read};
use bytes::Bytes;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::*;
use std::cell::Cell;
use std::ops::ControlFlow;

/// Counts keys read (gets, and rows a scan visits) and rows written.
struct Counting<'a> {
    kv: &'a mut MemKv,
    read: Cell<u64>,
    written: u64,
}

impl KvRead for Counting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        self.read.set(self.read.get() + 1);
        self.kv.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StateError> {
        self.kv.scan(from, to, &mut |k, v| {
            self.read.set(self.read.get() + 1);
            visit(k, v)
        })
    }
}

impl Kv for Counting<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) {
        self.written += 1;
        self.kv.put(key, value);
    }
    fn delete(&mut self, key: &[u8]) {
        self.written += 1;
        self.kv.delete(key);
    }
}

fn create(w: &mut World, dir: InodeId, n: u32) -> Command {
    let ino = w.next_ino();
    Command::Create {
        dir,
        name: name(&format!("file-{n:08}")),
        ino,
        kind: Kind::File,
        mode: 0o644,
        owner: OWNER,
        rdev: 0,
        target: Name::new(),
    }
}

/// Keys read and rows written by a create, keys read by a lookup, a stat, and a page of 100 names in the middle.
fn costs(w: &mut World, dir: InodeId, n: u32) -> [u64; 5] {
    let command = create(w, dir, n);
    w.seq += 1;
    w.index += 1;
    let request = Request { session: w.session, epoch: w.epoch, seq: w.seq, acked: w.seq - 1, command };
    let mut kv = Counting { kv: &mut w.kv, read: Cell::new(0), written: 0 };
    let Reply::Attr(attr) = apply(&mut kv, w.index, w.now, &request).expect("a sound state") else { panic!("it was created") };
    let (created, written) = (kv.read.replace(0), kv.written);
    let middle = format!("file-{:08}", n / 2);
    let found = read::lookup(&kv, dir, middle.as_bytes()).expect("a sound state").expect("looks").expect("is there");
    let looked = kv.read.replace(0);
    read::getattr(&kv, attr.ino).expect("a sound state").expect("is there");
    let statted = kv.read.replace(0);
    let page = read::readdir(&kv, dir, 0, 100).expect("a sound state").expect("lists");
    assert!(found.ino != attr.ino && page.len() == 100);
    [created, written, looked, statted, kv.read.get()]
}

#[test]
fn operations_cost_the_same_at_a_hundred_times_as_many_files() {
    let mut w = World::new();
    w.checked = false;
    let dir = w.tree.root;
    let mut all = Vec::new();
    let mut n = 0;
    for files in [500, 5_000, 50_000] {
        while n < files {
            let command = create(&mut w, dir, n);
            assert!(matches!(w.run(command), Reply::Attr(_)));
            n += 1;
        }
        all.push(costs(&mut w, dir, n));
        n += 1;
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[1], all[2]);
    assert!(all[0].iter().all(|c| *c > 0 && *c < 310), "{all:?}");
}
