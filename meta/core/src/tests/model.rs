//! Random commands against a reference in plain maps, by seed. `MODEL_SEED=n` replays one.

mod reference;

use super::rng::Rng;
use super::world::{OWNER, World, name, shown};
use crate::{check, dir, keys, read};
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;
use reference::{CELL, Model, Put, Run};
use std::collections::BTreeMap;

const NAMES: &[&str] = &["a", "b", "c", "a.", "b0", "dd"];
const KEYS: &[&str] = &["a", "b", "a/b", "a/c", "a/b/c", "b/a.", "dd/", "a/dd/", "c/a/b/a", "a//b", "a/./b", "a./b0", "/", "b0/..", "a/b/"];
/// Cells of the largest file: 40 chunks of 4 MiB.
const CELLS: u64 = 40 * 256;

/// Where pieces of a pack or of a rewritten stripe came from: (place there, length, stripe, place in that).
type Layout = Vec<(u32, u32, StripeId, u32)>;

/// New stripes of a command, by the way they take.
#[derive(Default)]
struct New {
    stripes: Vec<std::sync::Arc<StripeMeta>>,
    inline: Vec<Inline>,
}

/// Requests the client has not acknowledged, and may send again.
const UNACKED: u64 = 40;

struct Game {
    w: World,
    m: Model,
    rng: Rng,
    flat: Bucket,
    uploads: Vec<(BucketId, UploadId)>,
    past: Vec<(Request, Reply)>,
    /// What was gathered for a pack that is not committed yet.
    gathered: Option<read::Gathered>,
    /// The same of runs, and where their pass is.
    worn: Option<read::Worn>,
    pass: read::Cursor,
    layouts: BTreeMap<StripeId, Layout>,
    /// Commands that did what they said, by name.
    done: BTreeMap<String, u32>,
}

impl Game {
    fn new(seed: u64) -> Self {
        let mut w = World::new();
        w.checked = false;
        let flat = w.bucket("flat", Shape::Flat);
        let m = Model::new([(&w.tree, false), (&flat, true)]);
        Game {
            w,
            m,
            rng: Rng::new(seed),
            flat,
            uploads: Vec::new(),
            past: Vec::new(),
            gathered: None,
            worn: None,
            pass: read::Cursor::default(),
            layouts: BTreeMap::new(),
            done: BTreeMap::new(),
        }
    }

    fn run(&mut self, command: Command) -> Reply {
        self.w.seq += 1;
        let (session, epoch, seq, acked) = (self.w.session, self.w.epoch, self.w.seq, self.w.seq.saturating_sub(UNACKED));
        let request = Request { session, epoch, seq, acked, command: command.clone() };
        let what = format!("{command:?}");
        let reply = self.w.request(session, epoch, seq, acked, command);
        if !matches!(reply, Reply::Error(_)) {
            let what = what.split([' ', '(']).next().unwrap_or_default().to_string();
            *self.done.entry(what).or_default() += 1;
        }
        self.past.push((request, reply.clone()));
        reply
    }

    /// The state's answer must be the reference's.
    fn expect<T>(&mut self, command: Command, want: Result<T, MetaError>, is: impl Fn(&Reply, &T) -> bool) {
        let reply = self.run(command.clone());
        let agree = match (&reply, &want) {
            (Reply::Error(got), Err(want)) => std::mem::discriminant(got) == std::mem::discriminant(want),
            (Reply::Error(_), Ok(_)) | (_, Err(_)) => false,
            (reply, Ok(want)) => is(reply, want),
        };
        assert!(agree, "{command:?}\n answered {reply:?}\n wanted {:?}", want.err());
    }

    fn name(&mut self) -> &'static str {
        self.rng.pick::<&'static str>(NAMES)
    }

    fn dir(&mut self) -> InodeId {
        let mut dirs = self.m.of_kind(Kind::Dir);
        if self.rng.below(8) > 0 {
            dirs.retain(|d| self.m.nodes[d].nlink > 0);
        }
        *self.rng.pick(&dirs)
    }

    /// A name that mostly is there, of a kind that mostly fits.
    fn entry(&mut self, dir: bool) -> (InodeId, &'static str) {
        for _ in 0..10 {
            let at = (self.dir(), self.name());
            let child = self.m.nodes[&at.0].children.get(at.1);
            if child.is_some_and(|c| (self.m.nodes[&c.ino].kind == Kind::Dir) == dir) {
                return at;
            }
        }
        (self.dir(), self.name())
    }

    fn file(&mut self) -> Option<InodeId> {
        let files = self.m.of_kind(Kind::File);
        // One file gets most of it, so that it grows fragments and tails.
        if self.rng.below(2) == 0 {
            return files.into_iter().find(|f| self.m.nodes[f].nlink > 0);
        }
        (!files.is_empty()).then(|| *self.rng.pick(&files))
    }

    fn bucket(&mut self) -> BucketId {
        if self.rng.below(3) == 0 { self.flat.id } else { self.w.tree.id }
    }

    /// A few runs of whole cells, on new stripes. Mostly in the first chunk, so that it gets fragmented.
    fn runs(&mut self, cells_max: u64) -> (Vec<Run>, New) {
        let (mut runs, mut new) = (Vec::new(), New::default());
        for _ in 0..1 + self.rng.below(12) {
            let small = self.rng.below(4) > 0;
            let from = if small { self.rng.below(256) } else { self.rng.below(CELLS) }.min(cells_max.saturating_sub(1));
            let len = 1 + self.rng.below(if small { 2 } else { 256 });
            let len = len.min(cells_max - from);
            if len == 0 {
                continue;
            }
            let stripe = if len <= 2 && self.rng.below(2) == 0 {
                new.inline.push(self.w.inline((len * CELL) as usize));
                new.inline[new.inline.len() - 1].stripe
            } else {
                new.stripes.push(self.w.stripe((len * CELL) as u32));
                new.stripes[new.stripes.len() - 1].id
            };
            runs.push(Run { from, len, stripe, at: 0 });
        }
        // What a command may carry inline is bounded.
        while new.inline.iter().map(|i| i.data.len()).sum::<usize>() > crate::limits::INLINE_BYTES_MAX {
            let gone = new.inline.pop().unwrap().stripe;
            runs.retain(|r| r.stripe != gone);
        }
        (runs, new)
    }

    fn step(&mut self) {
        match self.rng.below(27) {
            0..=2 => self.create(),
            3 => self.link(),
            4 => self.unlink(),
            5 => self.rmdir(),
            6..=8 => self.rename(),
            9 => self.set_attr(),
            10..=12 => self.publish(),
            13 => self.truncate(),
            14..=16 => self.put(),
            17..=18 => self.delete(),
            19..=20 => self.upload(),
            21 => self.repeat(),
            22 => self.reap(),
            23..=25 if self.rng.below(3) == 0 => self.relocate(),
            23..=25 => self.pack(),
            _ => self.rare(),
        }
    }

    fn create(&mut self) {
        let (dir, n, ino) = (self.dir(), self.name(), self.w.ino());
        let kind = *self.rng.pick(&[Kind::File, Kind::File, Kind::Dir, Kind::Dir, Kind::Symlink]);
        let target = if kind == Kind::Symlink { name("t") } else { name("") };
        let want = self.m.create(dir, n, ino, kind);
        self.expect(Command::Create { dir, name: name(n), ino, kind, mode: 0o755, owner: OWNER, rdev: 0, target }, want, |r, _| {
            matches!(r, Reply::Attr(_))
        });
    }

    fn link(&mut self) {
        let (dir, n) = (self.dir(), self.name());
        let Some(ino) = self.file() else { return };
        let want = self.m.link(dir, n, ino);
        self.expect(Command::Link { dir, name: name(n), ino }, want, |r, _| matches!(r, Reply::Attr(_)));
    }

    fn unlink(&mut self) {
        let (dir, n) = self.entry(false);
        let want = self.m.unlink(dir, n);
        self.expect(Command::Unlink { dir, name: name(n) }, want, |r, w| *r == Reply::Unlinked { ino: w.0, nlink: w.1 });
    }

    fn rmdir(&mut self) {
        let (dir, n) = self.entry(true);
        let want = self.m.rmdir(dir, n);
        self.expect(Command::Rmdir { dir, name: name(n) }, want, |r, w| *r == Reply::Unlinked { ino: *w, nlink: 0 });
    }

    fn rename(&mut self) {
        let is_dir = self.rng.below(2) == 0;
        let (from_dir, from) = self.entry(is_dir);
        let (to_dir, to) = if self.rng.below(2) == 0 { self.entry(is_dir) } else { (self.dir(), self.name()) };
        let mode = *self.rng.pick(&[RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let want = self.m.rename((from_dir, from), (to_dir, to), mode);
        let command = Command::Rename { from_dir, from: name(from), to_dir, to: name(to), mode };
        self.expect(command, want, |r, w| *r == Reply::Renamed { moved: w.0, replaced: w.1 });
    }

    fn set_attr(&mut self) {
        let ino = if self.rng.below(2) == 0 { self.dir() } else { self.file().unwrap_or(self.w.tree.root) };
        let (mode, gid) = (*self.rng.pick(&[0o755, 0o2775, 0o640]), self.rng.below(3) as u32);
        let want = self.m.set_attr(ino, mode, gid);
        let change = AttrChange { mode: Some(mode), gid: Some(gid), ..Default::default() };
        self.expect(Command::SetAttr { ino, change }, want, |r, _| matches!(r, Reply::Attr(_)));
    }

    fn publish(&mut self) {
        let Some(ino) = self.file() else { return };
        let (runs, New { stripes, inline }) = self.runs(CELLS);
        let right = self.m.number(ino) + 1;
        let number = if self.rng.below(10) == 0 { right + self.rng.below(3) } else { right };
        let spoiled = self.rng.below(10) == 0;
        let end = runs.iter().map(|r| r.from + r.len).max().unwrap_or(0);
        let cells = if spoiled { 0 } else { end.max(self.m.cells(ino)) };
        let extents: Vec<Extent> = runs.iter().map(Run::extent).collect();
        let want = self.m.publish(ino, number, &runs, cells);
        let p = Publish { ino, number, extents, stripes, inline, size: cells * CELL, mtime: 5, ctime: 5, clear_suid: false };
        self.expect(Command::Publish(p), want, |r, _| matches!(r, Reply::Attr(_)));
    }

    fn truncate(&mut self) {
        let Some(ino) = self.file() else { return };
        let cells = if self.rng.below(3) == 0 { 0 } else { self.rng.below(CELLS) };
        let number = self.m.number(ino) + 1;
        let want = self.m.truncate(ino, number, cells);
        self.expect(Command::Truncate { ino, number, size: cells * CELL, mtime: 5 }, want, |r, _| matches!(r, Reply::Attr(_)));
    }

    fn put(&mut self) {
        let (bucket, key, ino) = (self.bucket(), *self.rng.pick(KEYS), self.w.ino());
        let dir = key.ends_with('/') && bucket == self.w.tree.id;
        let copy = if !dir && self.rng.below(3) == 0 { self.file() } else { None };
        let cells = if dir || copy.is_some() { 0 } else { self.rng.below(600) };
        let (runs, New { stripes, inline }) = if cells == 0 { Default::default() } else { self.runs(cells) };
        let absent = self.rng.below(6) == 0;
        let etag = format!("put-{}", ino.0);
        let want = self.m.put(Put { bucket, key, ino, cells, runs: &runs, etag: &etag, absent, copy });
        let change = copy.map(|f| (f, read::getattr(&self.w.kv, f).unwrap().map_or(0, |a| a.change)));
        let p = PutObject {
            bucket,
            key: name(key),
            ino,
            size: cells * CELL,
            extents: runs.iter().map(Run::extent).collect(),
            stripes,
            inline,
            info: ObjectInfo { etag: Some(etag.clone()), ..Default::default() },
            owner: OWNER,
            condition: Condition { absent, etag: None },
            copy_from: change,
        };
        self.expect(Command::PutObject(p), want, |r, w| matches!(r, Reply::Put { replaced, etag: e, .. } if replaced == w && *e == etag));
        // Parents that it made have ids only the state knows.
        let w = &self.w;
        self.m.learn(|dir, n| w.look(dir, n).map(|a| a.ino).unwrap());
    }

    fn delete(&mut self) {
        let (bucket, key) = (self.bucket(), *self.rng.pick(KEYS));
        let want = self.m.delete(bucket, key);
        let command = Command::DeleteObject { bucket, key: name(key), condition: Condition::default() };
        self.expect(command, Ok(want), |r, w| *r == Reply::Removed { ino: *w });
    }

    fn upload(&mut self) {
        let pick = if self.uploads.is_empty() { 0 } else { self.rng.below(10) };
        if pick == 0 {
            let (bucket, key) = (self.bucket(), *self.rng.pick(&["a", "b/c", "u"]));
            if let Reply::Upload(id) = self.run(Command::CreateUpload { bucket, key: name(key), info: Default::default() }) {
                self.m.uploads.insert(id, (key, BTreeMap::new()));
                self.uploads.push((bucket, id));
            }
            return;
        }
        let (bucket, upload) = *self.rng.pick(&self.uploads);
        if pick < 7 {
            let cells = 1 + self.rng.below(300);
            let (mut runs, New { mut stripes, mut inline }) = self.runs(cells);
            // Parts are in order and do not overlap: one run.
            runs.truncate(1);
            stripes.retain(|s| runs.iter().any(|r| r.stripe == s.id));
            inline.retain(|i| runs.iter().any(|r| r.stripe == i.stripe));
            let number = 1 + self.rng.below(4) as u16;
            let etag = format!("part-{}", self.w.seq);
            let extents = runs.iter().map(Run::extent).collect();
            let want = self.m.put_part(upload, number, cells, runs, &etag);
            let c = Command::PutPart { bucket, upload, number, size: cells * CELL, etag, checksums: vec![], extents, stripes, inline };
            self.expect(c, want, |r, _| matches!(r, Reply::Part { .. }));
        } else if pick < 9 {
            let mut parts = self.m.part_list(upload);
            if self.rng.below(3) == 0 {
                parts.pop();
            }
            let ino = self.w.ino();
            let etag = format!("joined-{}", ino.0);
            let want = self.m.complete(bucket, upload, ino, &parts, &etag);
            let info = ObjectInfo { etag: Some(etag), ..Default::default() };
            let c = Command::CompleteUpload {
                bucket,
                upload,
                ino,
                parts,
                info,
                owner: OWNER,
                part_bytes_min: 0,
                condition: Default::default(),
            };
            self.expect(c, want, |r, w| matches!(r, Reply::Put { replaced, .. } if replaced == w));
            let w = &self.w;
            self.m.learn(|dir, n| w.look(dir, n).map(|a| a.ino).unwrap());
        } else {
            let want = self.m.abort(upload);
            self.expect(Command::AbortUpload { bucket, upload }, want, |r, _| *r == Reply::Done);
        }
        let m = &self.m;
        self.uploads.retain(|(_, u)| m.uploads.contains_key(u));
    }

    /// Exactly once: what was applied is answered again, and nothing changes.
    fn repeat(&mut self) {
        let back = self.rng.below(UNACKED) as usize;
        let Some((request, reply)) = self.past.iter().rev().nth(back).cloned() else { return };
        if request.session != self.w.session {
            return;
        }
        let before = self.w.kv.clone();
        let again = self.w.request(request.session, request.epoch, request.seq, request.acked, request.command);
        assert_eq!(again, reply);
        assert!(self.w.kv == before, "a repeated request changed the state");
    }

    fn reap(&mut self) {
        let orphans = self.w.orphans();
        if orphans.is_empty() {
            return;
        }
        let ino = *self.rng.pick(&orphans);
        let chunks_max = 1 + self.rng.below(6) as u32;
        match self.w.serve(Command::ReapOrphan { ino, chunks_max }) {
            Reply::Reaped { done } => self.m.reaped(ino, done),
            other => panic!("{other:?}"),
        }
    }

    /// Gathers for a pack, commits what was gathered a while ago, or stages again.
    fn pack(&mut self) {
        let bounds = read::PackBounds { bytes_max: CELL * (2 + self.rng.below(20)), members_max: 1 + self.rng.below(12) as usize };
        if let Some(found) = self.gathered.take() {
            let p = self.w.pack_of(&found);
            let layout = p.members.iter().map(|m| (m.at, m.len, m.stripe, 0)).collect();
            self.layouts.insert(p.stripe.id, layout);
            let reply = self.run(Command::Pack(p));
            let Reply::Packed { moved } = reply else { panic!("{reply:?}") };
            let late = moved as usize != found.places.len();
            *self.done.entry("(late member)".into()).or_default() += late as u32;
            return;
        }
        let bucket = self.bucket();
        let gathered = match self.rng.below(8) {
            0..=2 => read::gather_staged(&self.w.kv, bounds),
            3..=4 => read::gather_sparse(&self.w.kv, None, bounds),
            5..=6 => read::gather_small(&self.w.kv, bucket, self.w.now - 100, None, bounds),
            _ => {
                let inline = self.w.staged.iter().map(|(id, (_, data))| Inline { stripe: *id, data: data.clone() }).take(4).collect();
                assert_eq!(self.w.serve(Command::Restage { inline }), Reply::Done);
                return;
            }
        };
        let gathered = gathered.unwrap().unwrap();
        let repacks = gathered.as_ref().is_some_and(|g| g.places.iter().any(|p| matches!(p.from, Home::Packed { .. })));
        *self.done.entry("(pack rewritten)".into()).or_default() += repacks as u32;
        self.gathered = gathered;
    }

    /// What a cell of a stripe shows, by the stripe its bytes were first written to.
    fn origin(&self, mut stripe: StripeId, mut at: u32) -> (StripeId, u32) {
        while let Some(layout) = self.layouts.get(&stripe) {
            let (place, len, from, from_at) = *layout.iter().rfind(|(place, ..)| *place <= at).unwrap();
            assert!(at + CELL as u32 <= place + len, "a cell leaves its member");
            (stripe, at) = (from, from_at + at - place);
        }
        (stripe, at)
    }

    /// Gathers runs on worn stripes, or commits what was gathered a while ago.
    fn relocate(&mut self) {
        if let Some(found) = self.worn.take() {
            let r = self.w.relocate_of(&found);
            let layout = r.runs.iter().map(|m| (m.at, m.len, m.from, m.from_at)).collect();
            self.layouts.insert(r.stripe.id, layout);
            let reply = self.run(Command::Relocate(r));
            let Reply::Packed { moved } = reply else { panic!("{reply:?}") };
            *self.done.entry("(late run)".into()).or_default() += ((moved as usize) < found.runs.len()) as u32;
            return;
        }
        let bounds = read::WornBounds {
            bytes_max: CELL * (1 + self.rng.below(40)),
            runs_max: 1 + self.rng.below(20) as usize,
            pieces_max: 1 + self.rng.below(60) as usize,
        };
        let below = 300 + self.rng.below(800);
        let mut victims = read::Victims::new(CELL * below, below as u32);
        let mut after = None;
        while let Some(next) = read::choose_worn(&self.w.kv, after, 1 + below as usize % 9, &mut victims).unwrap().unwrap() {
            after = Some(next);
        }
        let found = read::gather_worn(&self.w.kv, self.pass, bounds, &victims.ids()).unwrap().unwrap();
        self.pass = found.next.unwrap_or_default();
        self.worn = (!found.runs.is_empty()).then_some(found);
    }

    fn rare(&mut self) {
        match self.rng.below(4) {
            0 => {
                self.w.serve(Command::Evict { session: self.w.session });
                self.w.open();
            }
            1 => {
                let stripes = self.w.retired();
                self.w.serve(Command::ForgetStripes { stripes });
                assert!(self.w.retired().is_empty());
            }
            2 => {
                for ino in self.w.orphans() {
                    while self.w.serve(Command::ReapOrphan { ino, chunks_max: 50 }) != (Reply::Reaped { done: true }) {}
                    self.m.reaped(ino, true);
                }
                assert_eq!(self.w.stats().live, self.m.live_bytes(), "with nothing to reap, what is live is what can be reached");
            }
            _ => {
                let gone = self.m.of_kind(Kind::Dir).into_iter().map(|i| i.0).max().unwrap_or(0) + (1 << 30);
                let c = Command::SetAttr { ino: InodeId(gone), change: AttrChange { mode: Some(1), ..Default::default() } };
                self.expect(c, Err::<(), _>(MetaError::Stale), |_, _| false);
            }
        }
    }

    /// Notes forms of the state that ought to be met.
    fn note_forms(&mut self) {
        let split = self.w.kv.0.iter().any(|(k, v)| k[0] == keys::CHUNK && k.len() == 13 && v[1] == 1);
        let cut = self.m.of_kind(Kind::File).iter().any(|f| dir::inode(&self.w.kv, *f).is_ok_and(|i| !i.cuts().is_empty()));
        *self.done.entry("(split chunk)".into()).or_default() += split as u32;
        *self.done.entry("(pending cut)".into()).or_default() += cut as u32;
    }

    fn compare(&self) {
        let complaints = check(&self.w.kv);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        self.w.check_staged();
        let retired = self.w.retired();
        for (ino, node) in &self.m.nodes {
            let found = read::getattr(&self.w.kv, *ino).unwrap();
            if node.reaping {
                assert_eq!(found, Err(MetaError::Stale));
                continue;
            }
            let a = found.unwrap();
            let got = (a.kind, a.mode, a.gid, a.nlink, a.number);
            assert_eq!(got, (node.kind, node.mode, node.gid, node.nlink, node.number), "{ino}");
            match node.kind {
                Kind::Dir => self.compare_dir(*ino, node, &a),
                Kind::File => {
                    assert_eq!(a.size, node.cells * CELL, "{ino}");
                    let mut cells = BTreeMap::new();
                    for e in self.w.extents(*ino) {
                        assert!(e.offset.is_multiple_of(CELL) && (e.len as u64).is_multiple_of(CELL));
                        assert!(!retired.contains(&e.stripe.id), "{} is in use and retired", e.stripe.id);
                        assert_eq!(e.inline.is_some(), e.stripe.is_bare());
                        if let Some(data) = &e.inline {
                            assert_eq!(*data, super::world::inline_bytes(e.stripe.id, e.stripe.len as usize));
                        }
                        for i in 0..e.len as u64 / CELL {
                            cells.insert(e.offset / CELL + i, self.origin(e.stripe.id, e.stripe_offset + (i * CELL) as u32));
                        }
                    }
                    assert!(cells == node.content, "the map of {ino} is another");
                }
                _ => {}
            }
        }
        for bucket in [self.w.tree.id, self.flat.id] {
            let keys = self.m.keys(bucket);
            let page = self.w.list(bucket, "", "", None, 10_000);
            assert_eq!(shown(&page), keys.iter().map(|(k, _)| k.clone()).collect::<Vec<_>>());
            for (key, etag) in keys {
                assert_eq!(self.w.resolve(bucket, &key).unwrap().1.etag, Some(etag), "{key}");
            }
        }
    }

    fn compare_dir(&self, ino: InodeId, node: &reference::Node, a: &Attr) {
        assert_eq!(a.size, node.children.len() as u64);
        let mut want: Vec<_> = node.children.iter().map(|(n, c)| (c.cookie, n.clone(), c.ino)).collect();
        want.sort();
        let got = read::readdir(&self.w.kv, ino, 0, 1000).unwrap().unwrap();
        let got: Vec<_> = got.iter().map(|(e, _)| (e.cookie, String::from_utf8(e.name.to_vec()).unwrap(), e.ino)).collect();
        assert_eq!(got, want, "names of {ino}");
        for n in NAMES {
            assert_eq!(self.w.look(ino, n).map(|a| a.ino), node.children.get(*n).map(|c| c.ino));
        }
        if node.nlink > 0 {
            assert_eq!(read::parent(&self.w.kv, ino).unwrap().unwrap(), node.parent);
        }
    }
}

fn play(seed: u64, steps: usize) -> (crate::kv::MemKv, BTreeMap<String, u32>) {
    let mut g = Game::new(seed);
    for step in 0..steps {
        g.step();
        // To compare is dearer than to play.
        if step % 5 == 0 || step + 1 == steps {
            g.compare();
            g.note_forms();
        }
    }
    (g.w.kv, g.done)
}

#[test]
fn random_commands_agree_with_the_reference() {
    if let Some(seed) = std::env::var("MODEL_SEED").ok().and_then(|s| s.parse().ok()) {
        println!("{:?}", play(seed, 2000).1);
        return;
    }
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..10 {
        println!("MODEL_SEED={seed}");
        play(seed, 440).1.into_iter().for_each(|(what, n)| *done.entry(what).or_default() += n);
    }
    for what in [
        "Create",
        "Link",
        "Unlink",
        "Rmdir",
        "Rename",
        "SetAttr",
        "Truncate",
        "Publish",
        "PutObject",
        "DeleteObject",
        "CreateUpload",
        "PutPart",
        "CompleteUpload",
        "AbortUpload",
        "(split chunk)",
        "(pending cut)",
        "Pack",
        "(late member)",
        "(pack rewritten)",
        "Relocate",
        "(late run)",
    ] {
        assert!(done.get(what).is_some_and(|n| *n >= 5), "{what} was hardly tried: {done:?}");
    }
}

#[test]
fn the_same_commands_make_the_same_bytes() {
    assert!(play(99, 200) == play(99, 200));
}
