//! The reference: a tree of nodes in plain maps, files as maps of cells. Knows nothing of how the state is kept.

use super::super::world::OWNER;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;
use std::collections::BTreeMap;

/// Data is written in whole cells.
pub(crate) const CELL: u64 = 16 << 10;

type Cells = BTreeMap<u64, (StripeId, u32)>;
type Is<T> = Result<T, MetaError>;

#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub from: u64,
    pub len: u64,
    pub stripe: StripeId,
    pub at: u64,
}

impl Run {
    pub fn extent(&self) -> Extent {
        Extent { offset: self.from * CELL, len: (self.len * CELL) as u32, stripe: self.stripe, stripe_offset: (self.at * CELL) as u32 }
    }
    fn lay(&self, base: u64, cells: &mut Cells) {
        for i in 0..self.len {
            cells.insert(base + self.from + i, (self.stripe, ((self.at + i) * CELL) as u32));
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub ino: InodeId,
    pub cookie: u64,
}

pub(crate) struct Node {
    pub kind: Kind,
    pub mode: u32,
    pub gid: u32,
    pub nlink: u32,
    pub number: u64,
    pub cells: u64,
    pub content: Cells,
    pub children: BTreeMap<String, Child>,
    pub parent: InodeId,
    pub next: u64,
    pub explicit: bool,
    /// Root of the flat bucket, or a file in it.
    pub flat: bool,
    /// `Some(None)`: an object whose data a mount changed.
    pub object: Option<Option<String>>,
    pub reaping: bool,
}

pub(crate) struct Put<'a> {
    pub bucket: BucketId,
    pub key: &'a str,
    pub ino: InodeId,
    pub cells: u64,
    pub runs: &'a [Run],
    pub etag: &'a str,
    pub absent: bool,
    pub copy: Option<InodeId>,
}

pub(crate) struct Model {
    pub nodes: BTreeMap<InodeId, Node>,
    roots: BTreeMap<BucketId, InodeId>,
    pub uploads: BTreeMap<UploadId, (&'static str, BTreeMap<u16, PartOf>)>,
    /// Directories whose ids the state chose: (directory, name), with the stand-in.
    unknown: Vec<(InodeId, String, InodeId)>,
    stand_in: u64,
}

pub(crate) struct PartOf {
    cells: u64,
    runs: Vec<Run>,
    etag: String,
}

fn invalid<T>() -> Is<T> {
    Err(MetaError::Invalid(String::new()))
}

fn conflict<T>() -> Is<T> {
    Err(MetaError::KeyConflict(String::new()))
}

impl Model {
    pub fn new<const N: usize>(buckets: [(&Bucket, bool); N]) -> Self {
        let mut m =
            Model { nodes: BTreeMap::new(), roots: BTreeMap::new(), uploads: BTreeMap::new(), unknown: Vec::new(), stand_in: 1 << 50 };
        for (b, flat) in buckets {
            m.roots.insert(b.id, b.root);
            let mut node = m.node(Kind::Dir, b.root);
            (node.flat, node.explicit) = (flat, true);
            m.nodes.insert(b.root, node);
        }
        m
    }

    fn node(&self, kind: Kind, parent: InodeId) -> Node {
        Node {
            kind,
            mode: 0o755,
            gid: OWNER.gid,
            nlink: if kind == Kind::Dir { 2 } else { 1 },
            number: 0,
            cells: 0,
            content: Cells::new(),
            children: BTreeMap::new(),
            parent,
            next: 3,
            explicit: false,
            flat: false,
            object: None,
            reaping: false,
        }
    }

    pub fn of_kind(&self, kind: Kind) -> Vec<InodeId> {
        self.nodes.iter().filter(|(_, n)| n.kind == kind).map(|(i, _)| *i).collect()
    }
    pub fn number(&self, ino: InodeId) -> u64 {
        self.nodes[&ino].number
    }
    pub fn cells(&self, ino: InodeId) -> u64 {
        self.nodes[&ino].cells
    }

    fn at(&mut self, ino: InodeId) -> &mut Node {
        self.nodes.get_mut(&ino).expect("the model knows it")
    }

    /// A directory that names may change in.
    fn open(&self, dir: InodeId) -> Is<&Node> {
        let d = self.nodes.get(&dir).ok_or(MetaError::Stale)?;
        if d.flat {
            return Err(MetaError::NotPermitted);
        }
        if d.nlink == 0 { Err(MetaError::NotFound) } else { Ok(d) }
    }

    fn child(&self, dir: InodeId, n: &str) -> Option<(Child, Kind)> {
        let c = *self.nodes[&dir].children.get(n)?;
        Some((c, self.nodes[&c.ino].kind))
    }

    fn add(&mut self, dir: InodeId, n: &str, ino: InodeId, kind: Kind) {
        let d = self.at(dir);
        d.children.insert(n.into(), Child { ino, cookie: d.next });
        d.next += 1;
        d.nlink += (kind == Kind::Dir) as u32;
    }

    fn take(&mut self, dir: InodeId, n: &str, kind: Kind) -> Child {
        let d = self.at(dir);
        d.nlink -= (kind == Kind::Dir) as u32;
        d.children.remove(n).expect("it is there")
    }

    fn drop_link(&mut self, ino: InodeId) -> u32 {
        let n = self.at(ino);
        n.nlink = if n.kind == Kind::Dir { 0 } else { n.nlink - 1 };
        n.nlink
    }

    fn make(&mut self, dir: InodeId, n: &str, ino: InodeId, kind: Kind, mode: u32) {
        let mut node = self.node(kind, dir);
        node.mode = mode;
        let parent = &self.nodes[&dir];
        if parent.mode & 0o2000 != 0 {
            node.gid = parent.gid;
            node.mode |= if kind == Kind::Dir { 0o2000 } else { 0 };
        }
        self.nodes.insert(ino, node);
        self.add(dir, n, ino, kind);
    }

    pub fn create(&mut self, dir: InodeId, n: &str, ino: InodeId, kind: Kind) -> Is<()> {
        self.open(dir)?;
        if self.child(dir, n).is_some() {
            return Err(MetaError::Exists);
        }
        self.make(dir, n, ino, kind, 0o755);
        self.at(ino).explicit = true;
        Ok(())
    }

    pub fn link(&mut self, dir: InodeId, n: &str, ino: InodeId) -> Is<()> {
        self.open(dir)?;
        let f = &self.nodes[&ino];
        if f.reaping {
            return Err(MetaError::Stale);
        }
        // Files of the flat bucket cannot be linked into the tree.
        if f.flat {
            return invalid();
        }
        if f.nlink == 0 {
            return Err(MetaError::NotFound);
        }
        if self.child(dir, n).is_some() {
            return Err(MetaError::Exists);
        }
        self.at(ino).nlink += 1;
        self.add(dir, n, ino, Kind::File);
        Ok(())
    }

    pub fn unlink(&mut self, dir: InodeId, n: &str) -> Is<(InodeId, u32)> {
        self.open(dir)?;
        let (c, kind) = self.child(dir, n).ok_or(MetaError::NotFound)?;
        if kind == Kind::Dir {
            return Err(MetaError::IsDir);
        }
        self.take(dir, n, kind);
        Ok((c.ino, self.drop_link(c.ino)))
    }

    pub fn rmdir(&mut self, dir: InodeId, n: &str) -> Is<InodeId> {
        self.open(dir)?;
        let (c, kind) = self.child(dir, n).ok_or(MetaError::NotFound)?;
        if kind != Kind::Dir {
            return Err(MetaError::NotDir);
        }
        if !self.nodes[&c.ino].children.is_empty() {
            return Err(MetaError::NotEmpty);
        }
        self.take(dir, n, kind);
        self.drop_link(c.ino);
        Ok(c.ino)
    }

    fn below(&self, mut dir: InodeId, above: InodeId) -> bool {
        loop {
            if dir == above {
                return true;
            }
            let parent = self.nodes[&dir].parent;
            if parent == dir {
                return false;
            }
            dir = parent;
        }
    }

    pub fn rename(&mut self, from: (InodeId, &str), to: (InodeId, &str), mode: RenameMode) -> Is<(InodeId, Option<(InodeId, u32)>)> {
        self.open(from.0)?;
        self.open(to.0)?;
        let (moved, kind) = self.child(from.0, from.1).ok_or(MetaError::NotFound)?;
        let target = self.child(to.0, to.1);
        if kind == Kind::Dir && self.below(to.0, moved.ino) {
            return invalid();
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(MetaError::Exists),
            (RenameMode::Exchange, None) => return Err(MetaError::NotFound),
            (RenameMode::Exchange, Some((t, t_kind))) => {
                if t_kind == Kind::Dir && self.below(from.0, t.ino) {
                    return invalid();
                }
                self.exchange(from, to, (moved, kind), (t, t_kind));
                return Ok((moved.ino, None));
            }
            (_, Some((t, _))) if t.ino == moved.ino => return Ok((moved.ino, None)),
            (_, Some((t, t_kind))) => match (kind == Kind::Dir, t_kind == Kind::Dir) {
                (true, false) => return Err(MetaError::NotDir),
                (false, true) => return Err(MetaError::IsDir),
                (true, true) if !self.nodes[&t.ino].children.is_empty() => return Err(MetaError::NotEmpty),
                _ => {}
            },
            _ => {}
        }
        self.take(from.0, from.1, kind);
        let mut replaced = None;
        match target {
            Some((t, t_kind)) => {
                self.take(to.0, to.1, t_kind);
                self.put_child(to, Child { ino: moved.ino, cookie: t.cookie }, kind);
                replaced = Some((t.ino, self.drop_link(t.ino)));
            }
            None if from.0 == to.0 => self.put_child(to, moved, kind),
            None => self.add(to.0, to.1, moved.ino, kind),
        }
        self.settle(moved.ino, to.0);
        Ok((moved.ino, replaced))
    }

    fn put_child(&mut self, at: (InodeId, &str), child: Child, kind: Kind) {
        let d = self.at(at.0);
        d.children.insert(at.1.into(), child);
        d.nlink += (kind == Kind::Dir) as u32;
    }

    fn exchange(&mut self, from: (InodeId, &str), to: (InodeId, &str), (a, a_kind): (Child, Kind), (b, b_kind): (Child, Kind)) {
        if a.ino == b.ino {
            return;
        }
        self.take(from.0, from.1, a_kind);
        self.take(to.0, to.1, b_kind);
        self.put_child(from, Child { ino: b.ino, cookie: a.cookie }, b_kind);
        self.put_child(to, Child { ino: a.ino, cookie: b.cookie }, a_kind);
        self.settle(a.ino, to.0);
        self.settle(b.ino, from.0);
    }

    fn settle(&mut self, ino: InodeId, parent: InodeId) {
        let n = self.at(ino);
        if n.kind == Kind::Dir {
            (n.parent, n.explicit) = (parent, true);
        }
    }

    pub fn set_attr(&mut self, ino: InodeId, mode: u32, gid: u32) -> Is<()> {
        let n = self.at(ino);
        if n.reaping {
            return Err(MetaError::Stale);
        }
        (n.mode, n.gid, n.explicit) = (mode, gid, true);
        Ok(())
    }

    fn data(&mut self, ino: InodeId, number: u64) -> Is<&mut Node> {
        let n = self.at(ino);
        if n.reaping {
            return Err(MetaError::Stale);
        }
        if number != n.number + 1 {
            return Err(MetaError::PublishRefused(String::new()));
        }
        n.number = number;
        Ok(n)
    }

    pub fn publish(&mut self, ino: InodeId, number: u64, runs: &[Run], cells: u64) -> Is<()> {
        let n = self.data(ino, number)?;
        let cells = cells.max(n.cells);
        if runs.iter().any(|r| r.from + r.len > cells) {
            return Err(MetaError::PublishRefused(String::new()));
        }
        runs.iter().for_each(|r| r.lay(0, &mut n.content));
        n.cells = cells;
        n.object = n.object.take().map(|_| None);
        Ok(())
    }

    pub fn truncate(&mut self, ino: InodeId, number: u64, cells: u64) -> Is<()> {
        let n = self.data(ino, number)?;
        n.content.split_off(&cells);
        n.cells = cells;
        n.object = n.object.take().map(|_| None);
        Ok(())
    }

    /// Parents and last name of a key of the tree.
    fn path<'k>(&self, bucket: BucketId, key: &'k str) -> Option<(Vec<&'k str>, &'k str, bool)> {
        if self.nodes[&self.roots[&bucket]].flat {
            return Some((Vec::new(), key, false));
        }
        let (body, dir) = key.strip_suffix('/').map_or((key, false), |b| (b, true));
        let mut names: Vec<&str> = body.split('/').collect();
        if names.iter().any(|n| ["", ".", ".."].contains(n)) {
            return None;
        }
        let last = names.pop()?;
        Some((names, last, dir))
    }

    /// Where a PUT goes: the deepest directory, the names to make, the last name.
    fn spot<'k>(&self, bucket: BucketId, key: &'k str) -> Is<(InodeId, Vec<&'k str>, &'k str, bool)> {
        let Some((parents, last, dir)) = self.path(bucket, key) else { return conflict() };
        let mut at = self.roots[&bucket];
        for (i, p) in parents.iter().enumerate() {
            match self.child(at, p) {
                Some((c, Kind::Dir)) => at = c.ino,
                Some(_) => return conflict(),
                None => return Ok((at, parents[i..].to_vec(), last, dir)),
            }
        }
        match self.child(at, last).map(|c| c.1) {
            Some(Kind::Dir) if !dir => conflict(),
            Some(Kind::File) if dir => conflict(),
            Some(Kind::Symlink) => conflict(),
            _ => Ok((at, Vec::new(), last, dir)),
        }
    }

    pub fn put(&mut self, p: Put) -> Is<Option<InodeId>> {
        let (at, missing, last, dir) = self.spot(p.bucket, p.key)?;
        if dir {
            return self.put_dir(&p, at, &missing, last);
        }
        let mut content = Cells::new();
        let mut cells = p.cells;
        match p.copy {
            Some(source) if self.nodes[&source].reaping => return Err(MetaError::Stale),
            Some(source) => (content, cells) = (self.nodes[&source].content.clone(), self.nodes[&source].cells),
            None => p.runs.iter().for_each(|r| r.lay(0, &mut content)),
        }
        self.place(at, &missing, last, p.absent, p.ino, content, cells, p.etag)
    }

    fn place(
        &mut self,
        at: InodeId,
        missing: &[&str],
        last: &str,
        absent: bool,
        ino: InodeId,
        content: Cells,
        cells: u64,
        etag: &str,
    ) -> Is<Option<InodeId>> {
        let old = if missing.is_empty() { self.child(at, last).map(|c| c.0) } else { None };
        if absent && old.is_some() {
            return Err(MetaError::PreconditionFailed);
        }
        let at = self.parents(at, missing);
        let flat = self.nodes[&at].flat;
        match old {
            Some(c) => {
                let (mode, gid) = (self.nodes[&c.ino].mode, self.nodes[&c.ino].gid);
                let mut node = self.node(Kind::File, at);
                (node.mode, node.gid) = (mode, gid);
                self.nodes.insert(ino, node);
                self.at(at).children.insert(last.into(), Child { ino, cookie: c.cookie });
                self.drop_link(c.ino);
            }
            None => self.make(at, last, ino, Kind::File, 0o644),
        }
        let n = self.at(ino);
        (n.content, n.cells, n.object, n.flat) = (content, cells, Some(Some(etag.into())), flat);
        Ok(old.map(|c| c.ino))
    }

    fn parents(&mut self, mut at: InodeId, missing: &[&str]) -> InodeId {
        for n in missing {
            let ino = InodeId(self.stand_in);
            self.stand_in += 1;
            self.make(at, n, ino, Kind::Dir, 0o755);
            self.unknown.push((at, (*n).into(), ino));
            at = ino;
        }
        at
    }

    fn put_dir(&mut self, p: &Put, at: InodeId, missing: &[&str], last: &str) -> Is<Option<InodeId>> {
        let old = if missing.is_empty() { self.child(at, last).map(|c| c.0.ino) } else { None };
        if p.absent && old.is_some_and(|i| self.nodes[&i].object.is_some()) {
            return Err(MetaError::PreconditionFailed);
        }
        let ino = match old {
            Some(ino) => ino,
            None => {
                let at = self.parents(at, missing);
                self.make(at, last, p.ino, Kind::Dir, 0o755);
                p.ino
            }
        };
        self.at(ino).object = Some(Some(p.etag.into()));
        Ok(None)
    }

    /// Replaces stand-ins by the ids the state gave.
    pub fn learn(&mut self, ask: impl Fn(InodeId, &str) -> InodeId) {
        let mut known: BTreeMap<InodeId, InodeId> = BTreeMap::new();
        for (dir, n, stand_in) in std::mem::take(&mut self.unknown) {
            let dir = known.get(&dir).copied().unwrap_or(dir);
            let ino = ask(dir, &n);
            known.insert(stand_in, ino);
            let node = self.nodes.remove(&stand_in).expect("it stands in");
            for c in node.children.values() {
                if let Some(child) = self.nodes.get_mut(&c.ino).filter(|c| c.kind == Kind::Dir) {
                    child.parent = ino;
                }
            }
            self.nodes.insert(ino, node);
            self.at(dir).children.get_mut(&n).expect("it is there").ino = ino;
        }
    }

    pub fn delete(&mut self, bucket: BucketId, key: &str) -> Option<InodeId> {
        let (parents, last, dir) = self.path(bucket, key)?;
        let mut way = vec![];
        let mut at = self.roots[&bucket];
        for p in parents {
            let (c, kind) = self.child(at, p)?;
            if kind != Kind::Dir {
                return None;
            }
            way.push((at, p));
            at = c.ino;
        }
        let (c, kind) = self.child(at, last)?;
        if dir {
            if kind != Kind::Dir || self.nodes[&c.ino].object.is_none() {
                return None;
            }
            self.at(c.ino).object = None;
            way.push((at, last));
        } else {
            if kind != Kind::File {
                return None;
            }
            self.take(at, last, kind);
            self.drop_link(c.ino);
        }
        for (at, n) in way.into_iter().rev() {
            let (d, _) = self.child(at, n)?;
            let node = &self.nodes[&d.ino];
            if !node.children.is_empty() || node.explicit || node.object.is_some() {
                break;
            }
            self.take(at, n, Kind::Dir);
            self.drop_link(d.ino);
        }
        Some(c.ino)
    }

    pub fn put_part(&mut self, id: UploadId, number: u16, cells: u64, runs: Vec<Run>, etag: &str) -> Is<()> {
        let (_, parts) = self.uploads.get_mut(&id).ok_or(MetaError::NoSuchUpload)?;
        parts.insert(number, PartOf { cells, runs, etag: etag.into() });
        Ok(())
    }

    pub fn part_list(&self, id: UploadId) -> Vec<(u16, String)> {
        self.uploads.get(&id).map(|(_, p)| p.iter().map(|(n, p)| (*n, p.etag.clone())).collect()).unwrap_or_default()
    }

    pub fn complete(&mut self, bucket: BucketId, id: UploadId, ino: InodeId, parts: &[(u16, String)], etag: &str) -> Is<Option<InodeId>> {
        let (key, all) = self.uploads.get(&id).ok_or(MetaError::NoSuchUpload)?;
        if parts.is_empty() {
            return invalid();
        }
        let (at, missing, last, _) = self.spot(bucket, key)?;
        let (mut content, mut cells) = (Cells::new(), 0);
        for (n, _) in parts {
            let p = &all[n];
            p.runs.iter().for_each(|r| r.lay(cells, &mut content));
            cells += p.cells;
        }
        let replaced = self.place(at, &missing, last, false, ino, content, cells, etag)?;
        self.uploads.remove(&id);
        Ok(replaced)
    }

    pub fn abort(&mut self, id: UploadId) -> Is<()> {
        self.uploads.remove(&id).map(drop).ok_or(MetaError::NoSuchUpload)
    }

    pub fn reaped(&mut self, ino: InodeId, done: bool) {
        if done {
            self.nodes.remove(&ino);
        } else if let Some(n) = self.nodes.get_mut(&ino) {
            n.reaping = n.kind == Kind::File;
        }
    }

    /// Bytes of all that can be reached: files that are there, and parts.
    pub fn live_bytes(&self) -> u64 {
        let files: u64 = self.nodes.values().map(|n| n.content.len() as u64).sum();
        let parts: u64 = self.uploads.values().flat_map(|(_, p)| p.values()).flat_map(|p| &p.runs).map(|r| r.len).sum();
        (files + parts) * CELL
    }

    /// Keys and ETags of a bucket, in order.
    pub fn keys(&self, bucket: BucketId) -> Vec<(String, String)> {
        let mut keys = Vec::new();
        self.keys_below(self.roots[&bucket], String::new(), &mut keys);
        keys.sort();
        keys
    }

    fn keys_below(&self, dir: InodeId, prefix: String, keys: &mut Vec<(String, String)>) {
        for (n, c) in &self.nodes[&dir].children {
            let node = &self.nodes[&c.ino];
            let etag = || node.object.clone().flatten().unwrap_or_else(|| format!("{:016x}-{}", c.ino.0, node.number + 1));
            match node.kind {
                Kind::File => keys.push((format!("{prefix}{n}"), etag())),
                Kind::Dir => {
                    let key = format!("{prefix}{n}/");
                    if node.object.is_some() {
                        keys.push((key.clone(), etag()));
                    }
                    self.keys_below(c.ino, key, keys);
                }
                _ => {}
            }
        }
    }
}
